"""What each backend does, behind its record: the functions of ``devices/<name>/backend.py``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from ..core.backends import Backend
from ..core.space import Version
from ..workloads.loader import KernelFolder
from .base import Device
from .build_file import VersionBuild
from .build_request import BuildRequest
from .clock_lock import ClockLock


class BackendModule(Protocol):
    """A backend's module. Importing it imports none of the libraries behind the backend."""

    def open_device(
        self, index: int, runtime: str, cache: Path, own_kernels: Mapping[str, bytes]
    ) -> Device:
        """Open device `index` in this process; `runtime` is one of the record's, if it has any.

        What the backend keeps between processes goes into the folder `cache`. Raises NoDeviceError
        with one sentence that says what is missing.
        """

    def list_devices(self, wanted: int | None) -> Sequence[tuple[int, str]] | None:
        """Index and UUID of device `wanted`, or of all for None, without opening any.

        None where a device tells its UUID only once it is open. Raises NoDeviceError.
        """

    def count_devices(self) -> int:
        """How many devices a process here seems able to use, asked in milliseconds.

        Called only where the record says ``claims_gpu``.
        """

    def recorded(self) -> AbstractContextManager[None]:
        """Within it a profiler that was told to wait reads the counters of every launch.

        Entered only where the record names a ``profiler``, and once a device is open.
        """

    def lock_clocks(self, uuid: str, asked: int | str) -> ClockLock:
        """Hold the device at a core clock in MHz, or at ``base``, and its memory at its highest.

        Called only where the record says ``locks_clocks``, in a process that opens no device.
        Raises ClocksNotLockedError, and then nothing is changed.
        """

    def free_clocks(self, uuid: str) -> None:
        """What `ClockLock.free` does, for one that another process made."""

    def targets(self, request: BuildRequest) -> tuple[str, ...]:
        """What the devices that are asked for need machine code of: see `KernelBuild`.

        Raises NoDeviceError.
        """

    def own_kernels(self, request: BuildRequest, target: str) -> bytes | None:
        """Machine code of the kernels with which the backend looks at buffers, for `open_device`.

        None where a runtime that brings its compiler along compiles them.
        """

    def compile_version(
        self, request: BuildRequest, folder: KernelFolder, dtype: str, version: Version, target: str
    ) -> VersionBuild:
        """A version compiled for `target`, and what was found in its machine code, if it is read.

        Raises BuildError, WorkloadError, or NoDeviceError without a compiler.
        """


def functions_of(backend: Backend) -> BackendModule:
    """The module of `backend`, imported on the first call that asks for it."""
    return cast(BackendModule, import_module(backend.module))
