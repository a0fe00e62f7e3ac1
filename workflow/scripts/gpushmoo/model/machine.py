"""Derive a device's figures from micro-benchmarks: latencies, rates, and the costs of a start.

Kernels: `chase` (dependent loads), `dispatch` (empty blocks), `issue` (independent instructions),
`global_load`, `global_store`, `global_copy`, and `store_columns` (stores to parts of sectors).
config/machine.yaml sweeps them. All figures are derived from seconds of launches, so the clock need
not be known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd

from ..analysis.fastest import BYTES_TOUCHED, OUTSIDE, bytes_touched, cache_bytes
from ..core.errors import NotDeterminedError
from ..core.schema import DERIVED, Status
from ..core.space import TIMING_MODES
from ..storage.dataset import read_cells
from ..storage.store import NORMAL_HALF
from ..storage.wholefile import write_json
from .launches import OPEN_LINES, SECTOR_BYTES, WARP

KERNELS = (
    "chase",
    "dispatch",
    "issue",
    "global_load",
    "global_store",
    "global_copy",
    "store_columns",
)
# Columns of verified cells that this module reads, besides the axes.
COLUMNS = frozenset(
    {
        "kernel",
        "dtype",
        "height",
        "width",
        "cache_state",
        "device_name",
        "status",
        "multiprocessors",
        "blocks",
        "bytes_read",
        "bytes_written",
        "working_set_over_cache",
        "tiles",
        "launches_per_sample",
        "threads_per_block",
        "resident_blocks",
        "median_s",
        "median_low_s",
        "median_high_s",
        "overhead_s",
        "overhead_error_s",
    }
)
# In units of the last cache level. A latency up to the first counts as the cache's. Up to the
# second, even a cache that keeps some lines twice contains all data.
QUARTER, WITHIN = 0.25, 0.4
# If at most this share of the multiprocessors works, only their own ports limit them.
FEW = 1 / 8
# With fewer sizes, a slope would fit by chance.
MIN_SIZES = 3
# Blocks of more warps must start slower than blocks of one by this factor, to show the part of a
# warp.
MIN_RISE = 1.05
UNROLLS = (1, 2, 4, 8)

RATE = f"{DERIVED}rate"
# Constants of the kernel `chase`: bytes of an array element, and of a step of its chain.
WORD, PLACE = 4, 128
MEDIANS = ("median_s", "median_low_s", "median_high_s")
# Columns that `MachineCells` adds: seconds of a launch beyond its start, with their interval; bytes
# that a chain spans, and bytes that a launch visits; seconds of a hop.
TIMES = tuple(f"{DERIVED}{name}" for name in ("net_s", "net_low_s", "net_high_s"))
SPAN, SEEN, HOP_S = (f"{DERIVED}{name}" for name in ("span", "seen", "hop_s"))

_Some = TypeVar("_Some", bound=Sized)
Values = Sequence[float] | npt.NDArray[np.float64]
# Value, low, high, unit, and the method in words.
Found = tuple[float, float, float, str, str]


@dataclass(frozen=True)
class MachineFact:
    """One figure of a device: its value, the ends of its interval, its unit, and its method.

    `unit` is ``s``, ``bytes/s``, or ``1`` for a share. The interval covers the spread over cells or
    the 95 % intervals of the cells' medians.
    """

    name: str
    value: float
    low: float
    high: float
    unit: str
    how: str


def machine_facts(cells: pd.DataFrame) -> tuple[tuple[MachineFact, ...], dict[str, str]]:
    """Return the figures that `cells` of one device determine, and the reasons for missing ones."""
    measured = MachineCells(cells[cells["status"] == Status.OK])
    facts: list[MachineFact] = []
    missing: dict[str, str] = {}
    for name, derive in _DERIVED.items():
        try:
            facts.append(MachineFact(name, *derive(measured)))
        except NotDeterminedError as err:
            missing[name] = str(err)
    return tuple(facts), missing


def measure_machine(dataset: Path, out: Path) -> None:
    """Write ``{"devices": [{"device": name, "facts": [...], "missing": {name: sentence}}]}``."""
    where = {"kernel": list(KERNELS), "status": "ok", "timing_mode": TIMING_MODES[0]}
    cells = read_cells(dataset, where, COLUMNS)
    devices = []
    for device, rows in cells.groupby("device_name", sort=True):
        facts, missing = machine_facts(rows)
        told = [asdict(fact) for fact in facts]
        devices.append({"device": device, "facts": told, "missing": missing})
    write_json(out, {"devices": devices})


def _latency(measured: MachineCells, inside: bool) -> Found:
    """Return the seconds of a hop of one chain inside the cache, or far outside."""
    rows = measured.chains()
    cache = measured.cache
    rows = rows[rows["chains"] == 1]
    warm = rows["cache_state"] == "warm"
    if inside:
        rows = rows[warm & (rows[SPAN] <= QUARTER * cache)]
        where = "at most a quarter of the cache"
    else:
        # A launch that starts at the place of the last one finds the data which that one left.
        seen = rows[SEEN].where(warm, rows[SPAN])
        rows = rows[seen >= OUTSIDE * cache]
        where = f"at least {OUTSIDE:g} caches"
    hops = _needed(rows, f"No single chain of the kernel 'chase' spans {where}.")[HOP_S]
    how = f"Median time of a hop of one chain that spans {where}, over {len(rows)} cells."
    return float(hops.median()), float(hops.min()), float(hops.max()), "s", how


def _dispatch_lines(measured: MachineCells) -> list[tuple[int, Line]]:
    """Return warps per block, and seconds per block of a multiprocessor, by width of a block."""
    found = []
    for width, rows in measured.net("dispatch").groupby("block_x"):
        slope = _line(rows["blocks"] / rows["multiprocessors"], rows)
        if slope is not None:
            found.append((-(-int(width) // WARP), slope))
    return _needed(found, "The kernel 'dispatch' was not measured with two grids.")


def _line(x: pd.Series, rows: pd.DataFrame) -> Line | None:
    return line(x.to_numpy(), *(rows[name].to_numpy() for name in TIMES))


def _dispatch(measured: MachineCells) -> Found:
    warps, slope = _dispatch_lines(measured)[0]
    how = (
        "Slope of the time over the empty blocks that a multiprocessor gets, of at most "
        f"{warps * WARP} threads."
    )
    return *slope, "s", how


def _warp_launch(measured: MachineCells) -> Found:
    """Return the cost of a warp between the two widths at which it is highest.

    Below these widths the cost of the block hides it.
    """
    lines = _dispatch_lines(measured)
    if len(lines) < 2 or lines[-1][1].slope < MIN_RISE * lines[0][1].slope:
        raise NotDeterminedError("Empty blocks of more warps take no longer to start.")
    rises = [
        (
            (b.slope - a.slope) / (more - fewer),
            (b.low - a.high) / (more - fewer),
            (b.high - a.low) / (more - fewer),
            f"{fewer} to {more}",
        )
        for (fewer, a), (more, b) in pairwise(lines)
        if more > fewer
    ]
    value, low, high, between = max(rises)
    how = f"What empty blocks take longer to start from {between} warps on, for each more."
    return value, max(0.0, low), high, "s", how


def _issue(measured: MachineCells) -> Found:
    rows = measured.net("issue")
    full = rows.groupby("block_x")["blocks"].transform("max")
    found = []
    for width, cells in rows[rows["blocks"] == full].groupby("block_x"):
        slope = _line(cells["tiles"] / cells["multiprocessors"], cells)
        if slope is not None and slope.slope > 0:
            found.append((*slope, int(width)))
    why = "The kernel 'issue' was not measured with two numbers of steps."
    value, low, high, width = min(_needed(found, why))
    how = (
        "Slope of the time over the multiply-adds of a multiprocessor's warps, in full grids of "
        f"blocks of {width} threads."
    )
    return value, low, high, "s", how


def _far(measured: MachineCells, kernel: str) -> pd.DataFrame:
    """Return the kernel's cells far outside the cache, fastest first."""
    rows = measured.net(kernel)
    rows = rows[(rows[BYTES_TOUCHED] >= OUTSIDE * measured.cache) & (rows[TIMES[0]] > 0)]
    rows = _needed(rows, f"No cell of '{kernel}' touches at least {OUTSIDE:g} caches.")
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
    """Invert a slope in seconds per byte; raise NotDeterminedError if more bytes take no longer."""
    if slope.low <= 0:
        raise NotDeterminedError("The cells' intervals are too wide to show how the time grows.")
    return 1.0 / slope.slope, 1.0 / slope.high, 1.0 / slope.low


