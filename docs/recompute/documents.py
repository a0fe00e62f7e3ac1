"""The documents' names beside ours, and where each claim, figure, table and question is answered.

Each chapter has them in ``published/claims.yaml``. What a row refers to must be there: a kernel
with its variant, axis or a word of its source; a function; a slip; a row of the table of
numbers; a heading of a page; a test; a file.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml
from gpushmoo.chapters import Chapter
from gpushmoo.core.display import joined
from gpushmoo.core.paths import CHAPTERS, KERNELS
from gpushmoo.workloads.loader import load_kernel
from jinja2 import StrictUndefined, Template
from streamed_dot.analysis import PRINTED_GBS, read_dot

from .places import link, path_of
from .record import ROOT, MissingError
from .simulated import computed_checks
from .words import Claims

FILE = "published/claims.yaml"
# In the order of the documents.
FOLDERS = ("tesla_c1060", "texture_shmoo", "streamed_dot")
ANSWERS = {
    "same": "comes out here, within the tolerance that the row states",
    "in part": "part of it does, or under a condition",
    "no": "does not come out: a slip, or it is otherwise here",
    "lost": "it is about data or drawings that did not survive, so there is nothing to compare",
    "hypothesis": "neither its text nor our data decide it: an assumption, a number from "
    "another source, or an explanation that nothing excludes",
}

Reference = Mapping[str, Any]


def values(claims: Claims, numbers: Mapping[str, Any]) -> dict[str, Any]:
    """Both tables of each document; a reference to what is not there is a broken claim.

    `numbers` are those of the other pages, which tolerances and remarks name.
    """
    numbers = {**numbers, "documents": _printed()}
    return {"answers": ANSWERS, "documents": [document(f, claims, numbers) for f in FOLDERS]}


def _printed() -> dict[str, str]:
    """What follows from the third document's printed numbers."""
    times = read_dot(CHAPTERS / "streamed_dot/published", "running_time")
    one = times[times["series"] == "AVX (double)"].set_index("n")["value"]
    n = max(one.index)
    return {
        "one_thread": f"{2 * 8 * n / one[n] * 1e-6:.1f} GB/s",
        # Of 3200 MT/s and 8 bytes each.
        "channels": f"{PRINTED_GBS['all cores'] / 25.6:.0f}",
    }


def document(folder: str, claims: Claims, numbers: Mapping[str, Any]) -> dict[str, Any]:
    """What a chapter's file says of its document: rows of both tables as Markdown."""
    told = told_by(folder)

    def places(references: list[Reference]) -> list[str]:
        found = []
        for reference in references:
            try:
                found.append(resolved(folder, reference))
            except MissingError as err:
                claims.hold(str(err), False)
        return found

    def within(row: Mapping[str, Any]) -> str:
        text = str(row.get("tolerance") or row.get("remark") or "")
        return str(Template(text, undefined=StrictUndefined).render(numbers))

    for row in told["answers"]:
        places(row["where"])
    shown = [r["page"] for row in told["answers"] for r in row["where"] if "page" in r]
    chapter: Chapter = import_module(f"{folder}.chapter").CHAPTER
    return {
        "title": chapter.document,
        "folder": folder,
        "kernels": joined(f"`{name}`" for name in sorted(chapter.kernels)),
        "counts": Counter(row["answer"] for row in told["answers"]),
        "names": [
            [row["theirs"], "; ".join(ours), row["difference"]]
            for row in told["names"]
            if (ours := places(row["ours"])) and "difference" in row
        ],
        "answers": [
            [
                row["says"] if row["item"] == "claim" else f"*{row['item']}:* {row['says']}",
                row["answer"],
                within(row),
            ]
            for row in told["answers"]
            if row["answer"] != "lost"
        ],
        "lost": "; ".join(
            f"{row['item']}, {row['says']}" for row in told["answers"] if row["answer"] == "lost"
        ),
        "claims": len(told["answers"]),
        "pages": joined(dict.fromkeys(f"[{p}]({link(p, 'documents.md')})" for p in shown)),
    }


