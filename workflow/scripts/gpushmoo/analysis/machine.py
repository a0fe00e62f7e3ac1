"""A device's figures from the cells of micro-benchmarks: latencies, rates, what a start costs.

Kernels: `chase` (dependent loads), `dispatch` (empty blocks), `issue` (independent instructions),
`global_load`, `global_store` and `global_copy`. config/machine.yaml sweeps them. Times are seconds
of a launch, so that no clock has to be known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

import pandas as pd

from ..core.schema import DERIVED, Status
from ..core.space import LAUNCH_KINDS
from ..storage.dataset import read_cells
from ..storage.wholefile import write_json
from .fastest import BYTES_TOUCHED, OUTSIDE
from .lines import Line, half_way, line
from .machine_cells import HOP_S, SEEN, SPAN, TIMES, Found, MachineCells, UndeterminedError

KERNELS = ("chase", "dispatch", "issue", "global_load", "global_store", "global_copy")
# Of verified cells all that is asked here, beside the axes.
COLUMNS = frozenset(
    {
        *("kernel", "height", "width", "cache_state", "device_name", "status", "units", "blocks"),
        *("bytes_read", "bytes_written", "working_set_over_cache", "tiles", "launches_per_sample"),
        *("threads_per_block", "median_s", "median_low_s", "median_high_s"),
    }
)
WARP = 32
# In units of the last cache level. A latency is of the cache up to the first of these; up to the
# second, caches that keep some lines twice still hold all.
QUARTER, WITHIN = 0.25, 0.4
# With at most this share of the multiprocessors at work no limit but their own ports is met.
FEW = 1 / 8
# Fewer sizes have no slope that could be wrong.
FEWEST_SIZES = 3
# Blocks of more warps must be so much slower to start than those of one for a warp's part to show.
LEAST_RISE = 1.05
UNROLLS = (1, 2, 4, 8)

RATE = f"{DERIVED}rate"


@dataclass(frozen=True)
class MachineFact:
    """One figure of a device: its value, the ends of its interval, its unit, how it was found.

    `unit` is ``s``, ``bytes/s``, or ``1`` of a share. The interval covers the spread over cells or
    the 95 % intervals of the cells' medians.
    """

    name: str
    value: float
    low: float
    high: float
    unit: str
    how: str


def machine_facts(cells: pd.DataFrame) -> tuple[tuple[MachineFact, ...], dict[str, str]]:
    """The figures that `cells` of one device determine, and by name why they do not the others."""
    measured = MachineCells(cells[cells["status"] == Status.OK])
    facts: list[MachineFact] = []
    missing: dict[str, str] = {}
    for name, derive in _DERIVED.items():
        try:
            facts.append(MachineFact(name, *derive(measured)))
        except UndeterminedError as err:
            missing[name] = str(err)
    return tuple(facts), missing


def measure_machine(dataset: Path, out: Path) -> None:
    """Write the figures of every device of the data set.

    ``{"devices": [{"device": name, "facts": [...], "missing": {name: sentence}}]}``
    """
    where = {"kernel": list(KERNELS), "status": "ok", "launch_kind": LAUNCH_KINDS[0]}
    cells = read_cells(dataset, where, COLUMNS)
    devices = []
    for device, rows in cells.groupby("device_name", sort=True):
        facts, missing = machine_facts(rows)
        told = [asdict(fact) for fact in facts]
        devices.append({"device": device, "facts": told, "missing": missing})
    write_json(out, {"devices": devices})


def _latency(measured: MachineCells, inside: bool) -> Found:
    """Seconds of a hop of one chain inside of the cache, or far outside."""
    rows, cache = measured.chains(), measured.cache
    rows = rows[rows["chains"] == 1]
    warm = rows["cache_state"] == "warm"
    if inside:
        rows = rows[warm & (rows[SPAN] <= QUARTER * cache)]
        where = "at most a quarter of the cache"
    else:
        # A launch that begins where the last one did finds what that has left.
        seen = rows[SEEN].where(warm, rows[SPAN])
        rows = rows[seen >= OUTSIDE * cache]
        where = f"at least {OUTSIDE:g} caches"
    if rows.empty:
        raise UndeterminedError(f"No single chain of the kernel 'chase' spans {where}.")
    hops = rows[HOP_S]
    how = f"Median time of a hop of one chain that spans {where}, over {len(rows)} cells."
    return float(hops.median()), float(hops.min()), float(hops.max()), "s", how


def _dispatch_lines(measured: MachineCells) -> list[tuple[int, Line]]:
    """Warps of a block, and seconds for each block of a multiprocessor, by width of a block."""
    found = []
    for width, rows in measured.net("dispatch").groupby("block_x"):
        slope = _line(rows["blocks"] / rows["units"], rows)
        if slope is not None:
            found.append((-(-int(width) // WARP), slope))
    if not found:
        raise UndeterminedError("The kernel 'dispatch' was not measured with two grids.")
    return found


def _line(x: pd.Series, rows: pd.DataFrame) -> Line | None:
    return line(x.to_numpy(), *(rows[name].to_numpy() for name in TIMES))


def _dispatch(measured: MachineCells) -> Found:
    warps, slope = _dispatch_lines(measured)[0]
    how = (
        "Slope of the time over the empty blocks that a multiprocessor gets, of at most "
        f"{warps * WARP} threads."
    )
    return slope.slope, slope.low, slope.high, "s", how


def _warp_launch(measured: MachineCells) -> Found:
    """From the two widths between which a warp costs most: below, the block's own cost hides it."""
    lines = _dispatch_lines(measured)
    if len(lines) < 2 or lines[-1][1].slope < LEAST_RISE * lines[0][1].slope:
        raise UndeterminedError("Empty blocks of more warps take no longer to start.")
    steps = [
        (
            (b.slope - a.slope) / (more - fewer),
            (b.low - a.high) / (more - fewer),
            (b.high - a.low) / (more - fewer),
            f"{fewer} to {more}",
        )
        for (fewer, a), (more, b) in pairwise(lines)
        if more > fewer
    ]
    value, low, high, between = max(steps)
    how = f"What empty blocks take longer to start from {between} warps on, for each more."
    return value, max(0.0, low), high, "s", how


