"""Write the first page, and the tables of launches and measured peaks, as display strings."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

import pandas as pd

from ..analysis.best import DEFAULT_BLOCKS, Advice, Cost, in_page_order
from ..analysis.fastest import INSIDE, OUTSIDE
from ..analysis.peak import PeakRow
from ..analysis.run_quality import COLUMNS, write_verdict
from ..core.display import mode_words, number_of, percent, percent_range, significant, size_words
from ..core.metric import (
    BANDWIDTH,
    SEVERAL,
    half_width,
    heading_of,
    interval,
    share_of_best,
    speed_text,
)
from ..core.schema import GROUP, Status
from ..core.space import BLOCK_AXES, CONDITIONS
from ..storage.dataset import matching, read_cells
from ..storage.wholefile import read_json

Json = dict[str, Any]

# Tied cells named in the table of best sets. The file summary/best.parquet has all.
NAMED_TIES = 3
ARROWS = {"up": "↑", "down": "↓"}


class Namer:
    """Names a group's size, and its device, cache state and timing mode if a run has several."""

    def __init__(self, cells: pd.DataFrame) -> None:
        """Look at `cells`, all of the run, for columns with several values."""
        self._named = [
            name
            for name in ("cache_state", "timing_mode", "device_name")
            if cells[name].nunique() > 1
        ]

    def size(self, group: Mapping[str, Any]) -> str:
        """Return the size of the problem, and all else by which the group differs."""
        words = {name: str(group[name]) for name in self._named}
        if "timing_mode" in words:
            words["timing_mode"] = mode_words(words["timing_mode"])
        return ", ".join([size_words(int(group["height"]), int(group["width"])), *words.values()])

    def series(self, group: Mapping[str, Any]) -> str:
        """Return kernel, type and variant of a group, and its size as `size` writes it."""
        return f"{group['kernel']}, {group['dtype']}, {group['variant']}, {self.size(group)}"


def best_rows(advice: Sequence[Advice], best: pd.DataFrame, names: Namer) -> list[Json]:
    """Return one line for each kernel and type: the fastest launches of the advice's group.

    `best` are the tied cells of all groups. ``variants`` is the speed of other variants' best
    launches on the same problem, as a share of the fastest.
    """
    heading = heading_of(a.cell for a in advice)
    problem = [name for name in GROUP if name != "variant"]
    rows = []
    for a in advice:
        alike = matching(best, {name: a.group[name] for name in problem})
        group = alike[alike["variant"] == a.group["variant"]]
        top = group[group["is_fastest"]].iloc[0]
        others = group[group["params"] != top["params"]].to_dict("records")
        tied = [launch_words(row, a.axes, named=False) for row in others]
        variants = alike[alike["is_fastest"] & (alike["variant"] != a.group["variant"])]
        shares = top["median_s"] / variants["median_s"]
        rows.append(
            {
                "kernel": top["kernel"],
                "dtype": top["dtype"],
                "variant": top["variant"],
                "size": names.size(a.group),
                "fastest": launch_words(top, a.axes, named=False),
                "bandwidth": interval(top, heading),
                "vs_memcpy": "—" if pd.isna(top["vs_memcpy"]) else significant(top["vs_memcpy"]),
                "tied": f"{len(group)} of {top['candidates']}",
                "tied_with": "; ".join(tied[:NAMED_TIES]) + ";\u00a0…" * (len(tied) > NAMED_TIES),
                "variants": "—" if shares.empty else percent_range(shares),
            }
        )
    return rows


def peak_table(rows: Sequence[PeakRow]) -> list[Json]:
    """Return the highest load and store of each device and condition, in the cache and outside."""
    regions = (("inside the cache", 0.0, INSIDE), ("far outside", OUTSIDE, float("inf")))
    devices = sorted({r.device_name for r in rows})
    several = len({r.timing_mode for r in rows}) > 1
    lines = []
    for device, met, (words, low, high) in itertools.product(devices, CONDITIONS, regions):
        in_region = [
            r
            for r in rows
            if (r.device_name, r.cache_state, r.timing_mode) == (device, *met)
            and low <= (r.working_set_over_cache or -1.0) <= high
        ]
        if in_region:
            where = f"{words}, {met.cache_state}"
            where += f", {mode_words(met.timing_mode)}" if several else ""
            where += f", {device}" if len(devices) > 1 else ""
            load, store = (_peak([r for r in in_region if r.kind == k]) for k in ("load", "store"))
            lines.append({"where": where, "load": load, "store": store})
    return lines


def _peak(rows: Sequence[PeakRow]) -> str:
    if not rows:
        return "—"
    row = max(rows, key=lambda r: r.bandwidth_gbs)
    at = f"{significant(row.working_set_over_cache or 0.0, 2)} × cache"
    return f"{interval(asdict(row), BANDWIDTH.unit)}, {row.dtype} {row.variant}, {at}"