def _cached(measured: MachineCells, kernel: str) -> Found:
    """Return the slope over the sizes of the launch that is fastest at the largest."""
    rows = measured.net(kernel, start_known=True)
    rows = rows[(rows["cache_state"] == "warm") & (rows[BYTES_TOUCHED] <= WITHIN * measured.cache)]
    found: list[tuple[float, float, int, pd.DataFrame]] = []
    for _, cells in rows[rows["blocks"] >= rows["multiprocessors"]].groupby(
        ["block_x", "unroll", "passes"]
    ):
        if cells[BYTES_TOUCHED].nunique() >= MIN_SIZES:
            largest = cells.loc[cells[BYTES_TOUCHED].idxmax()]
            found.append((-largest[BYTES_TOUCHED], largest[TIMES[0]], len(found), cells))
    why = f"'{kernel}' was not measured at {MIN_SIZES} sizes of at most {WITHIN:g} caches."
    cells = min(_needed(found, why))[-1]
    slope = _line(cells[BYTES_TOUCHED], cells)
    assert slope is not None
    how = (
        f"Slope of the time of '{kernel}' over the bytes of {len(cells)} sizes of at most "
        f"{WITHIN:g} caches, by the launch that is fastest at the largest."
    )
    return *_rate_of(slope), "bytes/s", how


