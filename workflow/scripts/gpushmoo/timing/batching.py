"""How many launches make one sample."""

from __future__ import annotations

import math

# Under this the cost of a launch and the clock's grain would be part of the figure.
SHORT_S = 50e-6
MAX_LAUNCHES = 200


def launches_per_sample(launch_s: float) -> int:
    """1 for a launch of at least 50 µs; else as many as last about 50 µs together, at most 200."""
    if launch_s >= SHORT_S:
        return 1
    return min(MAX_LAUNCHES, math.ceil(SHORT_S / max(launch_s, SHORT_S / MAX_LAUNCHES)))
