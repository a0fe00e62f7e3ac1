"""Groups that searches are tried on, with times made by formulas and a fixed seed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from gpushmoo.search.planner import Candidate
from gpushmoo.search.race import Planner

MOST_ROUNDS = 10_000


def blocks_of(sides: Sequence[int], most_threads: int = 1024) -> list[Candidate]:
    """Every block of these sides on 1024 × 1024 floats."""
    return [
        Candidate(
            params=(("block_x", x), ("block_y", y)),
            block=(x, y, 1),
            blocks=-(-1024 // x) * -(-1024 // y),
            height=1024,
            width=1024,
            element_bytes=4,
            units=132,
            resident_per_unit=max(1, 2048 // (x * y)),
        )
        for x in sides
        for y in sides
        if x * y <= most_threads
    ]


def line_of(count: int) -> list[Candidate]:
    """A group with one axis that is no block's side."""
    return [
        Candidate((("unroll", n),), (256, 1, 1), 512, 1, 1 << 20, 4, 132, None)
        for n in range(count)
    ]


def smooth_s(candidate: Candidate) -> float:
    """Seconds of a surface with one valley, at blocks of 32 × 8."""
    x, y = math.log2(candidate.block[0]), math.log2(candidate.block[1])
    return 1e-4 * (1.0 + 0.1 * (x - 5.0) ** 2 + 0.06 * (y - 3.0) ** 2 + 0.03 * (x - 5) * (y - 3))


@dataclass
class Trial:
    """A search that was led to its end, and what it asked."""

    planner: Planner
    asked: dict[int, int] = field(default_factory=dict)
    failed: set[int] = field(default_factory=set)
    rounds: int = 0


def never(place: int) -> bool:
    """No cell fails."""
    return False


def led(
    planner: Planner, sample_s: Callable[[int], float], fails: Callable[[int], bool] = never
) -> Trial:
    """Answer until nothing is asked; `fails` tells which places give no time."""
    trial = Trial(planner)
    while asks := planner.propose():
        places = [ask.place for ask in asks]
        assert len(set(places)) == len(places), "a place twice in one question"
        assert not set(places) & trial.failed, "a place that has failed"
        for ask in asks:
            assert ask.samples > 0
            if fails(ask.place):
                planner.fail(ask.place)
                trial.failed.add(ask.place)
            else:
                trial.asked[ask.place] = trial.asked.get(ask.place, 0) + ask.samples
                planner.tell(ask.place, [sample_s(ask.place) for _ in range(ask.samples)])
        trial.rounds += 1
        assert trial.rounds < MOST_ROUNDS, "a search without an end"
    return trial


def noisy(times_s: Sequence[float], spread: float, seed: int) -> Callable[[int], float]:
    """Samples around these times, with a normal relative error of `spread`."""
    draw = np.random.default_rng(seed)
    return lambda place: float(times_s[place] * math.exp(spread * draw.standard_normal()))
