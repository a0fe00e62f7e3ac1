"""The document's tables 1 and 4 to 6 as predictions, at both memory clocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd
from gpushmoo.report.simulated import LEVELS
from gpushmoo.report.tables import Json

from .answers import COALESCED, PERSISTENT
from .verdicts import FLOAT3

# Columns of table 1: element type and commands of an access.
_COPIES = (("float", 1), ("double", 1), ("float3", 1), ("float3", 3))
# A law of twos holds within this share.
_WITHIN = 0.05


def tables(cells: pd.DataFrame, device: Mapping[str, Any]) -> Json:
    """The tables as texts; a variant of the `cells` is named by its memory clock."""
    shared = cells[cells["kernel"] == PERSISTENT]
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
        f"Up to this many blocks every ratio is 2 within {100 * _WITHIN:.0f} %, at all sizes: "
        + "; ".join(f"at {clock} {', '.join(parts)}" for clock, parts in last.items())
        + "."
    )


def _holds_to(cells: pd.DataFrame) -> str:
    last = "none"
    for n in sorted(cells["num_partition"].unique()):
        ratios = [value for values in _ratios(cells, n).values() for value in values]
        if any(abs(ratio / 2 - 1) > _WITHIN for ratio in ratios):
            break
        last = str(n)
    return last
