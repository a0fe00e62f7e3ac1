"""The rule "tiles as wide as a partition", over other widths and pitches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pandas as pd
from gpushmoo.core.schema import Status
from gpushmoo.report.simulated import LEVELS
from gpushmoo.report.tables import Json, Namer

MEASURED = "block_tiles"
# Bytes of a partition's width in the document, which the rule takes for a tile's row.
RULE = 256
# Within this share a bandwidth is as good as the best.
GOOD = 0.02


def simulated_widths(cells: pd.DataFrame) -> Json:
    """The page's table of simulated widths; `cells` have SIMULATION_SCHEMA."""
    parts = [
        (f"{cells['device'].iloc[0]}, simulated: {LEVELS[level]}, {clock}", part)
        for level in LEVELS
        for clock, part in cells[cells["level"] == level].groupby("variant", sort=False)
    ]
    return _table(parts)


def measured_widths(cells: pd.DataFrame, names: Namer) -> Json | None:
    """The same of measured cells, by device, size and cache state; None where there are none."""
    ok = cells[(cells["kernel"] == MEASURED) & (cells["status"] == Status.OK)]
    if ok.empty:
        return None
    keys = ["device_name", "variant", "height", "width", "cache_state"]
    parts = [
        (f"{key[0]}, measured: {names.size(dict(zip(keys, key, strict=True)))}", part)
        for key, part in ok.groupby(keys, sort=True)
    ]
    return _table(parts)


def _table(parts: Sequence[tuple[str, pd.DataFrame]]) -> Json:
    """Bandwidth without padding, and least and most of all pitches, by width of a tile's row."""
    widths = sorted({int(w) for _, part in parts for w in part["row_bytes"]})
    rows, sentences = [], []
    for level, part in parts:
        # float before double, as everywhere.
        for (dtype, blocks), series in sorted(
            part.groupby(["dtype", "num_partition"]), key=lambda g: (g[0][0] != "float", g[0][1])
        ):
            by_width = dict(iter(series.groupby("row_bytes")))
            rows.append(
                {
                    "level": level,
                    "dtype": str(dtype),
                    "blocks": str(int(blocks)),
                    "gbs": [_cell(by_width.get(width)) for width in widths],
                }
            )
        sentences.append(f"{level}: {_judged(part)}")
    return {
        "widths": [f"{w} B" for w in widths],
        "rows": rows,
        "judged": sentences,
    }


def _cell(cells: pd.DataFrame | None) -> str:
    if cells is None:
        return "—"
    plain = cells.loc[cells["pad_bytes"] == 0, "bandwidth_gbs"]
    low, high = cells["bandwidth_gbs"].min(), cells["bandwidth_gbs"].max()
    first = f"{plain.iloc[0]:.1f}" if len(plain) else "—"
    return f"{first} ({low:.1f}–{high:.1f})"


def _shares(cells: pd.DataFrame) -> Iterator[pd.Series]:
    """Bandwidth by width over the best width's, for each dtype, number of blocks and pitch."""
    for _, part in cells.groupby(["dtype", "num_partition", "pad_bytes"]):
        gbs = part.set_index("row_bytes")["bandwidth_gbs"]
        yield gbs / gbs.max()


@dataclass(frozen=True)
class Judgement:
    """In how many of the `cases` the rule's width is as `good` as the best, and what widths cost.

    A case is a type, a number of blocks and a pitch. `worst` and `other` are the most that the
    rule's width and any other loses to the best, as shares.
    """

    good: int
    cases: int
    worst: float
    other: float


def judge(cells: pd.DataFrame) -> Judgement | None:
    """The rule against the other widths of `cells`; None where there is nothing to compare."""
    shares = [s for s in _shares(cells) if RULE in s.index and len(s) > 1]
    if not shares:
        return None
    return Judgement(
        good=sum(s[RULE] >= 1 - GOOD for s in shares),
        cases=len(shares),
        worst=1 - min(s[RULE] for s in shares),
        other=1 - min(s.drop(RULE).min() for s in shares),
    )


def _judged(cells: pd.DataFrame) -> str:
    found = judge(cells)
    if found is None:
        return f"rows of {RULE} bytes, or others to compare with, were not tried."
    return (
        f"rows of {RULE} bytes are the best or within {100 * GOOD:.0f} % of it in {found.good} of "
        f"{found.cases} cases of type, blocks and pitch, and at worst {100 * found.worst:.0f} % "
        f"slower; another width is at worst {100 * found.other:.0f} % slower."
    )
