"""What the devices of all backends have in common: their buffers do most of the protocol's work."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import numpy.typing as npt

from ..core.dtypes import DType
from ..core.errors import LaunchRefusedError, TypedError
from ..core.space import Problem
from .base import Bound, DeviceBuffers, DeviceInfo, Proven, Stream, Witnesses
from .guard_bands import Strays
from .in_turn import FedInTurn, InTurn
from .one_by_one import prove_each
from .stream_by_stream import StreamsInTurn


class BufferedDevice(ABC):
    """The part of `base.Device` that is the same whatever the backend."""

    info: DeviceInfo
    _buffers: DeviceBuffers

    @abstractmethod
    def translated(self) -> AbstractContextManager[None]:
        """Context manager that turns the backend's errors into the protocol's."""

    @abstractmethod
    def image_refusal(self, problem: Problem, dtype: DType) -> str | None:
        """Why the device has no image of so many texels of this type; None when it has."""

    @abstractmethod
    def _new_image(self, problem: Problem, dtype: DType) -> Any:
        """An image that the device has, of undefined content."""

    @abstractmethod
    def _linear(self, buffer: Any) -> Any:
        """The buffer itself, or one with the texels of an image."""

    @abstractmethod
    def open_stream(self) -> Stream:
        """A new stream, which does not wait for what other streams hold."""

    def bind_in_turn(self, fed: FedInTurn) -> InTurn:
        """Prepare feeding pieces one after another, each through a new stream."""
        return StreamsInTurn(self.open_stream, self.poison, fed)

    @abstractmethod
    def poison(self, buffer: Any) -> None:
        """Overwrite `buffer` with all-ones words."""

    def upload(self, array: npt.NDArray[Any]) -> Any:
        """A device buffer holding `array`. Raises OutOfDeviceMemoryError."""
        return self._buffers.upload(array)

    def allocate(self, nbytes: int) -> Any:
        """A buffer of undefined content. Raises OutOfDeviceMemoryError."""
        return self._buffers.allocate(nbytes)

    def guard(self, buffer: Any) -> None:
        """Paint the zones around `buffer` again."""
        self._buffers.guard(buffer)

    def strays(self, buffers: Sequence[Any]) -> list[Strays]:
        """Words written around each of the buffers, counted on the device."""
        return self._buffers.strays(buffers)

    def checksums(self, buffers: Sequence[Any]) -> list[int]:
        """A 32-bit number for each buffer's content, made on the device."""
        return self._buffers.checksums(buffers)

    def mismatches(self, buffer: Any, expected: Any) -> int:
        """Differing 32-bit words, counted on the device."""
        return self._buffers.mismatches(self._linear(buffer), expected)

    def prove_all(self, proofs: Sequence[Bound], witnesses: Witnesses) -> list[Proven | TypedError]:
        """Run each on poisoned output, wait for it, and look at the witnesses before the next."""
        return prove_each(self, proofs, witnesses)

    def words(self, buffer: Any, begin: int, count: int) -> npt.NDArray[np.uint32]:
        """`count` 32-bit words from the word `begin` on, on the host."""
        return self._buffers.words(self._linear(buffer), begin, count)

    def energy_mj(self) -> int | None:
        """None: most runtimes tell no energy."""
        return None

    def allocate_image(self, problem: Problem, dtype: DType) -> Any:
        """An image of undefined content. Raises LaunchRefusedError where there is none."""
        refusal = self.image_refusal(problem, dtype)
        if refusal is not None:
            raise LaunchRefusedError(f"There is no such image: {refusal}.")
        with self.translated():
            return self._new_image(problem, dtype)
