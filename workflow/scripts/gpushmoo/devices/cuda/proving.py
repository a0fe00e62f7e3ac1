"""Runs on poisoned output that are compared on the device, many without waiting between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...core.errors import DeviceError, DeviceLostError
from ..base import Bound, Proven
from .buffers import LookAt
from .timing import CudaBound, EventTimer

Queue = Callable[[], None]


def prove_all(
    cupy: Any, timer: EventTimer, proofs: Sequence[Bound], poison: Queue, look: LookAt
) -> list[Proven | DeviceError]:
    """Queue for each: `poison`, its launch between events, and what `look` queues.

    What each did, or what went wrong with it. Raises DeviceLostError.
    """
    failed: dict[int, DeviceError] = {}
    with timer.translated(), timer.stream:
        found = cupy.zeros((len(proofs), look.words), dtype=np.uint32)
        events = timer.event_pairs(len(proofs))
        for i, (proof, (start, stop)) in enumerate(zip(proofs, events, strict=True)):
            assert isinstance(proof, CudaBound)
            try:
                with timer.translated():
                    poison()
                    start.record(timer.stream)
                    proof.enqueue()
                    stop.record(timer.stream)
                    look.queue(found[i])
            except DeviceLostError:
                raise
            except DeviceError as err:
                failed[i] = err
        rows = found.get(stream=timer.stream).tolist()
        timer.stream.synchronize()
        elapsed_ms = cupy.cuda.get_elapsed_time
        return [
            failed[i] if i in failed else look.proven(float(elapsed_ms(*pair)) * 1e-3, row)
            for i, (pair, row) in enumerate(zip(events, rows, strict=True))
        ]