def _issue(measured: MachineCells) -> Found:
    rows = measured.net("issue")
    full = rows.groupby("block_x")["blocks"].transform("max")
    found = []
    for width, cells in rows[rows["blocks"] == full].groupby("block_x"):
        slope = _line(cells["tiles"] / cells["units"], cells)
        if slope is not None and slope.slope > 0:
            found.append((slope.slope, slope.low, slope.high, int(width)))
    if not found:
        raise UndeterminedError("The kernel 'issue' was not measured with two numbers of steps.")
    value, low, high, width = min(found)
    how = (
        "Slope of the time over the multiply-adds of a multiprocessor's warps, in full grids of "
        f"blocks of {width} threads."
    )
    return value, low, high, "s", how


def _far(measured: MachineCells, kernel: str) -> pd.DataFrame:
    """The kernel's cells far outside of the cache, fastest first."""
    rows = measured.net(kernel)
    rows = rows[(rows[BYTES_TOUCHED] >= OUTSIDE * measured.cache) & (rows[TIMES[0]] > 0)]
    if rows.empty:
        raise UndeterminedError(f"No cell of '{kernel}' touches at least {OUTSIDE:g} caches.")
    rows = rows.assign(**{RATE: rows[BYTES_TOUCHED] / rows[TIMES[0]]})
    return rows.sort_values(RATE, ascending=False)


def _bus(measured: MachineCells, kernel: str) -> Found:
    cell = _far(measured, kernel).iloc[0]
    value, high, low = (float(cell[BYTES_TOUCHED] / cell[name]) for name in TIMES)
    how = (
        f"The fastest cell of '{kernel}' that touches at least {OUTSIDE:g} caches, without the "
        "launch's start."
    )
    return value, low, high, "bytes/s", how


def _rate_of(slope: Line) -> tuple[float, float, float]:
    """Of seconds for each byte. Raises UndeterminedError where more bytes take no longer."""
    if slope.low <= 0:
        raise UndeterminedError("The cells' intervals are too wide to tell how the time grows.")
    return 1.0 / slope.slope, 1.0 / slope.high, 1.0 / slope.low


def _cached(measured: MachineCells, kernel: str) -> Found:
    """Slope over the sizes of the launch that is fastest at the largest."""
    rows = measured.net_of_known_start(kernel)
    rows = rows[(rows["cache_state"] == "warm") & (rows[BYTES_TOUCHED] <= WITHIN * measured.cache)]
    found: list[tuple[float, float, int, pd.DataFrame]] = []
    for _, cells in rows[rows["blocks"] >= rows["units"]].groupby(["block_x", "unroll", "passes"]):
        if cells[BYTES_TOUCHED].nunique() >= FEWEST_SIZES:
            largest = cells.loc[cells[BYTES_TOUCHED].idxmax()]
            found.append((-largest[BYTES_TOUCHED], largest[TIMES[0]], len(found), cells))
    if not found:
        raise UndeterminedError(
            f"'{kernel}' was not measured at {FEWEST_SIZES} sizes of at most {WITHIN:g} caches."
        )
    cells = min(found)[-1]
    slope = _line(cells[BYTES_TOUCHED], cells)
    assert slope is not None
    how = (
        f"Slope of the time of '{kernel}' over the bytes of {len(cells)} sizes of at most "
        f"{WITHIN:g} caches, by the launch that is fastest at the largest."
    )
    return *_rate_of(slope), "bytes/s", how


def _port(measured: MachineCells, kernel: str) -> Found:
    """Of the launches with few blocks the one whose blocks are fastest."""
    rows = measured.net_of_known_start(kernel)
    few = rows["blocks"] <= (FEW * rows["units"]).clip(lower=1)
    near = (rows["cache_state"] == "warm") & (rows[BYTES_TOUCHED] <= WITHIN * measured.cache)
    found = []
    for _, cells in rows[few & near].groupby(["blocks", "block_x", "unroll"]):
        slope = _line(cells[BYTES_TOUCHED] / cells["blocks"], cells)
        if slope is not None and slope.low > 0:
            found.append((*_rate_of(slope), int(cells["blocks"].iloc[0])))
    if not found:
        raise UndeterminedError(
            f"'{kernel}' was not measured with few blocks of two lengths inside of the cache."
        )
    value, low, high, blocks = max(found)
    how = (
        f"Slope of the time of '{kernel}' over the bytes of a block, where {blocks} blocks have a "
        "multiprocessor each."
    )
    return value, low, high, "bytes/s", how