def _port(measured: MachineCells, kernel: str) -> Found:
    """Return the rate of the fastest blocks among launches with few blocks."""
    rows = measured.net(kernel, start_known=True)
    few = rows["blocks"] <= (FEW * rows["multiprocessors"]).clip(lower=1)
    near = (rows["cache_state"] == "warm") & (rows[BYTES_TOUCHED] <= WITHIN * measured.cache)
    found = []
    for _, cells in rows[few & near].groupby(["blocks", "block_x", "unroll"]):
        slope = _line(cells[BYTES_TOUCHED] / cells["blocks"], cells)
        if slope is not None and slope.low > 0:
            found.append((*_rate_of(slope), int(cells["blocks"].iloc[0])))
    why = f"'{kernel}' was not measured with few blocks of two lengths inside of the cache."
    value, low, high, blocks = max(_needed(found, why))
    how = (
        f"Slope of the time of '{kernel}' over the bytes of a block, where {blocks} blocks have a "
        "multiprocessor each."
    )
    return value, low, high, "bytes/s", how


def _open_sector(measured: MachineCells) -> Found:
    """Return how much longer a sector takes for each doubling of the lines that are stored to."""
    rows = measured.net("store_columns")
    far = rows[BYTES_TOUCHED] >= OUTSIDE * measured.cache
    # Each thread of a warp stores to another line.
    rows = rows[far & (rows["block_x"] >= WARP) & (rows["passes"] > 1)]
    slopes = []
    for _, cells in rows[rows["passes"] == rows["passes"].max()].groupby("dtype"):
        lines = np.log2(1.0 + cells["resident_blocks"] * cells["block_x"] / OPEN_LINES)
        of_multiprocessor = cells["bytes_written"] / SECTOR_BYTES / cells["multiprocessors"]
        slope = line(lines.to_numpy(), *((cells[t] / of_multiprocessor).to_numpy() for t in TIMES))
        if slope is not None and slope.low > 0:
            slopes.append(slope)
    why = f"No cells of 'store_columns' with several passes touch at least {OUTSIDE:g} caches."
    _needed(slopes, why)
    how = (
        "Slope of the time of 'store_columns' for each sector of a multiprocessor over the binary "
        f"logarithm of 1 + lines / {OPEN_LINES:g}, mean of the element types."
    )
    value = float(np.mean([slope.slope for slope in slopes]))
    return value, min(s.low for s in slopes), max(s.high for s in slopes), "s", how


def _turn(measured: MachineCells, unroll: int) -> Found:
    """Return how much longer the fastest copy takes than reading and writing separately."""
    rows = _far(measured, "global_copy")
    why = f"No cell of 'global_copy' with unroll {unroll} touches at least {OUTSIDE:g} caches."
    cell = _needed(rows[rows["unroll"] == unroll], why).iloc[0]
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


def _end(
    cache: int, sizes: pd.Series, values: pd.Series, levels: tuple[float, float], how: str
) -> Found:
    """Return the size half way between `levels` inside and outside, in units of the cache."""
    found = half_way(sizes.to_numpy(), values.to_numpy(), *levels) or ()
    why = "The curve over the footprint does not cross its middle."
    value, low, high = (size / cache for size in _needed(found, why))
    return value, low, high, "1", how


