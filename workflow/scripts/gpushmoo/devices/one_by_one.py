"""What a device is asked to do with many launches at once, for backends that cannot queue them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ..core.errors import DeviceLostError, TypedError
from .base import Bound, Proven, Sample, Witnesses
from .guard_bands import Strays


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


class Provable(Protocol):
    """The part of a device that `prove_each` needs."""

    def poison(self, buffer: Any) -> None:
        """As `Device.poison`."""

    def mismatches(self, buffer: Any, expected: Any) -> int:
        """As `Device.mismatches`."""

    def strays(self, buffers: Sequence[Any]) -> list[Strays]:
        """As `Device.strays`."""

    def checksums(self, buffers: Sequence[Any]) -> list[int]:
        """As `Device.checksums`."""


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
