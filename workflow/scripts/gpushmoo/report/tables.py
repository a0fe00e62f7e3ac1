"""Rows of the report's tables, launches and small maps of them, as display strings."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import pandas as pd

from ..analysis.best import BLOCK_AXES, Advice
from ..analysis.ceiling import CeilingRow
from ..analysis.fastest import INSIDE, OUTSIDE
from ..core.display import bare_interval, kind_words, percent, significant
from ..core.schema import GROUP, Status
from ..core.space import CONDITIONS
from ..storage.dataset import matching

Json = dict[str, Any]

# Tied cells named in the table of best sets, beside how many they are; the whole set is in
# summary/best.parquet.
NAMED_TIES = 3


_NAMED = ("device_name", "cache_state", "launch_kind")


class Namer:
    """Says device, cache state and kind of launch of a group where the run has more than one."""

    def __init__(self, groups: Iterable[Mapping[str, Any]]) -> None:
        """`groups` are all rows that have a device, a cache state and a kind of launch."""
        rows = list(groups)
        self._devices, self._states, self._kinds = (
            len({row[name] for row in rows}) > 1 for name in _NAMED
        )

    def size(self, group: Mapping[str, Any]) -> str:
        """Size of the problem, and what else tells the group from others of its kernel."""
        parts = [size_words(int(group["height"]), int(group["width"]))]
        if self._states:
            parts.append(str(group["cache_state"]))
        if self._kinds:
            parts.append(kind_words(group["launch_kind"]))
        if self._devices:
            parts.append(str(group["device_name"]))
        return ", ".join(parts)

    def series(self, group: Mapping[str, Any]) -> str:
        """Kernel, dtype and variant of a group, and its size as `size` writes it."""
        return f"{group['kernel']}, {group['dtype']}, {group['variant']}, {self.size(group)}"


def size_words(height: int, width: int) -> str:
    """``1024²``, or ``512 × 1024``; of a single row ``n = 1024``."""
    if height == 1 != width:
        return f"n = {width}"
    return f"{height}²" if height == width else f"{height} × {width}"


def namer(cells: pd.DataFrame) -> Namer:
    """The `Namer` of all groups that `cells` fall into."""
    return Namer(cells[[*_NAMED]].drop_duplicates().to_dict("records"))


def best_rows(advice: Sequence[Advice], best: pd.DataFrame, names: Namer) -> list[Json]:
    """One line for each kernel and type: its fastest launches where the advice speaks of them.

    `best` are the tied cells of all groups. ``variants`` says what the best launches of the other
    variants reach at the same problem, as a share of its bandwidth.
    """
    problem = [name for name in GROUP if name != "variant"]
    rows = []
    for a in advice:
        alike = matching(best, {name: a.group[name] for name in problem})
        group = alike[alike["variant"] == a.group["variant"]]
        top = group[group["is_fastest"]].iloc[0]
        others = group[group["params"] != top["params"]].to_dict("records")
        tied = [launch_values(row, a.axes) for row in others]
        variants = alike[alike["is_fastest"] & (alike["variant"] != a.group["variant"])]
        shares = variants["bandwidth_gbs"] / top["bandwidth_gbs"]
        rows.append(
            {
                "kernel": top["kernel"],
                "dtype": top["dtype"],
                "variant": top["variant"],
                "size": names.size(a.group),
                "fastest": launch_values(top, a.axes),
                "bandwidth": bare_interval(top),
                "over_copy": "—" if pd.isna(top["over_copy"]) else significant(top["over_copy"]),
                "tied": f"{len(group)} of {top['candidates']}",
                "tied_with": "; ".join(tied[:NAMED_TIES]) + ";\u00a0…" * (len(tied) > NAMED_TIES),
                "variants": _range(shares),
            }
        )
    return rows


def _range(shares: pd.Series) -> str:
    """``61 % to 98 %``, the one that there is, or a dash."""
    if shares.empty:
        return "—"
    return " to ".join(dict.fromkeys(percent(s) for s in (shares.min(), shares.max())))


ARROWS = {"up": "↑", "down": "↓"}


def ways(edge: str) -> list[list[str]]:
    """Axis, and ``up`` or ``down``, of each part of the column `edge` of `best_schema`."""
    return [part.split(" ") for part in edge.split(", ") if part]


def ceiling_table(rows: Sequence[CeilingRow]) -> list[Json]:
    """The highest load and store of each device and condition, inside the cache and outside."""
    regions = (("inside the cache", 0.0, INSIDE), ("far outside", OUTSIDE, float("inf")))
    devices = sorted({r.device_name for r in rows})
    several = len({r.launch_kind for r in rows}) > 1
    lines = []
    for device, met, (words, low, high) in itertools.product(devices, CONDITIONS, regions):
        in_region = [
            r
            for r in rows
            if (r.device_name, r.cache_state, r.launch_kind) == (device, *met)
            and low <= (r.working_set_over_cache or -1.0) <= high
        ]
        if in_region:
            where = f"{words}, {met.cache_state}"
            where += f", {kind_words(met.launch_kind)}" if several else ""
            where += f", {device}" if len(devices) > 1 else ""
            load, store = (_peak([r for r in in_region if r.kind == k]) for k in ("load", "store"))
            lines.append({"where": where, "load": load, "store": store})
    return lines


def _peak(rows: Sequence[CeilingRow]) -> str:
    if not rows:
        return "—"
    row = max(rows, key=lambda r: r.bandwidth_gbs)
    at = f"{significant(row.working_set_over_cache or 0.0, 2)} × cache"
    return f"{bare_interval(asdict(row))}, {row.dtype} {row.variant}, {at}"


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
