"""Streams of a device, which kernels fed from the host need."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ..workloads.contract import Launch
from .capabilities import Translated


@dataclass(frozen=True)
class Mark:
    """A point in a stream's order; `elapsed_s` gives the seconds between two of its events."""

    event: Any
    elapsed_s: Callable[[Any, Any], float]

    def seconds_since(self, other: Mark) -> float:
        """Seconds from `other` to this mark. Both marks' streams must have been waited for."""
        return self.elapsed_s(other.event, self.event)


class Stream(Protocol):
    """A queue of copies and launches; at the end of its context it waits and frees its memory."""

    def __enter__(self) -> Stream:
        """Return the stream, which is open already."""

    def __exit__(self, *exc: object) -> None:
        """Wait for all commands, then free all buffers."""

    def allocate(self, nbytes: int) -> Any:
        """A buffer of undefined content, freed with the stream. Raises OutOfDeviceMemoryError."""

    def copy_in(self, target: Any, source: npt.NDArray[Any]) -> None:
        """Queue a copy of the flat `source` on the host to the beginning of `target`.

        `source` must not change until the stream was waited for.
        """

    def copy_out(self, target: npt.NDArray[Any], source: Any) -> None:
        """Queue a copy of the beginning of `source` to the flat `target` on the host."""

    def launch(self, program: Any, launch: Launch, buffers: Mapping[str, Any]) -> None:
        """Queue a launch. Raises as `Device.bind` does."""

    def release(self) -> None:
        """Free all that the stream allocated, in the stream's order."""

    def mark(self) -> Mark:
        """Queue a mark, whose time can be read later."""

    def wait(self) -> None:
        """Return when all commands are done. Raises LaunchFailedError or DeviceLostError."""


class Streams(ABC):
    """Streams of a device, and host memory that it reads by itself: `Device.streams`."""

    def __init__(self, translated: Translated) -> None:
        self._translated = translated

    @abstractmethod
    def open(self) -> Stream:
        """A new stream, which does not wait for other streams."""

    @abstractmethod
    def _pinned_like(self, flat: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """An array of this length and type, of undefined content, that the device reads."""

    def host_array(self, array: npt.NDArray[Any], pinned: bool) -> npt.NDArray[Any]:
        """A flat copy of `array` in host memory; the device reads `pinned` memory by itself."""
        flat = np.ascontiguousarray(array).reshape(-1)
        if not pinned or not flat.size:
            return flat.copy()
        with self._translated():
            held = self._pinned_like(flat)
        held[:] = flat
        return held