def _end_by_latency(measured: MachineCells) -> Found:
    rows = measured.chains()
    cache = measured.cache
    rows = rows[(rows["cache_state"] == "warm") & (rows[SEEN] == rows[SPAN])]
    rows = _needed(rows, "No launch of the kernel 'chase' goes through its whole array.")
    rows = rows[rows["chains"] == rows["chains"].max()].sort_values(SPAN)
    near = rows[rows[SPAN] <= QUARTER * cache][HOP_S]
    far = rows[rows[SPAN] >= OUTSIDE * cache][HOP_S]
    if near.empty or far.empty:
        raise NotDeterminedError(
            "The chains of the kernel 'chase' that go through their whole array do not span both "
            f"a quarter of the cache and {OUTSIDE:g} caches."
        )
    levels = float(near.median()), float(far.median())
    how = (
        "The span of a chain at which a hop takes as long as the mean of inside and outside, over "
        "the stated size of the cache."
    )
    return _end(cache, rows[SPAN], rows[HOP_S], levels, how)


def _end_by_rate(measured: MachineCells) -> Found:
    rows = measured.net("global_load")
    cache = measured.cache
    rows = rows[(rows["cache_state"] == "warm") & (rows[TIMES[0]] > 0)]
    rows = rows.assign(**{RATE: rows[BYTES_TOUCHED] / rows[TIMES[0]]})
    best = rows.groupby(BYTES_TOUCHED)[RATE].max()
    near, far = best[best.index <= WITHIN * cache], best[best.index >= OUTSIDE * cache]
    if near.empty or far.empty:
        raise NotDeterminedError(
            f"'global_load' was not measured both up to {WITHIN:g} caches and from {OUTSIDE:g} on."
        )
    # Short launches are slower for reasons other than the cache.
    curve = best[best.index >= near.idxmax()]
    levels = float(near.max()), float(far.median())
    how = (
        "The bytes at which the best load is as fast as the mean of inside and outside, over the "
        "stated size of the cache."
    )
    return _end(cache, curve.index.to_series(), curve, levels, how)


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
    "open_sector_s": _open_sector,
    **{f"turn_{unroll}": partial(_turn, unroll=unroll) for unroll in UNROLLS},
    "cache_end_latency_share": _end_by_latency,
    "cache_end_rate_share": _end_by_rate,
}


# Cells without the cost of starting a launch


def _in_a_launch(rows: pd.DataFrame) -> pd.Series:
    """Return how much of a sample's cost is in the time of a launch; 0 if it was subtracted.

    If the cache is flushed, every launch is timed separately.
    """
    held = 1.0 / rows["launches_per_sample"].where(rows["cache_state"] == "warm", 1)
    return held.where(rows["overhead_s"].isna(), 0.0)


def _needed(found: _Some, why: str) -> _Some:
    """Return `found`, or raise NotDeterminedError with the sentence `why` if it is None."""
    if not len(found):
        raise NotDeterminedError(why)
    return found


