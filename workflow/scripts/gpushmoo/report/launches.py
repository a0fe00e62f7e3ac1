"""Launches and small maps of them, as a reader wants them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from ..analysis.advice import BLOCK_AXES, Advice
from ..core.schema import Status

# A line over fewer values shows nothing.
_FEWEST_POINTS = 3
# Steps of a small map's colours.
_SHADES = 255


def axes_words(axes: Sequence[str]) -> str:
    """What the values of `launch_values` are: ``block_x × block_y, unroll``."""
    sides = [axis for axis in BLOCK_AXES if axis in axes]
    return ", ".join([" × ".join(sides)] * bool(sides) + [a for a in axes if a not in sides])


def launch_values(cell: Mapping[str, Any], axes: Sequence[str]) -> str:
    """``64 × 4`` for a block, ``256, 4`` with another parameter, a dash without any."""
    sides = [axis for axis in BLOCK_AXES if axis in axes]
    words = [" × ".join(str(int(cell[axis])) for axis in sides)] if sides else []
    return ", ".join(words + [str(int(cell[a])) for a in axes if a not in sides]) or "—"


def launch_words(cell: Mapping[str, Any], axes: Sequence[str]) -> str:
    """``64 × 4`` for a block, ``256, unroll 4`` with another parameter, a dash without any."""
    sides = [axis for axis in BLOCK_AXES if axis in axes]
    words = [" × ".join(str(int(cell[axis])) for axis in sides)] if sides else []
    words += [f"{axis} {int(cell[axis])}" for axis in axes if axis not in sides]
    return ", ".join(words) or "—"


def thumbnail(a: Advice, cells: pd.DataFrame) -> dict[str, Any] | None:
    """A small picture of bandwidth over the launch parameters of the advice's group.

    A ``map`` over two axes has rows of shades from 0 to 255, the fastest launch's, and None where
    nothing was measured; a ``line`` over one has points from 0 to 1. Other axes' fastest cell
    stands for them. `cells` are those of the group.
    """
    ok = cells[cells["status"] == Status.OK]
    counts = {axis: ok[axis].nunique() for axis in a.axes}
    sides = [axis for axis in BLOCK_AXES if counts.get(axis, 0) > 1]
    others = sorted((x for x in counts if x not in sides), key=lambda x: -counts[x])
    chosen = [axis for axis in (*sides, *others) if counts[axis] > 1][:2]
    top = ok["bandwidth_gbs"].max()
    if len(chosen) == 2 and min(counts[axis] for axis in chosen) >= _FEWEST_POINTS:
        x, y = chosen
        grid = ok.pivot_table(values="bandwidth_gbs", index=y, columns=x, aggfunc="max")
        rows = grid.sort_index(ascending=False).to_numpy() / top * _SHADES
        return {"kind": "map", "rows": [[_shade(v) for v in row] for row in rows]}
    if chosen and counts[chosen[0]] >= _FEWEST_POINTS:
        best = ok.groupby(chosen[0])["bandwidth_gbs"].max().sort_index() / top
        places = best.index.to_numpy(dtype=float)
        span = places[-1] - places[0]
        points = zip((places - places[0]) / span, best, strict=True)
        return {"kind": "line", "points": [[round(x, 4), round(y, 4)] for x, y in points]}
    return None


def _shade(value: float) -> int | None:
    return None if pd.isna(value) else round(value)
