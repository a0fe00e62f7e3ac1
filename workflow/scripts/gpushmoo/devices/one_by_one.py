"""What a device is asked to do with many launches at once, for backends that cannot queue them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ..core.errors import DeviceLostError, TypedError
from .base import Bound, DeviceBuffers, Proven, Sample, Witnesses


def take_each(samples: Sequence[Sample]) -> list[float | TypedError]:
    """`Device.sample_all` one by one, for a backend that cannot queue them."""
    taken: list[float | TypedError] = []
    for sample in samples:
        try:
            taken.append(sample.take())
        except DeviceLostError:
            raise
        except TypedError as err:
            taken.append(err)
    return taken


class Provable(DeviceBuffers, Protocol):
    """The part of a device that `prove_each` needs: its buffers, and a way to spoil one."""

    def poison(self, buffer: Any) -> None:
        """Overwrite `buffer`, which may be an image, with words that no verified output holds."""


def prove_each(
    device: Provable,
    proofs: Sequence[Bound],
    witnesses: Witnesses,
    clock: Callable[[], float] = time.monotonic,
) -> list[Proven | TypedError]:
    """`Device.prove_all` one by one, for a backend that cannot queue them."""
    proven: list[Proven | TypedError] = []
    for proof in proofs:
        try:
            device.poison(witnesses.output)
            before = clock()
            proof.run()
            seconds = clock() - before
            wrong = device.mismatches(witnesses.output, witnesses.expected)
            strays, sums = device.strays(witnesses.guarded), device.checksums(witnesses.inputs)
            proven.append(Proven(seconds, wrong, strays, sums))
        except DeviceLostError:
            raise
        except TypedError as err:
            proven.append(err)
    return proven