def _turn(measured: MachineCells, unroll: int) -> Found:
    """How much longer than reading and writing apart the fastest copy takes."""
    rows = _far(measured, "global_copy")
    rows = rows[rows["unroll"] == unroll]
    if rows.empty:
        raise UndeterminedError(
            f"No cell of 'global_copy' with unroll {unroll} touches at least {OUTSIDE:g} caches."
        )
    cell = rows.iloc[0]
    (read, *reads), (write, *writes) = (
        _bus(measured, kernel)[:3] for kernel in ("global_load", "global_store")
    )
    rates = ((read, write), (reads[0], writes[0]), (reads[1], writes[1]))
    value, low, high = (
        float(cell[name] / (cell["bytes_read"] / r + cell["bytes_written"] / w) - 1.0)
        for name, (r, w) in zip(TIMES, rates, strict=True)
    )
    how = (
        f"The fastest copy with unroll {unroll} outside of the cache, over what its bytes take to "
        "be read and to be written at the bus's rates, less 1."
    )
    return value, low, high, "1", how


def _end(cache: int, sizes: pd.Series, values: pd.Series, inside: float, outside: float) -> Found:
    """The half-way place in units of the cache."""
    found = half_way(sizes.to_numpy(), values.to_numpy(), inside, outside)
    if found is None:
        raise UndeterminedError("The curve over the footprint does not cross its middle.")
    value, low, high = (size / cache for size in found)
    return value, low, high, "1", ""


def _end_by_latency(measured: MachineCells) -> Found:
    rows, cache = measured.chains(), measured.cache
    rows = rows[(rows["cache_state"] == "warm") & (rows[SEEN] == rows[SPAN])]
    if rows.empty:
        raise UndeterminedError("No launch of the kernel 'chase' goes through its whole array.")
    rows = rows[rows["chains"] == rows["chains"].max()].sort_values(SPAN)
    near = rows[rows[SPAN] <= QUARTER * cache][HOP_S]
    far = rows[rows[SPAN] >= OUTSIDE * cache][HOP_S]
    if near.empty or far.empty:
        raise UndeterminedError(
            "The chains of the kernel 'chase' that go through their whole array do not span both "
            f"a quarter of the cache and {OUTSIDE:g} caches."
        )
    levels = float(near.median()), float(far.median())
    return *_end(cache, rows[SPAN], rows[HOP_S], *levels)[:-1], (
        "The span of a chain at which a hop takes as long as the mean of inside and outside, over "
        "the stated size of the cache."
    )


def _end_by_rate(measured: MachineCells) -> Found:
    rows, cache = measured.net("global_load"), measured.cache
    rows = rows[(rows["cache_state"] == "warm") & (rows[TIMES[0]] > 0)]
    rows = rows.assign(**{RATE: rows[BYTES_TOUCHED] / rows[TIMES[0]]})
    best = rows.groupby(BYTES_TOUCHED)[RATE].max()
    near, far = best[best.index <= WITHIN * cache], best[best.index >= OUTSIDE * cache]
    if near.empty or far.empty:
        raise UndeterminedError(
            f"'global_load' was not measured both up to {WITHIN:g} caches and from {OUTSIDE:g} on."
        )
    # Short launches are slower for other reasons than the cache.
    curve = best[best.index >= near.idxmax()]
    levels = float(near.max()), float(far.median())
    return *_end(cache, curve.index.to_series(), curve, *levels)[:-1], (
        "The bytes at which the best load is as fast as the mean of inside and outside, over the "
        "stated size of the cache."
    )


_DERIVED: Mapping[str, Callable[[MachineCells], Found]] = {
    "latency_l2_s": partial(_latency, inside=True),
    "latency_dram_s": partial(_latency, inside=False),
    "launch_s": lambda measured: measured.launch,
    "sample_s": lambda measured: measured.sample,
    "dispatch_s": _dispatch,
    "warp_launch_s": _warp_launch,
    "issue_s": _issue,
    "bus_read_bps": partial(_bus, kernel="global_load"),
    "bus_write_bps": partial(_bus, kernel="global_store"),
    "bus_copy_bps": partial(_bus, kernel="global_copy"),
    "l2_read_bps": partial(_cached, kernel="global_load"),
    "l2_write_bps": partial(_cached, kernel="global_store"),
    "l2_copy_bps": partial(_cached, kernel="global_copy"),
    "load_port_bytes_per_s": partial(_port, kernel="global_load"),
    "store_port_bytes_per_s": partial(_port, kernel="global_store"),
    **{f"turn_{unroll}": partial(_turn, unroll=unroll) for unroll in UNROLLS},
    "cache_end_latency_share": _end_by_latency,
    "cache_end_rate_share": _end_by_rate,
}