# A line over fewer values shows nothing.
_MIN_POINTS = 3
# Number of color steps of a small map.
_SHADES = 255


def axes_words(axes: Sequence[str]) -> str:
    """Return the names of the values of `launch_words`: ``block_x × block_y, unroll``."""
    sides = [axis for axis in BLOCK_AXES if axis in axes]
    return ", ".join([" × ".join(sides)] * bool(sides) + [a for a in axes if a not in sides])


def launch_words(cell: Mapping[str, Any], axes: Sequence[str], named: bool = True) -> str:
    """Return ``64 × 4`` for a block, ``256, unroll 4`` with others if `named`, or a dash."""
    sides = [axis for axis in BLOCK_AXES if axis in axes]
    words = [" × ".join(str(int(cell[axis])) for axis in sides)] if sides else []
    words += [f"{a} {int(cell[a])}" if named else f"{cell[a]:.0f}" for a in axes if a not in sides]
    return ", ".join(words) or "—"


def thumbnail(a: Advice, cells: pd.DataFrame) -> dict[str, Any] | None:
    """Draw a small picture of the speed over the launch parameters of the advice's group.

    A ``map`` over two axes has rows of shades from 0 to 255, 255 for the fastest launch, and None
    without a measurement. A ``line`` over one axis has points from 0 to 1. Each point is the
    fastest cell over the other axes. `cells` are those of the group.
    """
    ok = cells[cells["status"] == Status.OK]
    counts = {axis: ok[axis].nunique() for axis in a.axes}
    sides = [axis for axis in BLOCK_AXES if counts.get(axis, 0) > 1]
    others = sorted((x for x in counts if x not in sides), key=lambda x: -counts[x])
    chosen = [axis for axis in (*sides, *others) if counts[axis] > 1][:2]
    ok = ok.assign(share=share_of_best(ok))
    if len(chosen) == 2 and min(counts[axis] for axis in chosen) >= _MIN_POINTS:
        x, y = chosen
        grid = ok.pivot_table(values="share", index=y, columns=x, aggfunc="max")
        rows = grid.sort_index(ascending=False).to_numpy() * _SHADES
        shades = [[None if pd.isna(v) else round(v) for v in row] for row in rows]
        return {"kind": "map", "rows": shades}
    if chosen and counts[chosen[0]] >= _MIN_POINTS:
        best = ok.groupby(chosen[0])["share"].max().sort_index()
        places = best.index.to_numpy(dtype=float)
        points = zip((places - places[0]) / (places[-1] - places[0]), best, strict=True)
        return {"kind": "line", "points": [[round(x, 4), round(y, 4)] for x, y in points]}
    return None


# The first page

# A cost below this does not justify another launch.
GOOD_ENOUGH = 0.02
# Rows of the first page that are first and large.
MAX_LARGE = 5
# A bandwidth is not shown large if the uncertainty for another run exceeds this share.
_WIDEST = 0.5
_PLACES = {"cache": "cache", "memory": "memory", "between": "partly cache", "unknown": "—"}


def first_page(advice: Sequence[Advice], cells: pd.DataFrame, is_cpu: bool) -> Json:
    """Return the recommended launches, a block of rows for each kernel, as display strings.

    The first MAX_LARGE rows of `in_page_order` have a ``rank``, their order, and are shown large.
    ``first`` is the group of the first one. Blocks with data in memory precede those in cache.
    `is_cpu` is True if the device is a CPU. The template leaves out columns that are empty in all
    rows.
    """
    blocks: dict[str, Json] = {}
    ordered = in_page_order(advice)
    several_devices = len({a.group["device_name"] for a in advice}) > 1
    several_kinds = len({a.group["timing_mode"] for a in advice}) > 1
    heading = heading_of(a.cell for a in advice)
    ranks = {id(a): rank for rank, a in enumerate(ordered[:MAX_LARGE])}
    for a in sorted(advice, key=lambda a: not a.exceeds_cache):
        name = str(a.group["kernel"])
        name += f", {mode_words(a.group['timing_mode'])}" if several_kinds else ""
        name += f", {a.group['device_name']}" if several_devices else ""
        rank = ranks.get(id(a))
        small = None if rank is None else thumbnail(a, matching(cells, a.group))
        block = blocks.setdefault(name, {"name": name, "axes": axes_words(a.axes), "rows": []})
        block["rows"].append(_row(a, heading) | {"rank": rank, "thumbnail": small})
    used = {name for a in advice for name in a.defaults}
    return {
        "first": _plain_group(ordered[0].group) if ordered else None,
        "kernels": list(blocks.values()),
        "heading": heading,
        "defaults": [name for name in DEFAULT_BLOCKS if name in used],
        "has_peak": any(a.of_peak is not None for a in advice),
        "above_peak": above_peak(advice, is_cpu),
        "has_cached": any(a.in_cache is not None for a in advice),
    }


