"""The contract of a backend: its module, its devices, and what devices of all backends do alike."""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt

from ..core.backends import Backend
from ..core.dtypes import DType
from ..core.errors import DeviceLostError, LaunchRefusedError, TypedError
from ..core.space import USUAL, Condition, Problem, Version
from ..workloads.contract import Launch, LibraryCall
from ..workloads.loader import KernelFolder
from .buffers import GuardedBuffers, Image, Strays
from .builds import BuildRequest, VersionBuild
from .streams import FedInTurn, InTurn, Stream, StreamsInTurn


@dataclass(frozen=True)
class DeviceInfo:
    """Facts about a device. Sizes in bytes; `units` counts multiprocessors or compute units.

    `kind` is ``gpu`` or ``cpu``; `uuid` names this very device on this host, for its lock;
    `max_image` is the largest width and height of an image in texels, None where there are none;
    a CPU's memory and largest buffer are what its runtime would give at this moment; `extra` holds
    what only one backend knows (ECC, PCI bus, runtime settings), as strings.
    """

    backend: str
    name: str
    uuid: str
    kind: str
    driver: str
    runtime: str
    units: int
    max_threads_per_block: int
    max_block: tuple[int, int, int]
    max_grid: tuple[int, int, int]
    global_memory: int
    max_allocation: int
    cache: int
    core_clock_mhz: int
    extra: Mapping[str, str] = field(default_factory=dict)
    max_image: tuple[int, int] | None = None


# What a device has room for. PoCL tells less of all three while its host has less memory free.
_ROOM = ("global_memory", "max_allocation", "max_image")


def identity(device: Mapping[str, Any]) -> dict[str, Any]:
    """What of a DeviceInfo, as plain values, changes times; `extra` stands among the others.

    Of a CPU the clock does not count: its runtimes may tell that of the moment.
    """
    left_out = {*_ROOM, "extra", *(["core_clock_mhz"] if device["kind"] == "cpu" else [])}
    return {**{k: v for k, v in device.items() if k not in left_out}, **device["extra"]}


def steady_room(info: DeviceInfo) -> tuple[int, int]:
    """Bytes of memory and of the largest buffer, the same whenever in a run they are asked for.

    Of a CPU both are its host's memory: its runtime refuses more than it can give by itself.
    """
    if info.kind != "cpu":
        return info.global_memory, info.max_allocation
    host = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return host, host


@dataclass(frozen=True)
class Reading:
    """The device's state at one moment: clocks in MHz, temperature in °C, power in W.

    `reasons` names why the clock is held down, as NVML does; see `SLOWED_BY`.
    """

    sm_clock_mhz: int
    memory_clock_mhz: int
    temperature_c: int
    power_w: float
    reasons: tuple[str, ...]

    @property
    def slowed(self) -> bool:
        """Whether the device protects itself, so that its times are not its own."""
        return not SLOWED_BY.isdisjoint(self.reasons)


# An idle clock, a clock that was set, or the board's usual power limit belong to the device as it
# is; these do not.
SLOWED_BY = frozenset(
    {"hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown"}
)


class Program(Protocol):
    """A built kernel. `options` are the compiler's, `log` its output."""

    options: str
    log: str

    def resident_per_unit(self, entry: str, threads: int, shared_bytes: int) -> int:
        """Blocks of `threads` threads that one multiprocessor holds at once, at least 1.

        `shared_bytes` is what a launch asks for beside what is compiled in.
        """

    def registers(self, entry: str) -> int | None:
        """Registers per thread where the backend tells."""


class Bound(Protocol):
    """A launch bound to buffers, ready to run."""

    def run(self) -> None:
        """Launch once and wait. Raises LaunchFailedError or DeviceLostError."""

    def sample(self, launches: int, met: Condition = USUAL) -> float:
        """Seconds per launch over so many launches that meet this condition, by the device's clock.

        Raises LaunchRefusedError where what is bound cannot be launched so.
        """


@dataclass(frozen=True)
class Sample:
    """A sample to take: `launches` of `bound`, and what they meet."""

    bound: Bound
    launches: int
    met: Condition = USUAL

    def take(self) -> float:
        """Take it alone; seconds per launch."""
        return self.bound.sample(self.launches, self.met)


@dataclass(frozen=True)
class Witnesses:
    """What is looked at after a run: its output, with what that must be, and what is beside it.

    The `guarded` buffers have zones around them that must stay as they are; the `inputs` themselves
    must.
    """

    output: Any
    expected: Any
    guarded: Sequence[Any]
    inputs: Sequence[Any]


@dataclass(frozen=True)
class Proven:
    """What a run on poisoned output did: its seconds, and what its witnesses tell.

    `wrong_words` of the output differ; `strays` and `sums` are those of the guarded buffers and of
    the inputs, as `Device.strays` (of the far words a part) and `checksums` give them.
    """

    seconds: float
    wrong_words: int
    strays: Sequence[Strays]
    sums: Sequence[int]


