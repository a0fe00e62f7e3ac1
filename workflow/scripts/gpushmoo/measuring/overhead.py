"""Measure the overhead of a sample: the time that it takes in addition to its launches.

A sample of n launches in one interval takes ``S(n) = c + n·t``, with the overhead c (events, the
start of a graph) and the time t from one launch to the next. Samples of two lengths determine both:
``c = S(n) − n·(S(4n) − S(n))/(3n)``. All launches of a group share one overhead, because it depends
on the kernel more than on the block.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from ..core.errors import TypedError
from ..devices.base import Sample, TimedInterval, each_or_error
from .events import CellRun, Overhead
from .sample_length import interval_of
from .sampling import TOGETHER_S
from .verify import CellSteps

Floats = npt.NDArray[np.float64]

# Overhead for a clock that shows the begin and end of each launch.
NOTHING = Overhead(0.0, 0.0)
# Cells of a group by which its overhead is measured, and samples of each length and cell.
CELLS, SAMPLES = 16, 5
# The launches of a long sample over those of a short one.
LONGER = 4
# Seconds that the overhead of a group may cost; with longer launches it takes fewer cells.
BUDGET_S = 0.1
# With at least this number of cells, the error follows from their spread.
_FEW = 4
# Standard deviations of a normal distribution by its median absolute deviation, and the standard
# error of its median by that of its mean.
_BY_DEVIATION, _OF_MEDIAN = 1.4826, 1.2533


def overhead_of(short_s: Floats, long_s: Floats) -> Overhead:
    """Estimate the overhead from short samples and from LONGER times as many launches.

    Parameters
    ----------
    short_s, long_s : array of shape (cells, samples)
        Seconds of whole samples.

    Returns
    -------
    Overhead
        The median over cells, each by the medians of its samples. At most half of the shortest
        sample.
    """
    by_cell = _overheads(np.median(short_s, axis=1), np.median(long_s, axis=1))
    alike = by_cell if len(by_cell) >= _FEW else _overheads(short_s, long_s).ravel()
    deviation = np.median(np.abs(alike - np.median(alike)))
    error_s = _OF_MEDIAN * _BY_DEVIATION * float(deviation) / math.sqrt(len(alike))
    return Overhead(min(float(np.median(by_cell)), float(short_s.min()) / 2.0), error_s)


def _overheads(short_s: Floats, long_s: Floats) -> Floats:
    found: Floats = short_s - (long_s - short_s) / (LONGER - 1)
    return found


def overhead_of_samples(
    take: Callable[[int], Sequence[float | TypedError]], launches: int
) -> Overhead | None:
    """Measure the overhead of samples.

    Parameters
    ----------
    take
        Takes a sample of each of some cells. It is called alternately with the number of launches
        in a short and in a long sample. It returns the time of a launch in seconds, or an error.
    launches
        Number of launches in a short sample.

    Returns
    -------
    Overhead or None
        None if every cell failed.
    """
    short_s: list[list[float]] = []
    long_s: list[list[float]] = []
    for _ in range(SAMPLES):
        for found, n in ((short_s, launches), (long_s, LONGER * launches)):
            outcomes = take(n)
            found.append([math.nan if isinstance(s, TypedError) else s * n for s in outcomes])
    short, long = np.array(short_s).T, np.array(long_s).T
    measured = np.isfinite(short).all(axis=1) & np.isfinite(long).all(axis=1)
    if not measured.any():
        return None
    return overhead_of(short[measured], long[measured])


def measure_overhead(
    steps: CellSteps, runs: Sequence[CellRun], launches: int, rng: np.random.Generator
) -> Overhead | None:
    """Measure the overhead of a group with some of its cells, which are drawn.

    Errors do not end cells here. A cell that fails ends with its next sample.

    Parameters
    ----------
    steps
        Steps on the open device.
    runs
        Cells of the group.
    launches
        Number of launches in a sample of the group.
    rng
        Draws the cells.

    Returns
    -------
    Overhead or None
        None if no cell has this number of launches, or if every cell fails.
    """
    able = [run for run in runs if run.launches == launches]
    if not able:
        return None
    longest_s = max(run.sample_s for run in able)
    most = max(1, min(CELLS, int(BUDGET_S / (SAMPLES * (1 + LONGER) * longest_s))))
    drawn = [able[i] for i in sorted(rng.permutation(len(able))[:most])]
    at_once = max(1, min(steps.together, int(TOGETHER_S / (LONGER * longest_s))))

    def take(n: int) -> list[float | TypedError]:
        found: list[float | TypedError] = []
        for begin in range(0, len(drawn), at_once):
            found += steps.outcomes_at(drawn[begin : begin + at_once], n)
        return found

    return overhead_of_samples(take, launches)


def set_overheads(runs: Sequence[CellRun], overhead: Overhead | None) -> None:
    """Set the overhead of a group in its cells, except slow cells whose samples have one launch."""
    for run in runs:
        run.overhead = None if run.launches == 1 and overhead != NOTHING else overhead


def group_overhead(
    steps: CellSteps, runs: Sequence[CellRun], launches: int, rng: np.random.Generator
) -> Overhead | None:
    """Return the overhead of a group's samples, or None if it is not known or does not matter.

    Parameters
    ----------
    steps
        Steps on the open device.
    runs
        Cells of the group, which are bound.
    launches
        Number of launches in a sample of the group.
    rng
        Draws the cells with which it is measured.
    """
    interval = interval_of(steps, runs)
    if interval == TimedInterval.LAUNCH:
        return NOTHING
    if launches == 1 or interval == TimedInterval.EACH:
        return None
    return measure_overhead(steps, runs, launches, rng)


def overhead_of_copy(copy: Sample) -> Overhead | None:
    """Measure the overhead of the runtime's copy with samples like `copy`, or None if it fails."""

    def take(n: int) -> list[float | TypedError]:
        return each_or_error(Sample.take, [Sample(copy.bound, n, copy.met)])

    return overhead_of_samples(take, copy.launches)
