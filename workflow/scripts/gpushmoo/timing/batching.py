"""How many launches make one sample."""

from __future__ import annotations

import math

# Under this the cost of a launch and the clock's grain would be part of the figure.
SHORT_S = 50e-6
MAX_LAUNCHES = 200
# Each flushed launch pays for a flush, which takes longer than a short launch does.
MAX_FLUSHED = 4


def launches_per_sample(launch_s: float, most: int = MAX_LAUNCHES) -> int:
    """1 for a launch of at least 50 µs; else as many as last about 50 µs together, up to `most`."""
    if launch_s >= SHORT_S:
        return 1
    return min(most, math.ceil(SHORT_S / max(launch_s, SHORT_S / MAX_LAUNCHES)))
