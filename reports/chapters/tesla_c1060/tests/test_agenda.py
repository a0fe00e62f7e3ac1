"""The tree that says whose event is next, against looking through all actors."""

from __future__ import annotations

import numpy as np
import pytest
from tesla_c1060.simulation.event_loop import enter

NEVER = 2**50


@pytest.mark.parametrize("actors", [1, 2, 3, 30, 38, 140])
def test_the_root_is_the_first_of_the_next(actors: int) -> None:
    draw = np.random.default_rng(actors)
    bits = max(1, (actors - 1).bit_length())
    coming, times = np.full(2 << bits, NEVER << bits), np.full(actors, NEVER)
    for _ in range(300):
        actor = int(draw.integers(actors))
        times[actor] = draw.choice([NEVER, *range(-4, 12)])
        enter.py_func(coming, bits, actor, int(times[actor]))
        assert coming[1] >> bits == times.min()
        if times.min() < NEVER:
            assert coming[1] & (1 << bits) - 1 == times.argmin()
