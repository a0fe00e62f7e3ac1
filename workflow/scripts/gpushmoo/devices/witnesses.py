"""What a launch that is verified must leave, and what it was found to leave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..workloads.limits import KeyFormat
from .buffers import OutOfBoundsWrites


@dataclass(frozen=True)
class KeyBounds:
    """The lowest and highest keys of an output's elements, in buffers, and what keys mean.

    `in_values`: an error is a difference of values and not of keys.
    """

    low: Any
    high: Any
    n: int
    form: KeyFormat
    in_values: bool

    @property
    def numbers(self) -> tuple[np.generic, ...]:
        """The numbers that the kernel `buffers.LIMITS` takes after its three buffers, in order."""
        form = self.form
        return (
            np.uint64(self.n),
            *(np.int32(form.kind), np.int32(self.in_values), form.unsigned.type(form.top)),
            *(np.int32(form.mantissa), np.int32(form.bias)),
        )


# The byte of poison, and another one for outputs that may hold the first.
POISON_BYTES = (0xFF, 0xA5)


@dataclass(frozen=True)
class Output:
    """A buffer that launches write, and what they must leave there.

    That are the words of `expected`, or elements within `bounds`. A launch finds the words of
    `content` or poison. The last `padding` bytes are no part of the output, and remain 0xFF.
    """

    buffer: Any
    expected: Any
    bounds: KeyBounds | None = None
    content: Any = None
    padding: int = 0


@dataclass(frozen=True)
class Deviation:
    """How many words, or elements with a limit, of an output are wrong.

    `worst` is the largest error as a share of the limit, None without one.
    """

    wrong: int
    worst: float | None = None


@dataclass(frozen=True)
class Witnesses:
    """What a run must leave: its `outputs`, the zones around `guarded`, the `inputs`.

    Outputs without a content are poisoned by the byte `poison`.
    """

    outputs: Sequence[Output]
    guarded: Sequence[Any]
    inputs: Sequence[Any]
    poison: int = POISON_BYTES[0]


@dataclass(frozen=True)
class ProofResult:
    """The result of a run on poisoned output: its seconds and the state of its witnesses.

    `deviations` belong to the outputs, `strays` to the guarded buffers, `sums` to the inputs (see
    `Device.strays`, of which only a part of the far words is read, and `checksums`).
    """

    seconds: float
    deviations: Sequence[Deviation]
    strays: Sequence[OutOfBoundsWrites]
    sums: Sequence[int]


def deviation(output: Output, found: npt.NDArray[np.uint32]) -> Deviation:
    """The deviation of an output from the two words of `Device.queue_comparison`."""
    if output.bounds is None:
        return Deviation(int(found.view(np.uint64)[0]))
    return Deviation(int(found[0]), float(found[1:].view(np.float32)[0]))