def _plain_group(group: Mapping[str, Any]) -> Json:
    sides = {side: int(group[side]) for side in ("height", "width")}
    return {name: str(value) for name, value in group.items()} | sides


def above_peak(advice: Sequence[Advice], is_cpu: bool) -> str:
    """Explain why some launches of a GPU have no share of a known peak; "" if all have one."""
    above = [a for a in advice if a.of_peak is not None and a.of_peak.share is None]
    if not above:
        return ""
    why = "a CPU's caches do" if is_cpu else "a cache does"
    sentence = (
        f"for {len(above)} of {len(advice)}: faster than loading and storing one after the other, "
        f"which is not a limit there ({why} both at once)."
    )
    doubtful = 0 if is_cpu else sum(a.place == "memory" for a in above)
    if doubtful:
        sentence += f" In memory ({doubtful} of these) that explains nothing: measure again."
    return sentence


def verdict(
    report: str,
    facts: Path,
    dataset: Path,
    strict: bool,
    sweeps: Mapping[str, Mapping[str, Any]],
    out: Path,
    terminal: TextIO,
) -> None:
    """Print the recommended launches and, also to `out`, the failed cells (`write_verdict`)."""
    lines = closing_lines(read_json(facts), str(report))
    print(*lines, sep="\n", file=terminal, flush=True)
    write_verdict(read_cells(dataset, columns=COLUMNS), out, strict, sweeps, terminal, lines)


def closing_lines(facts: Json, report: str) -> list[str]:
    """Return the last lines of a run in a terminal: the path of the `report`, and its launches."""
    page = facts["first_page"]
    unit = "" if page["heading"] == SEVERAL else f" {page['heading']}"
    rows = [
        (
            kernel["name"],
            row["dtype"],
            row["variant"],
            row["use"] + f" ({kernel['axes']})" * bool(kernel["axes"] and not row["undecided"]),
            f"{row['bandwidth']}{unit} ± {row['half_width']}",
            f"{row['tied']} tied" + (": no difference shown" if row["undecided"] else ""),
        )
        for kernel in page["kernels"]
        for row in kernel["rows"]
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    alone = " (another run may be outside ±)" if facts["method"]["repeats"] == 1 else ""
    listed = f"; recommended launches{alone}:" if rows else "."
    head = f"gpushmoo: the report is {report}{listed}"
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    named = {row[0].split(", ")[0] for row in rows}
    rest = [kernel["name"] for kernel in facts["kernels"] if kernel["name"] not in named]
    if rows and rest:
        lines.append(f"and {number_of(len(rest), 'more kernel')} in the report: {', '.join(rest)}")
    last = "gpushmoo: the machine was unsteady; do not compare GB/s between kernels or runs."
    return [head, *(f"  {line}" for line in lines), *([last] if facts["unsteady"] else [])]


def _row(a: Advice, heading: str) -> Json:
    cell = a.cell
    boundary = [part.split(" ") for part in a.boundary.split(", ") if part and not a.undecided]
    in_cache = cost_cell(a.in_cache.cost if a.in_cache else None) | {"instead": ""}
    if a.in_cache and in_cache["bad"]:
        in_cache["instead"] = launch_words(a.in_cache.best, a.axes, named=False)
    use = launch_words(cell, a.axes, named=False)
    return {
        "dtype": a.group["dtype"],
        "use": f"any of the {a.candidates}" if a.undecided else use,
        "undecided": a.undecided,
        "boundary": " ".join(
            f"{axis.removeprefix('block_')}\u00a0{ARROWS[way]}" for axis, way in boundary
        ),
        "variant": a.group["variant"],
        "size": size_words(int(cell["height"]), int(cell["width"])),
        "place": _PLACES[a.place],
        "bandwidth": speed_text(cell, heading),
        "half_width": percent(half_width(cell)),
        "is_known": bool(half_width(cell) <= _WIDEST),
        "exceeds_cache": a.exceeds_cache,
        "share": "—" if a.of_peak is None else a.of_peak.text,
        "tied": f"{a.tied} of {a.candidates}",
        "defaults": {name: cost_cell(a.defaults.get(name)) for name in DEFAULT_BLOCKS},
        "worst": f"{significant(a.worst)} ×" if a.candidates > 1 else "—",
        "in_cache": in_cache,
    }


def cost_cell(cost: Cost | None) -> Json:
    """Return `Cost.text` and ``± 0.2 %``; a dash if the launch was not swept.

    A cost is ``bad``, a reason to choose another launch, only if its size is known.
    """
    if cost is None or not cost.known:
        return {"text": "—" if cost is None else cost.text, "half": "", "bad": False}
    return {
        "text": cost.text,
        "half": f"±\u00a0{percent((cost.high - cost.low) / 2, 1)}",
        "bad": cost.value >= GOOD_ENOUGH,
    }
