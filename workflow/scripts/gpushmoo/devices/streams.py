"""Define streams of a device, with which the host copies a kernel's data while it runs."""

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
    """A point in a stream's order, whose time can be compared with that of another one.

    Attributes
    ----------
    event
        Event of the backend.
    elapsed_s
        Returns the time between two events in seconds.
    """

    event: Any
    elapsed_s: Callable[[Any, Any], float]

    def seconds_since(self, other: Mark) -> float:
        """Return the seconds from `other` to this mark. Wait for the streams of both before."""
        return self.elapsed_s(other.event, self.event)


class Stream(Protocol):
    """A queue of copies and launches.

    At the end of its `with` block it waits for all commands and frees its buffers.
    """

    def __enter__(self) -> Stream:
        """Return the stream, which is open already."""

    def __exit__(self, *exc: object) -> None:
        """Wait for all commands, then free all buffers."""

    def allocate(self, nbytes: int) -> Any:
        """Return a buffer with undefined content, which is freed with the stream.

        Raises
        ------
        OutOfDeviceMemoryError
            If the device has too little memory.
        """

    def copy_in(self, target: Any, source: npt.NDArray[Any]) -> None:
        """Queue a copy of host memory to the beginning of a buffer.

        Parameters
        ----------
        target
            The buffer.
        source
            Flat array on the host. It must not change before `wait` returns.
        """

    def copy_out(self, target: npt.NDArray[Any], source: Any) -> None:
        """Queue a copy of the beginning of `source` to the flat `target` on the host."""

    def launch(self, program: Any, launch: Launch, buffers: Mapping[str, Any]) -> None:
        """Queue a launch. Errors are those of `Device.bind`."""

    def release(self) -> None:
        """Free all buffers of the stream, after the commands that are queued before."""

    def mark(self) -> Mark:
        """Queue a mark, whose time can be read later."""

    def wait(self) -> None:
        """Wait until all commands are done.

        Raises
        ------
        LaunchFailedError, DeviceLostError
            If a command failed.
        """


class Streams(ABC):
    """Streams of a device, and host memory that it reads directly, see `Device.streams`.

    Parameters
    ----------
    translated
        Returns a context manager that converts errors of the backend.
    """

    def __init__(self, translated: Translated) -> None:
        self._translated = translated

    @abstractmethod
    def open(self) -> Stream:
        """Return a new stream, which does not wait for other streams."""

    @abstractmethod
    def _pinned_like(self, flat: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return an array of this length and type in pinned memory, with undefined content."""

    def host_array(self, array: npt.NDArray[Any], pinned: bool) -> npt.NDArray[Any]:
        """Return a flat copy of `array` in host memory. Pinned memory is read by the device."""
        flat = np.ascontiguousarray(array).reshape(-1)
        if not pinned or not flat.size:
            return flat.copy()
        with self._translated():
            held = self._pinned_like(flat)
        held[:] = flat
        return held
