"""One page on a comparison of runs: its verdicts, a picture of the changes, what else differs."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..comparing.compare import (
    HEADS,
    VERDICTS,
    Comparison,
    changed_groups,
    changed_rows,
    compare,
    group_words,
    percent,
)
from ..figures.style import apply_style, save
from ..figures.timelines import MOST_GROUPS, draw_changes
from ..storage.wholefile import write_summed
from .build import compile_pages, lay_out

# Rows and lines that fit on the page; the rest is in the tables.
_MOST_ROWS, _MOST_LINES = 10, 8
_FIGURE = "changes.svg"


def compare_runs(spec: Mapping[str, Any], tables: Sequence[Path]) -> None:
    """Compare the runs that `spec` names; write the tables, the picture and the page."""
    found = compare(
        spec["a"], spec["b"], noise_runs=spec["noise_runs"], threshold=spec["threshold"]
    )
    folder = tables[0].parent
    found.save(folder)
    build_comparison(found, folder)


def build_comparison(found: Comparison, folder: Path) -> None:
    """Write the picture ``changes.svg`` and the page ``compare.pdf`` into `folder`."""
    apply_style()
    names = [group_words(row) for row in found.groups.to_dict("records")]
    facts = comparison_facts(found)
    picture = folder / _FIGURE
    figure = draw_changes(found.groups, names, found.delta)
    save(figure, picture, facts["figure"]["title"], facts["figure"]["caption"])
    with tempfile.TemporaryDirectory() as scratch:
        lay_out(Path(scratch), [picture])
        write_summed(folder / "compare.pdf", compile_pages(Path(scratch), facts, "compare.typ"))


def _caption(found: Comparison) -> str:
    n = len(found.groups)
    most = f"The {MOST_GROUPS} of {n} groups whose bests changed most"
    which = most if n > MOST_GROUPS else f"All {n} groups"
    delta = percent(found.delta, sign=False)
    return (
        f"{which}, with 95 % intervals of another run. Filled: the raw "
        "change; hollow: beside the memcpy baseline. To the right is slower; triangles are "
        f"verdicts slower and faster, blue is the same, grey undecided. The band is ±{delta}."
    )


def comparison_facts(found: Comparison) -> dict[str, Any]:
    """The content of the page, as strings."""
    left = len(found.differences) - _MOST_LINES
    more = [f"and {left} more"] if left > 0 else []
    return {
        "title": found.title,
        "date": [int(part) for part in found.day.split("-")],
        "alarm": bool(len(found.slower)),
        "headline": found.headline,
        "verdicts": list(VERDICTS),
        "counts": [[what, *map(str, numbers)] for what, numbers in found.counts()],
        "heads": list(HEADS),
        "changed": changed_rows(changed_groups(found.groups).head(_MOST_ROWS)),
        "remarks": found.remarks(),
        "differences": [*found.differences[:_MOST_LINES], *more],
        "method": found.method(),
        "figure": {
            "file": _FIGURE,
            "title": "Changes of the groups' bests",
            "caption": _caption(found),
        },
    }
