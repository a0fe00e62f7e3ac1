"""One page on a comparison of runs: its verdicts, a picture of the changes, what else differs."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..comparing.compare import compare
from ..comparing.comparison import (
    HEADS,
    VERDICTS,
    Comparison,
    changed_groups,
    changed_rows,
    group_words,
    percent,
)
from ..core.paths import ROOT
from ..figures.style import apply_style, save
from ..figures.timelines import MOST_GROUPS, draw_changes
from ..storage.wholefile import write_summed
from .build import compile_pages

# Rows and lines that fit on the page; the rest is in the tables.
_MOST_ROWS, _MOST_LINES = 10, 8
_FIGURE = "changes.svg"


def compare_runs(spec: Mapping[str, Any], tables: Sequence[Path]) -> None:
    """Compare the runs that `spec` names; write the tables, the picture and the page."""
    found = compare(spec["a"], spec["b"], noise_runs=spec["same"], threshold=spec["delta"])
    folder = tables[0].parent
    found.save(folder)
    build_comparison(found, ROOT / "reports", folder)


def build_comparison(found: Comparison, reports: Path, folder: Path) -> None:
    """Write the picture ``changes.svg`` and the page ``compare.pdf`` into `folder`.

    `reports` holds the template ``compare.typ``. The same comparison gives the same bytes.
    """
    apply_style()
    names = [group_words(row) for row in found.groups.to_dict("records")]
    figure = draw_changes(found.groups, names, found.delta)
    caption = _caption(found)
    save(figure, folder / _FIGURE, "Changes of the groups' bests", caption)
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        for template in reports.glob("*.typ"):
            shutil.copy(template, root)
        (root / "figures").mkdir()
        shutil.copy(folder / _FIGURE, root / "figures")
        facts = comparison_facts(found)
        write_summed(folder / "compare.pdf", compile_pages(root, facts, "compare.typ"))


def _caption(found: Comparison) -> str:
    n = len(found.groups)
    most = f"The {MOST_GROUPS} of {n} groups whose bests changed most"
    which = most if n > MOST_GROUPS else f"All {n} groups"
    delta = percent(found.delta, sign=False)
    return (
        f"{which}, with 95 % intervals of another run. Filled: the raw "
        "change; hollow: beside the runtime's own copy. To the right is slower; triangles are "
        f"verdicts slower and faster, blue is the same, grey undecided. The band is ±{delta}."
    )


def comparison_facts(found: Comparison) -> dict[str, Any]:
    """All that the page says, as strings."""
    year, month, day = map(int, found.day.split("-"))
    return {
        "title": found.title,
        "date": [year, month, day],
        "alarm": bool(len(found.slower)),
        "headline": found.headline,
        "verdicts": list(VERDICTS),
        "counts": [[what, *map(str, numbers)] for what, numbers in found.counts()],
        "heads": list(HEADS),
        "changed": changed_rows(changed_groups(found.groups).head(_MOST_ROWS)),
        "remarks": found.remarks(),
        "differences": _few(list(found.differences)),
        "method": found.method(),
        "figure": {
            "file": _FIGURE,
            "title": "Changes of the groups' bests",
            "caption": _caption(found),
        },
    }


def _few(lines: list[str]) -> list[str]:
    left = len(lines) - _MOST_LINES
    return [*lines[:_MOST_LINES], *([f"and {left} more"] if left > 0 else [])]
