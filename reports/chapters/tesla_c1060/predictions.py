"""The page's tables of simulated cells: the document's own, and tiles of other widths."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from gpushmoo.core.schema import Status
from gpushmoo.report.tables import Json, Namer

from .answers import SAME
from .simulation.machine import LEVELS
from .simulation.run import BLOCK_EQ, COALESCED

# Columns of table 1: element type and commands of an access.
_COPIES = (("float", 1), ("double", 1), ("float3", 1), ("float3", 3))
FLOAT3 = 12  # bytes of a structure of three floats


def tables(cells: pd.DataFrame, device: Mapping[str, Any]) -> Json:
    """The tables as texts; a variant of the `cells` is named by its memory clock."""
    shared = cells[cells["kernel"] == BLOCK_EQ]
    blocks = sorted(shared["num_partition"].unique())
    return {
        "device": str(cells["device"].iloc[0]),
        "blocks": [str(n) for n in blocks],
        "law": _law(shared),
        "doubling": _doubling(shared, blocks),
        "access": str(FLOAT3 * device["half_warp"]),
        "shared": [
            {
                "level": f"{LEVELS[level]}, {clock}",
                "size": f"{size}²",
                "dtype": dtype,
                "gbs": [f"{by[n]:.1f}" for n in blocks],
            }
            for (clock, level, size, dtype), by in _series(shared, "num_partition", ["dtype"])
        ],
        "coalesced": [
            {
                "level": f"{LEVELS[level]}, {clock}",
                "size": f"{size}²",
                "gbs": [f"{by[key]:.1f}" for key in _COPIES],
            }
            for (clock, level, size), by in _series(
                cells[cells["kernel"] == COALESCED].assign(
                    copy=lambda c: list(zip(c["dtype"], c["commands"], strict=True))
                ),
                "copy",
                [],
            )
        ],
    }


def _series(
    cells: pd.DataFrame, column: str, more: list[str]
) -> list[tuple[tuple[Any, ...], dict[Any, float]]]:
    """Bandwidth by `column` for each clock, level, size and `more`, in this order."""
    clocks, levels = list(dict.fromkeys(cells["variant"])), list(LEVELS)
    dtypes = ["float", "double"]
    series = [
        (tuple(key), dict(zip(part[column], part["bandwidth_gbs"], strict=True)))
        for key, part in cells.groupby(["variant", "level", "width", *more], sort=False)
    ]
    return sorted(
        series,
        key=lambda f: (
            clocks.index(f[0][0]),
            levels.index(f[0][1]),
            f[0][2],
            [dtypes.index(d) for d in f[0][3:]],
        ),
    )


# What the law says is 2: double over float, and either over itself on half as many blocks.
_RATIOS = ("double / float", "float / on half the blocks", "double / on half the blocks")


def _ratios(cells: pd.DataFrame, n: int) -> dict[str, list[float]]:
    """The `_RATIOS` at `n` blocks, each at all sizes; fewer where half as many were not run."""
    at = cells.set_index(["width", "dtype", "num_partition"])["bandwidth_gbs"]
    sizes = cells["width"].unique()
    found = {_RATIOS[0]: [at[s, "double", n] / at[s, "float", n] for s in sizes]}
    for name, dtype in zip(_RATIOS[1:], ("float", "double"), strict=True):
        halved = (sizes[0], dtype, n // 2) in at.index and n % 2 == 0
        found[name] = [at[s, dtype, n] / at[s, dtype, n // 2] for s in sizes] if halved else []
    return found


def _doubling(shared: pd.DataFrame, blocks: list[int]) -> list[Json]:
    """Each of the `_RATIOS` over all numbers of blocks: the least and the most of all sizes."""
    rows = []
    for clock, level, cells in _machines(shared):
        by = {n: _ratios(cells, n) for n in blocks}
        rows += [
            {
                "level": f"{LEVELS[level]}, {clock}",
                "ratio": name,
                "values": [_span(by[n][name]) for n in blocks],
            }
            for name in _RATIOS
        ]
    return rows


def _span(values: list[float]) -> str:
    if not values:
        return "—"
    low, high = f"{min(values):.2f}", f"{max(values):.2f}"
    return low if low == high else f"{low}–{high}"


def _machines(cells: pd.DataFrame) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """Clock, level and cells of each, the levels in their order."""
    for clock in dict.fromkeys(cells["variant"]):
        for level in LEVELS:
            part = cells[(cells["variant"] == clock) & (cells["level"] == level)]
            if not part.empty:
                yield str(clock), level, part


def _law(shared: pd.DataFrame) -> str:
    """Up to how many blocks the law of twos holds at all sizes, for each clock and level."""
    last: dict[str, list[str]] = {}
    for clock, level, cells in _machines(shared):
        last.setdefault(clock, []).append(f"{_holds_to(cells)} ({LEVELS[level]})")
    return (
        f"Up to this many blocks every ratio is 2 within {100 * SAME:.0f} %, at all sizes: "
        + "; ".join(f"at {clock} {', '.join(parts)}" for clock, parts in last.items())
        + "."
    )


def _holds_to(cells: pd.DataFrame) -> str:
    last = "none"
    for n in sorted(cells["num_partition"].unique()):
        ratios = [value for values in _ratios(cells, n).values() for value in values]
        if any(abs(ratio / 2 - 1) > SAME for ratio in ratios):
            break
        last = str(n)
    return last


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
    return _widths(parts)


def measured_widths(cells: pd.DataFrame, names: Namer) -> Json | None:
    """Return the widths of measured cells, by device, size and cache state; None without cells."""
    ok = cells[(cells["kernel"] == MEASURED) & (cells["status"] == Status.OK)]
    if ok.empty:
        return None
    keys = ["device_name", "variant", "height", "width", "cache_state"]
    parts = [
        (f"{key[0]}, measured: {names.size(dict(zip(keys, key, strict=True)))}", part)
        for key, part in ok.groupby(keys, sort=True)
    ]
    return _widths(parts)


def _widths(parts: Sequence[tuple[str, pd.DataFrame]]) -> Json:
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
