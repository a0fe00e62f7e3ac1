"""Rows of the report's tables, as display strings."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import pandas as pd

from ..analysis.ceiling import CeilingRow
from ..analysis.fastest import INSIDE, OUTSIDE
from ..core.display import bare_interval, number, percent, seconds, significant
from ..core.space import CACHE_STATES

Json = dict[str, Any]

# Tied cells named in the table of best sets, beside how many they are; the whole set is in
# summary/best.parquet.
NAMED_TIES = 3
# Of a kernel swept over more sizes the table of best sets shows only the fastest size and variant.
MOST_SIZES = 4


class Namer:
    """Says the device and the cache state of a group only where the run has more than one."""

    def __init__(self, groups: Iterable[Mapping[str, Any]]) -> None:
        """`groups` are all rows that have a device and a cache state."""
        pairs = {(g["device_name"], g["cache_state"]) for g in groups}
        self._devices = len({device for device, _ in pairs}) > 1
        self._states = len({state for _, state in pairs}) > 1

    def size(self, group: Mapping[str, Any]) -> str:
        """Size of the problem, and what else tells the group from others of its kernel."""
        parts = [size_words(int(group["height"]), int(group["width"]))]
        if self._states:
            parts.append(str(group["cache_state"]))
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
    return Namer(cells[["device_name", "cache_state"]].drop_duplicates().to_dict("records"))


def best_rows(best: pd.DataFrame, names: Namer) -> list[Json]:
    """One line for each group: the fastest cell and the size of its tied set."""
    rows = []
    keys = ["kernel", "dtype", "variant", "height", "width", "cache_state", "device_name"]
    for key, group in _few_sizes(best).groupby(keys, sort=True):
        top = group[group["is_fastest"]].iloc[0]
        others = [_short(c) for c in group["params"] if c != top["params"]]
        tied = ", ".join(others[:NAMED_TIES]) + ",\u00a0…" * (len(others) > NAMED_TIES)
        rows.append(
            {
                "kernel": top["kernel"],
                "dtype": top["dtype"],
                "variant": top["variant"],
                "size": names.size(dict(zip(keys, key, strict=True))),
                "fastest": _short(top["params"]),
                "bandwidth": bare_interval(top),
                "share": _share(top["share_of_ceiling"]),
                "over_copy": "—" if pd.isna(top["over_copy"]) else significant(top["over_copy"]),
                "edge": ", ".join(f"{axis} {_ARROWS[way]}" for axis, way in _ways(top["edge"])),
                "tied": f"{len(group)} of {top['candidates']}",
                "others": tied or "none",
            }
        )
    return rows


def edge_words(edge: str) -> str:
    """What to do about a best cell on the edge, to go on a sentence; empty for one that is not.

    `edge` is that of `best_schema`.
    """
    if not edge:
        return ""
    widen = " and ".join(
        f"{axis} to {'larger' if way == 'up' else 'smaller'} values" for axis, way in _ways(edge)
    )
    return f", at the edge of what was swept: widen {widen}"


_ARROWS = {"up": "↑", "down": "↓"}


def _ways(edge: str) -> list[list[str]]:
    """Axis, and ``up`` or ``down``, of each part of the column `edge` of `best_schema`."""
    return [part.split(" ") for part in edge.split(", ") if part]


def _few_sizes(best: pd.DataFrame) -> pd.DataFrame:
    """The rows of `best`, thinned out.

    Of a kernel swept over many sizes only the fastest of each dtype and cache state is left.
    """
    names = ["kernel", "dtype", "cache_state", "device_name"]
    sizes = best.drop_duplicates(["kernel", "height", "width"]).groupby("kernel").size()
    many = best["kernel"].map(sizes) > MOST_SIZES
    ranked = best[best["is_fastest"]].sort_values("bandwidth_gbs", ascending=False)
    group = [*names, "variant", "height", "width"]
    kept = ranked.drop_duplicates(names)[group]
    return pd.concat([best[~many], best[many].merge(kept, on=group)], ignore_index=True)


def _short(params: str) -> str:
    """``block_x=64, block_y=4`` as ``64×4``; a single parameter as its value; none as a dash."""
    if not params:
        return "—"
    return "×".join(p.split("=")[1] for p in params.split(", "))


def ceiling_table(rows: Sequence[CeilingRow]) -> list[Json]:
    """The highest load and store of each device and cache state, inside the cache and outside."""
    regions = (("inside the cache", 0.0, INSIDE), ("far outside", OUTSIDE, float("inf")))
    devices = sorted({r.device_name for r in rows})
    lines = []
    for device, state, (words, low, high) in itertools.product(devices, CACHE_STATES, regions):
        in_region = [
            r
            for r in rows
            if (r.device_name, r.cache_state) == (device, state)
            and low <= (r.working_set_over_cache or -1.0) <= high
        ]
        if in_region:
            where = f"{words}, {state}" + (f", {device}" if len(devices) > 1 else "")
            load, store = (_peak([r for r in in_region if r.kind == k]) for k in ("load", "store"))
            lines.append({"where": where, "load": load, "store": store})
    return lines


def _peak(rows: Sequence[CeilingRow]) -> str:
    if not rows:
        return "—"
    row = max(rows, key=lambda r: r.bandwidth_gbs)
    at = f"{significant(row.working_set_over_cache or 0.0, 2)} × cache"
    return f"{bare_interval(asdict(row))}, {row.dtype} {row.variant}, {at}"


def fit_rows(fits: Sequence[Json], names: Namer) -> list[Json]:
    """One line for each fitted series; a failed fit shows its reason."""
    rows = []
    for f in fits:
        p = f["parameters"]
        rows.append(
            {
                "series": names.series(f),
                "converged": f["converged"],
                "message": f["message"],
                "start": estimate(p.get("start_s"), seconds),
                "tile": estimate(p.get("tile_s"), seconds),
                "bus": estimate(p.get("bus_s"), seconds),
                "crowding": estimate(p.get("crowding"), number),
                "overlap": estimate(p.get("overlap"), number),
                "points": f"{f['points'] - f['held_out_points']} + {f['held_out_points']}",
                "train": _share(f["train_median_error"]),
                "held": _share(f["held_out_median_error"]),
                "worst": _share(f["held_out_worst_error"], f" at {f['held_out_worst_blocks']}"),
            }
        )
    return rows


def _share(share: float | None, more: str = "") -> str:
    return "—" if share is None or pd.isna(share) else f"{percent(share)}{more}"


def estimate(e: Json | None, show: Any) -> str:
    """A fitted parameter with its interval, or that it has none."""
    if e is None:
        return "—"
    if not e["identified"]:
        return f"{show(e['value'])} (not determined)"
    return f"{show(e['value'])} ({show(e['low'])} to {show(e['high'])})"
