"""Choose the number of launches in a sample from the times of warm launches.

A sample of n launches in a row takes ``S(n) = c + n·t``, with the time t from one launch to the
next and the overhead c of the sample (`overhead`). The number n determines how precisely t is
known. It does not change t.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from ..core.errors import TypedError
from ..core.space import USUAL, CellGroup, Condition
from ..devices.base import TimedInterval
from .events import CellRun
from .sampling import TOGETHER_S
from .verify import CellSteps

T = TypeVar("T")

# Seconds that a sample with an overhead of some microseconds lasts at least.
LASTING_S = 200e-6
# A sample has one launch if that takes this number of seconds: its overhead is at most 0.2 %.
LONG_S = 2e-3
# Seconds of a sample if each launch is timed by itself: the clock's resolution must not count.
SHORT_S = 50e-6
MAX_LAUNCHES = 256
# A flush before each launch takes longer than a short launch.
MAX_FLUSHED = 4
# So does the wait before each isolated launch.
MAX_ISOLATED = 4
# Begin and end of a run of launches in a stream must not count.
RUN_S = 1e-3
MIN_IN_A_RUN, MAX_IN_A_RUN = 4, 128
# A longer sample would look like a hang, so it has fewer launches. Its cell is thousands of times
# slower than the fastest of the group.
LONGEST_S = 0.25
# A cell with launches this number of times longer than the fastest one's needs fewer of them. Cells
# closer to it compete, and have one number.
SLOWER = 4.0
# Cells of a group in a warm look, those with the shortest first launches, and the seconds of it.
LOOKED, LOOK_S = 8, 0.05
# The longest first launch, which finds cold caches, over a warm one. Within events around it, a
# GPU's driver may load the code.
COLD, COLD_IN_EVENTS = 4.0, 50.0


def chunked(timed: Iterable[tuple[T, float]], most: int, most_s: float) -> Iterator[list[T]]:
    """Yield the items in chunks of at most `most` items and `most_s` seconds, or of one item.

    Parameters
    ----------
    timed
        Items, each with its seconds.
    most, most_s
        Largest number of items, and largest sum of seconds.
    """
    chunk: list[T] = []
    together_s = 0.0
    for item, seconds in timed:
        if chunk and (len(chunk) == most or together_s + seconds > most_s):
            yield chunk
            chunk = []
            together_s = 0.0
        chunk.append(item)
        together_s += seconds
    if chunk:
        yield chunk


def launches_of_group(
    fastest_s: float, met: Condition = USUAL, has_overhead: bool = True, factor: float = 1.0
) -> int:
    """Return the number of launches in a sample of a group, a power of two.

    Compared cells have one number: the smallest with which a sample of the fastest cell lasts long
    enough, up to the maximum of the condition.

    Parameters
    ----------
    fastest_s : float
        Seconds of a launch of the group's fastest cell.
    met : Condition
        The cache state and the timing mode.
    has_overhead : bool
        Whether a sample is timed by one pair of events around all of its launches, so that the time
        also contains the overhead of the sample.
    factor : float
        Multiplies the length of a sample. Experiments use it to show that the time of a launch does
        not depend on this length.
    """
    least = 1
    most = MAX_LAUNCHES
    lasting_s = SHORT_S
    if met.flushed:
        most = MAX_FLUSHED
    elif met.timing_mode == "isolated":
        most = MAX_ISOLATED
    elif met.timing_mode == "stream":
        least, most, lasting_s = MIN_IN_A_RUN, MAX_IN_A_RUN, RUN_S
    elif has_overhead:
        lasting_s = LASTING_S * factor
        # Two and more are one graph, and follow another launch.
        least = 2 if fastest_s < LONG_S else 1
    fastest_s = max(fastest_s, lasting_s / MAX_LAUNCHES)
    return int(min(most, max(least, 2 ** math.ceil(math.log2(lasting_s / fastest_s)))))


def launches_of_cell(group_launches: int, launch_s: float) -> int:
    """Return the number of launches in a sample of a cell.

    It is the group's number `group_launches`, or as many as fit into `LONGEST_S` if launches take
    `launch_s` seconds, at least one.
    """
    if group_launches * launch_s <= LONGEST_S:
        return group_launches
    return max(1, int(LONGEST_S / launch_s))


def choose_launches(steps: CellSteps, group: CellGroup, runs: Sequence[CellRun]) -> int:
    """Choose the number of launches in a sample of a group, unless it is known, and return it.

    Parameters
    ----------
    steps
        Steps on the open device, which keep the number.
    group
        The group.
    runs
        Cells of the group that have been launched once.
    """
    if group not in steps.launches:
        met = group.condition
        factor = steps.sampling.job.measure.launches_factor
        has_overhead = interval_of(steps, runs) == TimedInterval.ROW

        def number(seconds: float) -> int:
            return launches_of_group(seconds, met, has_overhead, factor)

        fastest_s = min(map(first_s, runs))
        cold = COLD_IN_EVENTS if has_overhead else COLD
        if number(fastest_s / cold) != number(fastest_s):
            fastest_s = _warm_s(steps, runs, number(fastest_s), fastest_s)
        steps.launches[group] = number(fastest_s)
    return steps.launches[group]


def set_launches(steps: CellSteps, runs: Sequence[CellRun], launches: int) -> None:
    """Set the number of launches in a sample of each cell of a group.

    If launches are timed in a row, a cell that is SLOWER than the fastest has only as many launches
    as its time requires. Otherwise, one slow block size would take most of the time of a sweep.

    Parameters
    ----------
    steps
        Steps on the open device.
    runs
        Cells of the group that have been launched once.
    launches
        Number of launches of the group.
    """
    for run in runs:
        run.launches = launches_of_cell(launches, first_s(run))
    if launches == 1 or interval_of(steps, runs) != TimedInterval.ROW:
        return
    factor = steps.sampling.job.measure.launches_factor
    slow_s = SLOWER * min(map(first_s, runs))

    def needed(run: CellRun, seconds: float) -> int:
        if seconds >= max(LONG_S, slow_s):
            return 1
        return launches_of_group(seconds / SLOWER, run.cell.condition, True, factor)

    slower = [run for run in runs if needed(run, first_s(run)) < launches]
    for n, alike in (
        (1, [run for run in slower if first_s(run) >= COLD * LONG_S]),
        (2, [run for run in slower if first_s(run) < COLD * LONG_S]),
    ):
        timed = ((run, n * first_s(run)) for run in alike)
        for some in chunked(timed, steps.together, TOGETHER_S):
            for run, seconds in zip(some, steps.outcomes_at(some, n), strict=True):
                # The first sample ends a cell that fails.
                if not isinstance(seconds, TypedError):
                    fewest = min(launches, needed(run, seconds))
                    run.launches = launches_of_cell(fewest, seconds)


def interval_of(steps: CellSteps, runs: Iterable[CellRun]) -> TimedInterval:
    """Return the kind of interval that is timed in samples of these bound cells.

    If the cells differ, each launch counts as timed separately.
    """
    kinds = {run.bound.interval(run.cell.condition) for run in runs if run.bound is not None}
    return kinds.pop() if len(kinds) == 1 else TimedInterval.EACH


def first_s(run: CellRun) -> float:
    """Return the time of the cell's first launch in seconds."""
    assert run.launch_s is not None
    return run.launch_s


def _warm_s(steps: CellSteps, runs: Iterable[CellRun], launches: int, otherwise_s: float) -> float:
    """Return the seconds of the fastest warm launch. A cell that fails is ignored."""
    most = max(1, min(LOOKED, int(LOOK_S / (launches * otherwise_s))))
    looked = sorted(runs, key=first_s)[:most]
    outcomes: list[float | TypedError] = []
    for begin in range(0, len(looked), steps.together):
        some = looked[begin : begin + steps.together]
        outcomes += steps.outcomes_at(some, launches)
    seconds = [s for s in outcomes if not isinstance(s, TypedError) and s > 0.0]
    return min(seconds, default=otherwise_s)