@cache
def told_by(folder: str) -> Mapping[str, Any]:
    """The file of a chapter: ``names`` and ``answers``; "no" is no boolean there."""
    text = (CHAPTERS / folder / FILE).read_text("utf-8")
    told: Mapping[str, Any] = yaml.load(text, yaml.BaseLoader)
    return told


def resolved(folder: str, reference: Reference) -> str:
    """How a page refers to it. Raises MissingError where it is not there."""
    kind, *more = reference
    try:
        return _KINDS[kind](folder, reference[kind], **{key: reference[key] for key in more})
    except (LookupError, ImportError, AttributeError, OSError, TypeError, ValueError) as err:
        raise MissingError(f"{folder}: {dict(reference)} is not there ({err}).") from err


def _found(there: bool, what: object) -> None:
    if not there:
        raise LookupError(what)


def _kernel(
    folder: str, name: str, variant: str = "", axis: str = "", dtype: str = "", source: str = ""
) -> str:
    """A kernel of ours, and what of it; `source` are words of its CUDA source."""
    workload = load_kernel(KERNELS / name).workload
    parts = [f"`{name}`"]
    text = (KERNELS / name / "kernel.cu").read_text("utf-8") if source else ""
    for kind, wanted, there in (
        ("variant", variant, workload.variants),
        ("axis", axis, workload.axes),
        ("type", dtype, workload.dtypes),
    ):
        _found(not wanted or wanted in there, wanted)
        parts += [f"{kind} `{wanted}`"] if wanted else []
    for word in source.split():
        _found(re.search(rf"\b{word}\b", text) is not None, word)
    words = joined(f"`{word}`" for word in source.split())
    return ", ".join(filter(None, [*parts, words]))


def _function(folder: str, name: str) -> str:
    """A function, a class or a constant by its dotted name."""
    module, _, member = name.rpartition(".")
    getattr(import_module(module), member)
    return f"`{name.removeprefix('gpushmoo.').removeprefix(f'{folder}.')}`"


def _told(folder: str, kind: str, part: str) -> str:
    """The one slip, or the one remark below the slips, that has these words."""
    published = CHAPTERS / folder / "published"
    own = published / "slips.json"
    told = json.loads((own if own.exists() else published / "textures.json").read_text("utf-8"))
    texts = [entry["slip"] if kind == "slip" else entry for entry in told[f"{kind}s"]]
    _found(sum(part in text for text in texts) == 1, part)
    return f"{kind}, “{part}”"


def _check(folder: str, part: str) -> str:
    """Rows of the report's table of numbers whose quantity begins so."""
    _found(any(check.quantity.startswith(part) for check in computed_checks()), part)
    return f"“{part}”"


def _section(folder: str, heading: str, page: str) -> str:
    """A heading of a page that begins so."""
    text = (ROOT / path_of(page)).read_text("utf-8")
    found = re.search(rf"(?m)^#+ ({re.escape(heading)}.*)$", text)
    _found(found is not None, heading)
    return heading


def _test(folder: str, name: str, file: str) -> str:
    """A test, by its file and its name."""
    text = (ROOT / file).read_text("utf-8")
    _found(f"\ndef {name}(" in text, name)
    return f"`{Path(file).stem}`"


def _file(folder: str, path: str) -> str:
    """A file of the project."""
    _found((ROOT / path).is_file(), path)
    return f"`{path.removeprefix(f'reports/chapters/{folder}/')}`"


_KINDS: Mapping[str, Callable[..., str]] = {
    "kernel": _kernel,
    "function": _function,
    "slip": lambda folder, part: _told(folder, "slip", part),
    "remark": lambda folder, part: _told(folder, "remark", part),
    "check": _check,
    "section": _section,
    "test": _test,
    "file": _file,
}