class Device(ABC):
    """One open device. Buffers and images are opaque to the caller.

    Where a method takes a buffer without a word on images, an image serves as well. Around an image
    are no guard zones. What a backend has none of (images, a library, sensors, pinned memory) it
    leaves as it is here.
    """

    info: DeviceInfo
    # Which machine code the device runs (see `builds.KernelBuild`), and what to ask the backend's
    # compiler for to have it made.
    target: str
    request: BuildRequest
    _buffers: GuardedBuffers

    @abstractmethod
    def translated(self) -> AbstractContextManager[None]:
        """Context manager that turns the backend's errors into `core.errors`."""

    @abstractmethod
    def build(self, folder: Path, dtype: DType, defines: Mapping[str, str]) -> Program:
        """Compile the folder's source for this device. Raises BuildError."""

    @abstractmethod
    def load(self, build: VersionBuild) -> Program:
        """The program of machine code that was compiled before, for `target`.

        Raises BuildError where there is none that the device takes.
        """

    def upload(self, array: npt.NDArray[Any]) -> Any:
        """A device buffer holding `array`. Raises OutOfDeviceMemoryError."""
        return self._buffers.upload(array)

    def allocate(self, nbytes: int) -> Any:
        """A buffer of undefined content. Raises OutOfDeviceMemoryError."""
        return self._buffers.allocate(nbytes)

    def guard(self, buffer: Any) -> None:
        """Make the zones around `buffer`, which is no image, as they were before any stray."""
        self._buffers.guard(buffer)

    def strays(self, buffers: Sequence[Any]) -> list[Strays]:
        """Words that were written around each of the buffers, none of them an image."""
        return self._buffers.strays(buffers)

    def checksums(self, buffers: Sequence[Any]) -> list[int]:
        """A 32-bit number for the content of each of the buffers, none of them an image.

        Two contents that differ in one word never have the same one.
        """
        return self._buffers.checksums(buffers)

    def mismatches(self, buffer: Any, expected: Any) -> int:
        """Number of 32-bit words in which the two differ, counted on the device.

        `expected` is no image; rows of an image follow each other in it without a gap.
        """
        return self._buffers.mismatches(self._linear(buffer), expected)

    def words(self, buffer: Any, begin: int, count: int) -> npt.NDArray[np.uint32]:
        """`count` 32-bit words of `buffer` from the word `begin` on, on the host."""
        return self._buffers.words(self._linear(buffer), begin, count)

    def poison(self, buffer: Any) -> None:
        """Overwrite `buffer` with all-ones words: NaN as floats, which no verified output holds."""
        with self.translated():
            self._queue_poison(buffer)
            self._finish()

    def _queue_poison(self, buffer: Any) -> None:
        words = buffer.linear() if isinstance(buffer, Image) else buffer
        self._queue_ones(words)
        if isinstance(buffer, Image):
            buffer.copy_from(words)

    @abstractmethod
    def _queue_ones(self, words: Any) -> None:
        """Queue what fills a buffer with all-ones words."""

    @abstractmethod
    def _finish(self) -> None:
        """Wait for all that was queued."""

    def image_refusal(self, problem: Problem, dtype: DType) -> str | None:
        """Why the device has no image of so many texels of this type; None when it has."""
        return image_refusal(self.info, problem)

    def allocate_image(self, problem: Problem, dtype: DType) -> Any:
        """An image of undefined content. Raises LaunchRefusedError or OutOfDeviceMemoryError."""
        refusal = self.image_refusal(problem, dtype)
        if refusal is not None:
            raise LaunchRefusedError(f"There is no such image: {refusal}.")
        with self.translated():
            return self._new_image(problem, dtype)

    def upload_image(self, array: npt.NDArray[Any], dtype: DType) -> Any:
        """An image that holds `array` of shape (height, width[, lanes]). Raises as above."""
        image = self.allocate_image(Problem(*array.shape[:2]), dtype)
        with self.translated():
            self._fill_image(image, np.ascontiguousarray(array))
        return image

    def _new_image(self, problem: Problem, dtype: DType) -> Any:
        """An image that was not refused, of undefined content."""
        raise NotImplementedError

    def _fill_image(self, image: Any, array: npt.NDArray[Any]) -> None:
        """Copy all of `array` into an image and wait."""
        raise NotImplementedError

    def _linear(self, buffer: Any) -> Any:
        """The buffer itself, or one with the texels of an image, once what is queued is done."""
        if not isinstance(buffer, Image):
            return buffer
        with self.translated():
            buffer.copy_to(buffer.linear())
        return buffer.linear()

    @abstractmethod
    def bind(self, program: Any, launch: Launch, buffers: Mapping[str, Any]) -> Bound:
        """Prepare a launch of a program that this device built.

        Raises LaunchRefusedError when the block or grid is over a limit.
        """

    def bind_library(self, call: LibraryCall, buffers: Mapping[str, Any]) -> Bound:
        """Prepare a call of the vendor's library. Raises LaunchRefusedError where it has none."""
        raise LaunchRefusedError(f"There is no library that computes '{call.name}'.")

    def bind_copy(self, source: Any, target: Any) -> Bound:
        """The runtime's own device-to-device copy of a whole buffer: the peer of every kernel.

        One of the two, but not both, may be an image.
        """
        if isinstance(source, Image):
            return self._bound(lambda: source.copy_to(target))
        if isinstance(target, Image):
            return self._bound(lambda: target.copy_from(source))
        return self._bound(lambda: self._queue_copy(source, target))

    @abstractmethod
    def _bound(self, enqueue: Callable[[], Any]) -> Bound:
        """A command that is ready to be queued, and to be timed."""

    @abstractmethod
    def _queue_copy(self, source: Any, target: Any) -> Any:
        """Queue a copy of a whole buffer."""

    def sample_all(self, samples: Sequence[Sample]) -> Sequence[float | TypedError]:
        """Take the samples in this order, if possible without waiting between them.

        Seconds per launch of each, or what went wrong with it. Raises DeviceLostError.
        """
        return take_each(samples)

    def prove_all(
        self, proofs: Sequence[Bound], witnesses: Witnesses
    ) -> Sequence[Proven | TypedError]:
        """Run each once on poisoned output and look at the witnesses after it.

        In this order, if possible without waiting between them. What happened, or what went wrong.
        Raises DeviceLostError.
        """
        return prove_each(self, proofs, witnesses)

    @abstractmethod
    def open_stream(self) -> Stream:
        """A new stream, which does not wait for what other streams hold."""

    def bind_in_turn(self, fed: FedInTurn) -> InTurn:
        """Prepare feeding pieces one after another. Raises as `bind` does."""
        return StreamsInTurn(self.open_stream, self.poison, fed)

    def host_array(self, array: npt.NDArray[Any], pinned: bool) -> npt.NDArray[Any]:
        """A flat copy of `array` in host memory, `pinned` so that the device reads it by itself."""
        flat = np.ascontiguousarray(array).reshape(-1)
        if not pinned or not flat.size:
            return flat.copy()
        with self.translated():
            held = self._pinned_like(flat)
        held[:] = flat
        return held

    def _pinned_like(self, flat: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """An array of this length and type, of undefined content."""
        return np.empty_like(flat)

    def reading(self) -> Reading | None:
        """Clocks, temperature, power and throttle reasons now; None where nothing tells."""
        return None

    def energy_mj(self) -> int | None:
        """What the device has used since its driver was loaded, in mJ; None where nothing tells."""
        return None

    def close(self) -> None:
        """Wait; what the device holds goes with the process. It is not to be used any more."""
        self._finish()


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


def prove_each(
    device: Device,
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


def image_refusal(info: DeviceInfo, problem: Problem) -> str | None:
    """Why no image of the device has so many texels, whatever its type; None when one has."""
    if info.max_image is None:
        return "the device has no images"
    width, height = info.max_image
    if problem.width > width or problem.height > height:
        return (
            f"an image of {problem.height} x {problem.width} texels is too large; the device takes "
            f"{height} x {width}"
        )
    return None


def check_limits(launch: Launch, info: DeviceInfo) -> None:
    """Raise LaunchRefusedError when block or grid exceed the device's limits."""
    if launch.threads > info.max_threads_per_block:
        raise LaunchRefusedError(
            f"{launch.threads} threads a block; the device takes {info.max_threads_per_block}."
        )
    for axis, size, limit in zip("xyz", launch.block, info.max_block, strict=True):
        if size > limit:
            raise LaunchRefusedError(f"block {axis} is {size}; the device takes {limit}.")
    for axis, size, limit in zip("xyz", launch.grid, info.max_grid, strict=True):
        if size > limit:
            raise LaunchRefusedError(f"grid {axis} is {size}; the device takes {limit}.")


def flush_bytes(info: DeviceInfo) -> int:
    """Bytes to write so that nothing of use is left in the last cache level: its size.

    NVIDIA's harness does the same, and on an H200 twice as much gives the same times to 0.5 %.
    256 MiB where the device does not tell its cache.
    """
    return info.cache or 256 * 2**20


# Instead of a clock: the one that a device holds at its rated power.
BASE = "base"


class ClocksNotLockedError(Exception):
    """The clocks stay free; one clause that says why."""


@dataclass(frozen=True)
class LockedClocks:
    """How a device is held: ``base`` or MHz of the core, MHz of the memory, None where it is free.

    `why` the clocks were not locked, where they were not.
    """

    core: int | str | None
    memory_mhz: int | None = None
    why: str | None = None


class ClockLock(Protocol):
    """The clocks of one device, which are held."""

    told: LockedClocks

    def free(self) -> None:
        """Let the device choose its clocks again. Raises ClocksNotLockedError where it cannot."""


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