class MachineCells:
    """The verified cells by kernel, and the time of a launch beyond its start."""

    def __init__(self, cells: pd.DataFrame) -> None:
        self._cells = cells.assign(**{BYTES_TOUCHED: bytes_touched(cells)})

    def of(self, kernel: str) -> pd.DataFrame:
        """Return the kernel's cells; raise NotDeterminedError if it has no verified cell."""
        rows = self._cells[self._cells["kernel"] == kernel]
        return _needed(rows, f"There is no verified cell of the kernel '{kernel}'.")

    @cached_property
    def cache(self) -> int:
        """Bytes of the last cache level; raises NotDeterminedError if they are unknown."""
        cache = cache_bytes(self._cells)
        if cache is None:
            raise NotDeterminedError("The device does not report the size of its cache.")
        return cache

    @cached_property
    def sample(self) -> Found:
        """Seconds of a sample besides its launches.

        They were measured, or follow from equal launches in shorter samples.
        """
        rows = self.of("dispatch")
        if (known := rows[rows["overhead_s"].notna()]).size:
            value = float(known["overhead_s"].median())
            half = NORMAL_HALF * float(known["overhead_error_s"].median())
            how = "Samples of empty blocks with two numbers of launches, in each group."
            return value, max(0.0, value - half), value + half, "s", how
        names = ["grid", "block_x"]
        x = 1.0 / rows["launches_per_sample"]
        # A long launch determines a short time less precisely.
        weight = rows["median_s"] ** -2.0
        table = rows[names].assign(x=x, w=weight, wx=weight * x)
        sums = table.groupby(names)[["w", "wx"]].transform("sum")
        part = weight * (x - sums["wx"] / sums["w"])
        spread = float((part * x).sum())
        if spread <= 1e-12 * float((weight * x * x).sum()):
            raise NotDeterminedError(
                "No launch of the kernel 'dispatch' was sampled with two numbers of launches."
            )
        found = sorted(float((part * rows[name]).sum()) / spread for name in MEDIANS)
        low, value, high = (max(0.0, s) for s in found)
        how = "Equal launches of empty blocks, alone and with others in a sample."
        return value, low, high, "s", how

    @cached_property
    def launch(self) -> Found:
        """Seconds of a launch that does almost nothing."""
        rows = self.of("dispatch").sort_values(
            ["grid", "block_x", "launches_per_sample"], ascending=[True, True, False]
        )
        cell = rows.iloc[0]
        once = self._known_s("sample") * float(_in_a_launch(rows).iloc[0])
        value, low, high = (float(cell[name]) - once for name in MEDIANS)
        if low <= 0:
            raise NotDeterminedError("The shortest launch takes no longer than a sample costs.")
        how = (
            f"A launch of {int(cell['blocks'])} x {int(cell['threads_per_block'])} threads among "
            f"{int(cell['launches_per_sample'])}, without its part of the sample's cost."
        )
        return value, low, high, "s", how

    def _known_s(self, figure: str) -> float:
        """Return the seconds of ``sample`` or ``launch``; 0 if the cells do not determine them."""
        try:
            return float(getattr(self, figure)[0])
        except NotDeterminedError:
            return 0.0

    def net(self, kernel: str, start_known: bool = False) -> pd.DataFrame:
        """Return the kernel's cells with the time of a launch beyond its start, as columns TIMES.

        If the cells do not determine the seconds of a start, 0 is used. Launches may be so short
        that the start would affect a rate: with `start_known`, an unknown start raises
        NotDeterminedError.
        """
        launch_s = self.launch[0] if start_known else self._known_s("launch")
        rows = self.of(kernel)
        start = launch_s + self._known_s("sample") * _in_a_launch(rows)
        named = zip(TIMES, MEDIANS, strict=True)
        return rows.assign(**{net: rows[whole] - start for net, whole in named})

    def chains(self) -> pd.DataFrame:
        """Return the cells of `chase`, with the bytes that a chain spans and seconds of a hop."""
        rows = self.net("chase")
        whole = rows["height"] * rows["width"] * WORD
        seen = (rows["chains"] * rows["hops"] * PLACE).clip(upper=whole)
        hop = rows[TIMES[0]] / rows["hops"]
        return rows.assign(**{SPAN: whole, SEEN: seen, HOP_S: hop})


# Straight lines, and the point at which a curve is between two levels


class Line(NamedTuple):
    """Slope of a least-squares line, and the ends of its interval."""

    slope: float
    low: float
    high: float


def line(x: Values, y: Values, y_low: Values, y_high: Values) -> Line | None:
    """Fit a line through points with intervals in `y`; None if all `x` are equal.

    The interval of the slope contains the slopes that the ends of the intervals allow, and twice
    the standard error from the points' distances to the line.

    Parameters
    ----------
    x, y
        Points, shape (points,).
    y_low, y_high
        Ends of the intervals of `y`.
    """
    xs, ys = np.asarray(x, np.float64), np.asarray(y, np.float64)
    ends = [np.asarray(end, np.float64) for end in (y_low, y_high)]
    if len(np.unique(xs)) < 2:
        return None
    away = xs - xs.mean()
    weights = away / (away @ away)
    slope = float(weights @ ys)
    rises = weights > 0
    least = float(weights @ np.where(rises, *ends))
    most = float(weights @ np.where(rises, *ends[::-1]))
    if len(xs) > 2:
        rest = ys - ys.mean() - slope * away
        error = 2.0 * math.sqrt(float(rest @ rest) / (len(xs) - 2) / float(away @ away))
        least, most = min(least, slope - error), max(most, slope + error)
    return Line(slope, least, most)


def half_way(
    x: Values, y: Values, inside: float, outside: float
) -> tuple[float, float, float] | None:
    """Return the `x` at which `y` is half way from `inside` to `outside`, and an interval of it.

    The curve is a straight line over the logarithm of `x`, between the last point of the inner half
    and the next one. If the curve crosses several times, the interval is from before the first
    crossing to after the last. The result is None if it does not cross. `x` increases.
    """
    share = (np.asarray(y, np.float64) - inside) / (outside - inside)
    inner = share < 0.5
    if not inner[0] or inner[-1]:
        return None
    last = int(np.flatnonzero(inner)[-1])
    first = int(np.flatnonzero(~inner)[0])
    part = (0.5 - share[last]) / (share[last + 1] - share[last])
    logs = np.log(np.asarray(x, np.float64))
    place = math.exp(float(logs[last] + part * (logs[last + 1] - logs[last])))
    return place, float(x[first - 1]), float(x[last + 1])
