"""A device's figures from the cells of micro-benchmarks: latencies, rates, what a start costs.

Kernels: `chase` (dependent loads), `dispatch` (empty blocks), `issue` (independent instructions),
`global_load`, `global_store` and `global_copy`. config/machine.yaml sweeps them. Times are seconds
of a launch, so that no clock has to be known.
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
from ..core.schema import DERIVED, Status
from ..core.space import TIMING_MODES
from ..storage.dataset import read_cells
from ..storage.store import NORMAL_HALF
from ..storage.wholefile import write_json
from .launches import WARP

KERNELS = ("chase", "dispatch", "issue", "global_load", "global_store", "global_copy")
# The columns of verified cells that are read here, besides the axes.
COLUMNS = frozenset(
    {
        *("kernel", "height", "width", "cache_state", "device_name", "status", "multiprocessors"),
        *("blocks", "bytes_read", "bytes_written", "working_set_over_cache", "tiles"),
        *("launches_per_sample", "threads_per_block", "median_s", "median_low_s", "median_high_s"),
        *("overhead_s", "overhead_error_s"),
    }
)
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
# As in the kernel `chase`: bytes of its array's elements, and of a place of its chain.
WORD, PLACE = 4, 128
MEDIANS = ("median_s", "median_low_s", "median_high_s")
# What `MachineCells` makes: seconds of a launch beyond its start, with their interval; bytes that a
# chain spans, and that a launch goes through of them; seconds of a hop.
TIMES = tuple(f"{DERIVED}{name}" for name in ("net_s", "net_low_s", "net_high_s"))
SPAN, SEEN, HOP_S = (f"{DERIVED}{name}" for name in ("span", "seen", "hop_s"))

_Some = TypeVar("_Some", bound=Sized)
Values = Sequence[float] | npt.NDArray[np.float64]
# Value, low, high, unit, and how they were found.
Found = tuple[float, float, float, str, str]


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
    """Seconds of a hop of one chain inside of the cache, or far outside."""
    rows = measured.chains()
    cache = measured.cache
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
    hops = _needed(rows, f"No single chain of the kernel 'chase' spans {where}.")[HOP_S]
    how = f"Median time of a hop of one chain that spans {where}, over {len(rows)} cells."
    return float(hops.median()), float(hops.min()), float(hops.max()), "s", how


def _dispatch_lines(measured: MachineCells) -> list[tuple[int, Line]]:
    """Warps of a block, and seconds for each block of a multiprocessor, by width of a block."""
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
    """The kernel's cells far outside of the cache, fastest first."""
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
    """Of seconds for each byte. Raises UndeterminedError where more bytes take no longer."""
    if slope.low <= 0:
        raise UndeterminedError("The cells' intervals are too wide to show how the time grows.")
    return 1.0 / slope.slope, 1.0 / slope.high, 1.0 / slope.low


def _cached(measured: MachineCells, kernel: str) -> Found:
    """Slope over the sizes of the launch that is fastest at the largest."""
    rows = measured.net(kernel, start_known=True)
    rows = rows[(rows["cache_state"] == "warm") & (rows[BYTES_TOUCHED] <= WITHIN * measured.cache)]
    found: list[tuple[float, float, int, pd.DataFrame]] = []
    for _, cells in rows[rows["blocks"] >= rows["multiprocessors"]].groupby(
        ["block_x", "unroll", "passes"]
    ):
        if cells[BYTES_TOUCHED].nunique() >= FEWEST_SIZES:
            largest = cells.loc[cells[BYTES_TOUCHED].idxmax()]
            found.append((-largest[BYTES_TOUCHED], largest[TIMES[0]], len(found), cells))
    why = f"'{kernel}' was not measured at {FEWEST_SIZES} sizes of at most {WITHIN:g} caches."
    cells = min(_needed(found, why))[-1]
    slope = _line(cells[BYTES_TOUCHED], cells)
    assert slope is not None
    how = (
        f"Slope of the time of '{kernel}' over the bytes of {len(cells)} sizes of at most "
        f"{WITHIN:g} caches, by the launch that is fastest at the largest."
    )
    return *_rate_of(slope), "bytes/s", how


def _port(measured: MachineCells, kernel: str) -> Found:
    """Of the launches with few blocks the one whose blocks are fastest."""
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


def _turn(measured: MachineCells, unroll: int) -> Found:
    """How much longer than reading and writing apart the fastest copy takes."""
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
    """The place half way between the `levels` inside and outside, in units of the cache."""
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
        raise UndeterminedError(
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
        raise UndeterminedError(
            f"'global_load' was not measured both up to {WITHIN:g} caches and from {OUTSIDE:g} on."
        )
    # Short launches are slower for other reasons than the cache.
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
    **{f"turn_{unroll}": partial(_turn, unroll=unroll) for unroll in UNROLLS},
    "cache_end_latency_share": _end_by_latency,
    "cache_end_rate_share": _end_by_rate,
}


# Cells without what starting a launch takes


class UndeterminedError(Exception):
    """Why the cells do not determine a figure, as a sentence."""


def _in_a_launch(rows: pd.DataFrame) -> pd.Series:
    """How much of a sample's cost is in the time of a launch; 0 if it was subtracted.

    If the cache is flushed, every launch is timed by itself.
    """
    held = 1.0 / rows["launches_per_sample"].where(rows["cache_state"] == "warm", 1)
    return held.where(rows["overhead_s"].isna(), 0.0)


