"""How many launches make a sample, in which order cells are sampled, how many without waiting."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np

from ...core.space import USUAL, Condition

T = TypeVar("T")

# Under this the cost of a launch and the clock's grain would be part of the figure.
SHORT_S = 50e-6
MAX_LAUNCHES = 256
# Each flushed launch pays for a flush, which takes longer than a short launch does.
MAX_FLUSHED = 4
# Before each isolated launch the host waits for the device, which takes longer, too.
MAX_ISOLATED = 4
# A run of launches has a begin and an end, which shall not be part of the figure of one.
RUN_S = 1e-3
LEAST_IN_A_RUN, MOST_IN_A_RUN = 4, 128
# A sample that would last longer holds fewer launches, or a hang could not be told from a sample.
# Such a cell is thousands of times slower than the fastest of its group, whatever its batch.
LONGEST_S = 0.25


def launches_of_group(launches_s: Sequence[float], met: Condition = USUAL) -> int:
    """Launches that make a sample of each cell of a group, from the seconds of one launch of each.

    A launch by itself and the same launch behind others take different times, so cells that are
    compared must have one number. It is that of the fastest: 1 if that takes at least 50 µs, else
    the power of two with which it lasts at least as long, up to what a sample under this condition
    holds. Of a stream or a graph it holds 4 at least, and should last a millisecond. A power of
    two, because two runs then rarely choose differently. Raises ValueError when there is no cell.
    """
    if not len(launches_s):
        raise ValueError("launches of no cells")
    least, most, lasting_s = 1, MAX_LAUNCHES, SHORT_S
    if met.flushed:
        most = MAX_FLUSHED
    elif met.launch_kind in ("stream", "graph"):
        least, most, lasting_s = LEAST_IN_A_RUN, MOST_IN_A_RUN, RUN_S
    if met.launch_kind == "isolated":
        most = MAX_ISOLATED
    fastest_s = max(min(launches_s), lasting_s / MAX_LAUNCHES)
    return int(min(most, max(least, 2 ** math.ceil(math.log2(lasting_s / fastest_s)))))


def launches_of_cell(group_launches: int, launch_s: float) -> int:
    """The group's number, or as many launches as fit `LONGEST_S`, at least one."""
    if group_launches * launch_s <= LONGEST_S:
        return group_launches
    return max(1, int(LONGEST_S / launch_s))


def chunked(timed: Iterable[tuple[T, float]], most: int, most_s: float) -> Iterator[list[T]]:
    """The items in their order, so many together as count and time allow, at least one.

    `timed` has the seconds that each takes; chunks hold at most `most` items of `most_s` in all.
    """
    chunk: list[T] = []
    together_s = 0.0
    for item, seconds in timed:
        if chunk and (len(chunk) == most or together_s + seconds > most_s):
            yield chunk
            chunk, together_s = [], 0.0
        chunk.append(item)
        together_s += seconds
    if chunk:
        yield chunk


def shuffled(items: Sequence[T], rng: np.random.Generator) -> Iterator[T]:
    """The items in a fresh random order: one round.

    Every round visits each active cell once, so a drift of the machine spreads over all cells
    and cannot favour one.
    """
    for i in rng.permutation(len(items)):
        yield items[i]
