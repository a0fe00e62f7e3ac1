"""A run's choices as JSON and as C headers.

``launches.h`` compiles as C99, C++11 and CUDA, ``launches.hpp`` as C++11 and CUDA. Both have a name
for each launch parameter of each choice, and above it a comment with the choice's speed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from ..core.display import percent
from ..core.errors import ExportError
from ..core.metric import interval
from .choices import CONDITIONS, NUMBERS, USUAL, Choice, ExportGroup, Point
from .vocabulary import t4_metadata

FORMAT = "gpushmoo choices"
FORMAT_VERSION = 2


def choices_json(
    choices: Sequence[Choice],
    left_out: Sequence[str],
    run: str,
    provenance: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """Return all choices with the problems for which they are valid, as plain values.

    Parameters
    ----------
    choices
        Choices of `choices.choices`.
    left_out
        Sentences on groups that were not exported.
    run
        Name of the run.
    provenance
        Provenance of the shards.
    """
    digests: dict[str, set[str]] = {}
    for shard in provenance:
        digests.setdefault(Path(shard["params"]["folder"]).name, set()).add(shard["kernel_digest"])
    written = sorted(shard["written_at"] for shard in provenance)
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "run": run,
        "provenance": {
            **t4_metadata(provenance)["metadata"],
            "kernel_digests": {kernel: sorted(found) for kernel, found in digests.items()},
            "written_at": {"first": written[0], "last": written[-1]},
        },
        "choices": [_choice(choice) for choice in choices],
        "left_out": list(left_out),
    }


def _choice(choice: Choice) -> dict[str, Any]:
    return {
        **choice.target,
        "size_class": choice.size_class,
        **{name: choice.main.key[name] for name in CONDITIONS},
        "launch": dict(choice.point),
        "best_for_all_problems": choice.everywhere,
        "tied_at": [_problem(group, choice.point) for group in choice.tied],
        "not_tied_at": [_problem(group, choice.point) for group in choice.not_tied],
        "margins_at": _size(choice.main),
        "margins": [{**vars(m), "launch": dict(m.launch)} for m in choice.margins],
    }


def _size(group: ExportGroup) -> dict[str, Any]:
    return {name: group.key[name] for name in ("height", "width", *CONDITIONS)}


def _problem(group: ExportGroup, point: Point) -> dict[str, Any]:
    """Return how fast the launch is on a problem, without numbers if it was not measured there."""
    row = group.ok.get(point, {})
    return {
        **_size(group),
        "tied": len(group.tied),
        "candidates": len(group.ok),
        "slower_than_fastest": group.contest.slower(point),
        **{n: float(row[n]) for n in NUMBERS if not pd.isna(row.get(n))},
    }


C_HEADER, CPP_HEADER = "launches.h", "launches.hpp"
NAMESPACE = "gpushmoo"
# Number of problems that a comment lists. It counts the others.
_NAMED = 4
_MIN_INT, _MAX_INT = -(2**31) + 1, 2**31 - 1


@dataclass(frozen=True)
class Entry:
    """One choice in the headers: the lines of its comment, and its parameters by C identifier."""

    comment: Sequence[str]
    constants: Mapping[str, int]


def entries(choices: Sequence[Choice]) -> list[Entry]:
    """Return each choice for a header; raise ExportError if two constants get the same name."""
    variants: dict[str, set[str]] = {}
    for choice in choices:
        variants.setdefault(choice.target["kernel"], set()).add(choice.target["variant"])
    made = []
    owners: dict[str, str] = {}
    for choice in choices:
        target = choice.target
        kernel = choice.target["kernel"]
        variant = [target["variant"]] if len(variants[kernel]) > 1 else []
        unusual = [value for value in choice.main.conditions if value not in USUAL]
        parts = [target["device_name"], kernel, *variant, target["dtype"], choice.size_class]
        parts += unusual
        constants = {_owned(owners, parts, axis): value for axis, value in choice.point}
        made.append(Entry(_comment(choice), constants))
    return made


def _owned(owners: dict[str, str], parts: Sequence[str], axis: str) -> str:
    """Return the C name of `parts` and an axis; raise ExportError if other parts have it."""
    name = "_".join(map(identifier, [*parts, axis]))
    what = ", ".join(parts)
    if owners.setdefault(name, what) != what:
        raise ExportError(
            f"header: both '{owners[name]}' and '{what}' would be called {name} in C; "
            "rename one of them, or leave one out."
        )
    return name


def identifier(name: str) -> str:
    """Convert `name` to a part of a C identifier; C++ reserves two underscores in a row."""
    found = re.sub("[^a-z0-9]+", "_", name.lower()).strip("_")
    if not found:
        raise ExportError(
            f"header: '{name}' has no letter or digit that C allows in an identifier; rename it."
        )
    return found


def c_header(entries: Sequence[Entry], about: Sequence[str]) -> str:
    """Write macros ``GPUSHMOO_<DEVICE>_<KERNEL>_<TYPE>_<CLASS>_<PARAMETER>`` below `about`."""
    lines = []
    for entry in entries:
        lines += ["", *_block_comment(entry.comment)]
        for name, value in entry.constants.items():
            lines.append(f"#define {NAMESPACE.upper()}_{name.upper()} {_literal(value)}")
    return _guarded([entry.constants for entry in entries], "H", about, lines)


def cpp_header(entries: Sequence[Entry], about: Sequence[str]) -> str:
    """Write constants ``gpushmoo::<device>_<kernel>_<type>_<class>_<parameter>``, as `c_header`."""
    lines = ["", f"namespace {NAMESPACE} {{"]
    for entry in entries:
        lines += ["", *_block_comment(entry.comment)]
        for name, value in entry.constants.items():
            kind = "int" if _is_int(value) else "long long"
            # A name must not begin with a digit.
            named = f"on_{name}" if name[0].isdigit() else name
            lines.append(f"constexpr {kind} {named} = {_literal(value)};")
    return _guarded([e.constants for e in entries], "HPP", about, [*lines, "", "}"])


def _guarded(what: object, suffix: str, about: Sequence[str], lines: Sequence[str]) -> str:
    """Return a header whose guard depends on its content, so that a program can include several."""
    digest = hashlib.sha256(repr(what).encode()).hexdigest()[:12]
    guard = f"{NAMESPACE}_launches_{digest}_{suffix}".upper()
    head = [*_block_comment(about), "", f"#ifndef {guard}", f"#define {guard}"]
    return "\n".join([*head, *lines, "", "#endif", ""])


def _is_int(value: int) -> bool:
    """Return whether an int can represent the value on every C compiler."""
    return _MIN_INT <= value <= _MAX_INT


def _literal(value: int) -> str:
    """Return a C expression of that value, which is safe in any context."""
    suffix = "" if _is_int(value) else "LL"
    if value == -(2**63):
        return f"(-{2**63 - 1}LL - 1)"
    return f"(-{-value}{suffix})" if value < 0 else f"{value}{suffix}"


_ASCII = str.maketrans({"×": "x", "µ": "u", "±": "+-"})


def _block_comment(lines: Sequence[str]) -> list[str]:
    """Return a comment for any C, without characters of names that would end or escape it."""
    texts = [re.sub(r"[^ -~]|\\|\*/|/\*|\?\?", "?", line.translate(_ASCII)) for line in lines]
    return [f"{'/*' if n == 0 else ' *'} {text}" for n, text in enumerate(texts)] + [" */"]


def _comment(choice: Choice) -> list[str]:
    target, main = choice.target, choice.main
    kernel = f"{target['kernel']} ({target['variant']}) of {target['dtype']}"
    where = ", ".join([f"data {choice.size_class.replace('_', ' ')}", *main.conditions])
    lines = [f"{kernel} on {target['device_name']}, {where}.", _claim(choice)]
    row = main.ok.get(choice.point)
    if row is not None:
        lines.append(
            f"At {main.problem}: {interval(row)}; {len(main.tied)} of {len(main.ok)} "
            "launches are statistically tied with the fastest."
        )
    for margin in choice.margins:
        launch = ", ".join(f"{axis}={value}" for axis, value in margin.launch)
        sure = f"{percent(margin.low)} to {percent(margin.high)}, {percent(margin.confidence)} sure"
        longer = f"takes {percent(margin.slower)} longer ({sure})"
        takes = "is statistically tied with it" if margin.low <= 0 <= margin.high else longer
        lines.append(f"{margin.than[0].upper()}{margin.than[1:]} ({launch}) {takes}.")
    for group in choice.not_tied[:_NAMED]:
        lost = group.contest.slower(choice.point)
        lines.append(
            f"It was not measured at {group.problem}."
            if lost is None
            else f"At {group.problem} it takes {percent(lost)} longer than the fastest."
        )
    if len(choice.not_tied) > _NAMED:
        lines.append(f"The same applies to {len(choice.not_tied) - _NAMED} more.")
    return lines


def _claim(choice: Choice) -> str:
    if not choice.tied:
        return "Nearly as fast as the fastest, and closer to 256 threads."
    where = ", ".join(group.problem for group in choice.tied[:_NAMED])
    if len(choice.tied) > _NAMED:
        where += f" and {len(choice.tied) - _NAMED} more"
    if choice.everywhere and len(choice.tied) > 1:
        return f"Statistically as fast as the fastest on all measured problems: {where}."
    return f"Statistically as fast as the fastest at {where}."