def _needed(found: _Some, why: str) -> _Some:
    """What was `found`; raises UndeterminedError, which says `why`, where that is nothing."""
    if not len(found):
        raise UndeterminedError(why)
    return found


class MachineCells:
    """The verified cells, by kernel, with what a launch takes beyond its start."""

    def __init__(self, cells: pd.DataFrame) -> None:
        self._cells = cells.assign(**{BYTES_TOUCHED: bytes_touched(cells)})

    def of(self, kernel: str) -> pd.DataFrame:
        """The kernel's cells. Raises UndeterminedError where there are none."""
        rows = self._cells[self._cells["kernel"] == kernel]
        return _needed(rows, f"There is no verified cell of the kernel '{kernel}'.")

    @cached_property
    def cache(self) -> int:
        """Bytes of the last cache level. Raises UndeterminedError if they are unknown."""
        cache = cache_bytes(self._cells)
        if cache is None:
            raise UndeterminedError("The device does not report the size of its cache.")
        return cache

    @cached_property
    def sample(self) -> Found:
        """The cost of a sample besides its launches.

        It was measured, or follows from equal launches in shorter samples.
        """
        rows = self.of("dispatch")
        if (known := rows[rows["overhead_s"].notna()]).size:
            value = float(known["overhead_s"].median())
            half = NORMAL_HALF * float(known["overhead_error_s"].median())
            how = "Samples of empty blocks with two numbers of launches, in each group."
            return value, max(0.0, value - half), value + half, "s", how
        names = ["grid", "block_x"]
        x = 1.0 / rows["launches_per_sample"]
        # A long launch determines a short time less well.
        weight = rows["median_s"] ** -2.0
        table = rows[names].assign(x=x, w=weight, wx=weight * x)
        sums = table.groupby(names)[["w", "wx"]].transform("sum")
        part = weight * (x - sums["wx"] / sums["w"])
        spread = float((part * x).sum())
        if spread <= 1e-12 * float((weight * x * x).sum()):
            raise UndeterminedError(
                "No launch of the kernel 'dispatch' was sampled with two numbers of launches."
            )
        found = sorted(float((part * rows[name]).sum()) / spread for name in MEDIANS)
        low, value, high = (max(0.0, s) for s in found)
        how = "Equal launches of empty blocks, alone and with others in a sample."
        return value, low, high, "s", how

    @cached_property
    def launch(self) -> Found:
        """What a launch takes that does next to nothing."""
        rows = self.of("dispatch").sort_values(
            ["grid", "block_x", "launches_per_sample"], ascending=[True, True, False]
        )
        cell = rows.iloc[0]
        once = self._known_s("sample") * float(_in_a_launch(rows).iloc[0])
        value, low, high = (float(cell[name]) - once for name in MEDIANS)
        if low <= 0:
            raise UndeterminedError("The shortest launch takes no longer than a sample costs.")
        how = (
            f"A launch of {int(cell['blocks'])} x {int(cell['threads_per_block'])} threads among "
            f"{int(cell['launches_per_sample'])}, without its part of what the sample costs."
        )
        return value, low, high, "s", how

    def _known_s(self, figure: str) -> float:
        """Seconds of ``sample`` or ``launch``; 0 if the cells do not determine them."""
        try:
            return float(getattr(self, figure)[0])
        except UndeterminedError:
            return 0.0

    def net(self, kernel: str, start_known: bool = False) -> pd.DataFrame:
        """The kernel's cells with what a launch takes beyond its start, in columns TIMES.

        If the cells do not determine the seconds of a start, it counts for nothing. Launches may be
        so short that it would be part of a rate: with `start_known` that raises UndeterminedError.
        """
        launch_s = self.launch[0] if start_known else self._known_s("launch")
        rows = self.of(kernel)
        start = launch_s + self._known_s("sample") * _in_a_launch(rows)
        named = zip(TIMES, MEDIANS, strict=True)
        return rows.assign(**{net: rows[whole] - start for net, whole in named})

    def chains(self) -> pd.DataFrame:
        """The cells of `chase`, with the bytes that its places span and seconds of a hop."""
        rows = self.net("chase")
        whole = rows["height"] * rows["width"] * WORD
        seen = (rows["chains"] * rows["hops"] * PLACE).clip(upper=whole)
        hop = rows[TIMES[0]] / rows["hops"]
        return rows.assign(**{SPAN: whole, SEEN: seen, HOP_S: hop})


# Straight lines, and where a curve is between two levels


class Line(NamedTuple):
    """The slope of a line of least squares, and the ends of its interval."""

    slope: float
    low: float
    high: float


def line(x: Values, y: Values, y_low: Values, y_high: Values) -> Line | None:
    """The line through points of at least two different `x`, whose `y` have intervals.

    Its interval holds what the ends of theirs make at most of the slope, and twice the standard
    error that the points' distances from the line give. None where there is one `x` alone.
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
    """Where `y` over increasing `x` is half way from `inside` to `outside`, and between which `x`.

    On a straight line over the logarithm of `x`, between the last point of the inner half and the
    one that follows. Where the curve crosses several times, the ends are before the first crossing
    and after the last. None where it does not cross.
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
