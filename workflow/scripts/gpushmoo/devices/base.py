"""Define the protocol of backends and devices, with the code that all devices share."""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

import numpy as np
import numpy.typing as npt

from ..core.backends import Backend
from ..core.dtypes import DType
from ..core.errors import BuildError, DeviceLostError, LaunchConfigError, TypedError
from ..core.space import USUAL, Condition, Problem, Version
from ..workloads.contract import Launch, LibraryCall, NullRef, SharedMemory
from ..workloads.loader import KernelFolder
from .build_file import BuildRequest, EntryFacts, VersionBuild
from .capabilities import Clocks, Constants, Counters, Images, Limits, Power
from .memory import (
    HOST_PART,
    POISON_BYTES,
    STRIDE,
    Check,
    Checksum,
    Deviation,
    Differing,
    Image,
    OutOfBoundsWrites,
    Output,
    ProofBuffers,
    ProofResult,
    Strays,
    Tolerance,
    WordPairs,
    deviation,
)
from .streams import Streams


@dataclass(frozen=True)
class DeviceInfo:
    """Properties of an open device.

    Attributes
    ----------
    backend, name, driver, runtime
        Names and versions.
    uuid
        Identity of the device on this host, for its lock.
    kind
        ``gpu`` or ``cpu``.
    multiprocessors
        Number of multiprocessors, or of OpenCL's compute units.
    max_threads_per_block, max_block, max_grid
        Limits on threads in a block, and on the sides of block and grid in x, y and z.
    global_memory, max_allocation
        Bytes of memory, and of the largest buffer. For a CPU, those that are free at this moment.
    cache
        Bytes of the last cache level, or 0 if not known.
    core_clock_mhz
        Highest core clock in MHz, or 0 if not known.
    extra
        Properties that only one backend has (ECC, PCI bus, runtime settings), as strings.
    max_image
        Largest width and height of an image in texels, or None without images.
    """

    backend: str
    name: str
    uuid: str
    kind: str
    driver: str
    runtime: str
    multiprocessors: int
    max_threads_per_block: int
    max_block: tuple[int, int, int]
    max_grid: tuple[int, int, int]
    global_memory: int
    max_allocation: int
    cache: int
    core_clock_mhz: int
    extra: Mapping[str, str] = field(default_factory=dict)
    max_image: tuple[int, int] | None = None


# Bytes to which every buffer is aligned, and in how many such steps its begin is drawn: 4 MiB are
# two pages of a GPU.
ALIGNMENT = 512
PLACES_OF_A_BUFFER = 2**13
# The memory of a device. PoCL reports less of all three while its host has less memory free.
_ROOM = ("global_memory", "max_allocation", "max_image")


def identity(device: Mapping[str, Any]) -> dict[str, Any]:
    """Return the properties of a device that change times, including those in `extra`.

    For a CPU, the clock is not one of them, because it is that of the moment.

    Parameters
    ----------
    device
        Fields of a `DeviceInfo`.
    """
    left_out = {*_ROOM, "extra", *(["core_clock_mhz"] if device["kind"] == "cpu" else [])}
    return {**{k: v for k, v in device.items() if k not in left_out}, **device["extra"]}


def steady_room(info: DeviceInfo) -> tuple[int, int]:
    """Return the bytes of memory and of the largest buffer that stay constant during a run.

    For a CPU, both are the memory of the host.
    """
    if info.kind != "cpu":
        return info.global_memory, info.max_allocation
    host = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return host, host


class Program(Protocol):
    """A compiled and loaded kernel.

    Attributes
    ----------
    options
        Options of the compiler.
    log
        Messages of the compiler.
    facts
        Decisions of the compiler by kernel function, see `VersionBuild`.
    """

    options: str
    log: str
    facts: Mapping[str, EntryFacts]

    def resident_blocks(self, launch: Launch) -> int:
        """Return how many blocks of a launch fit on one multiprocessor at once, at least 1."""

    def registers(self, entry: str) -> int | None:
        """Return the registers per thread of the kernel function `entry`, or None if unknown."""


class PreparedLaunch(Protocol):
    """A launch bound to buffers, ready to run."""

    def run(self) -> None:
        """Launch once, and wait for its end.

        Raises
        ------
        LaunchFailedError
            If the launch fails.
        DeviceLostError
            If the device is not usable after it.
        """

    def sample(self, launches: int, met: Condition = USUAL) -> float:
        """Return the mean time of a launch in seconds, by the device's clock.

        Parameters
        ----------
        launches
            Number of launches.
        met
            Measurement condition.

        Raises
        ------
        LaunchConfigError
            If launches cannot be timed in this timing mode.
        """

    def interval(self, met: Condition) -> TimedInterval:
        """Return which interval the clock times in a sample under the condition `met`."""


class TimedInterval(StrEnum):
    """Interval that the clock times in a sample.

    `LAUNCH`: begin and end of each launch. `ROW`: all launches of a sample in a row, so that the
    overhead counts once. `EACH`: one launch and the events around it, which no number of launches
    can separate.
    """

    LAUNCH = "launch"
    ROW = "row"
    EACH = "each"


@dataclass(frozen=True)
class Sample:
    """A sample to take: `launches` launches of `bound` under the condition `met`."""

    bound: PreparedLaunch
    launches: int
    met: Condition = USUAL

    def take(self) -> float:
        """Take the sample alone, and return the mean time of a launch in seconds."""
        return self.bound.sample(self.launches, self.met)


class Library(Protocol):
    """Functions of the vendor's library, see `Device.library`."""

    def bind(self, call: LibraryCall, buffers: Mapping[str, Any]) -> PreparedLaunch:
        """Prepare a call of a function on buffers.

        Parameters
        ----------
        call
            The function and its arguments.
        buffers
            Buffers by name.

        Raises
        ------
        LaunchConfigError
            If the library has no such function.
        """


class Batches(Protocol):
    """Queues many commands at once, so that a device does not wait, see `Device.batches`."""

    def sample(self, samples: Sequence[Sample]) -> Sequence[float | TypedError]:
        """Take samples without a wait between them.

        Returns
        -------
        list
            Mean time of a launch in seconds, or the error, of each sample.

        Raises
        ------
        DeviceLostError
            If the device is lost.
        """

    def prove(
        self, proofs: Sequence[PreparedLaunch], proof_buffers: ProofBuffers
    ) -> Sequence[ProofResult | TypedError]:
        """Run launches on poisoned output without a wait between them, and verify each.

        Parameters
        ----------
        proofs
            Launches to verify.
        proof_buffers
            Buffers to check after each.

        Returns
        -------
        list
            Result or error of each launch.

        Raises
        ------
        DeviceLostError
            If the device is lost.
        """


class Device(ABC):
    """One open device. Its buffers and images are opaque to the caller.

    A buffer is the middle of a larger allocation between guard zones. A method that accepts a
    buffer also accepts an image, which has no guard zones, unless documented otherwise. A
    capability that the device lacks is None.
    """

    info: DeviceInfo
    # Names the machine code that the device runs (see `build_file.KernelBuild`).
    target: str
    # Asks the backend's compiler for that code.
    request: BuildRequest
    batches: Batches | None = None
    constants: Constants | None = None
    images: Images | None = None
    library: Library | None = None
    limits: Limits | None = None
    streams: Streams | None = None
    power: Power | None = None
    counters: Counters | None = None
    # Draws where the next buffers begin in their allocations; None: at the first byte.
    placement: np.random.Generator | None = None

    # What every backend must do.

    @abstractmethod
    def translated(self) -> AbstractContextManager[None]:
        """Return a context manager that converts the backend's errors to those of `core.errors`."""

    @abstractmethod
    def build(
        self, folder: Path, dtype: DType, defines: Mapping[str, str], options: Sequence[str] = ()
    ) -> Program:
        """Compile the source in a kernel's folder for this device.

        Parameters
        ----------
        folder
            The kernel's folder.
        dtype
            Element type.
        defines
            Macros by name.
        options
            Additional options of the compiler.

        Raises
        ------
        BuildError
            If the source does not compile.
        """

    @abstractmethod
    def load(self, build: VersionBuild) -> Program:
        """Load machine code that was compiled before for `target`.

        Parameters
        ----------
        build
            The machine code of a version.

        Raises
        ------
        BuildError
            If there is no machine code, or if the runtime does not accept it.
        """

    @abstractmethod
    def bind(
        self,
        program: Any,
        launch: Launch,
        buffers: Mapping[str, Any],
        renew: Callable[[], None] | None = None,
    ) -> PreparedLaunch:
        """Prepare a launch of a program that this device built.

        Parameters
        ----------
        program
            The program.
        launch
            Kernel function, grid, block and arguments.
        buffers
            Buffers by name, to which the arguments refer.
        renew
            Queues commands that restore the content of buffers. If given, it is called before each
            timed launch, and launches are timed one by one.

        Raises
        ------
        LaunchConfigError
            If block or grid exceeds a limit.
        """

    @abstractmethod
    def time(self, enqueue: Callable[[], Any]) -> PreparedLaunch:
        """Prepare a command of the device to be run and timed.

        Parameters
        ----------
        enqueue
            Function that queues the command.
        """

    @abstractmethod
    def allocate(self, nbytes: int) -> Any:
        """Return a new buffer of `nbytes` bytes with undefined content.

        Raises
        ------
        OutOfDeviceMemoryError
            If the device has too little memory.
        """

    @abstractmethod
    def upload(self, array: npt.NDArray[Any]) -> Any:
        """Return a new buffer with the content of `array`.

        Raises
        ------
        OutOfDeviceMemoryError
            If the device has too little memory.
        """

    @abstractmethod
    def guard(self, buffer: Any) -> None:
        """Write the guard word to the zones around `buffer`, which must not be an image."""

    @abstractmethod
    def read(self, buffer: Any, begin: int, count: int) -> npt.NDArray[np.uint32]:
        """Return `count` 32-bit words of a buffer that is not an image, from word `begin` on."""

    @abstractmethod
    def copy(self, source: Any, target: Any) -> Any:
        """Queue a copy of a whole buffer. Neither buffer may be an image."""

    @abstractmethod
    def fill(self, words: Any, byte: int, but: int) -> None:
        """Queue a command that fills a buffer, except its last `but` bytes, with `byte`."""

    @abstractmethod
    def check(self, check: Check, buffer: Any, found: Any) -> None:
        """Queue a kernel that adds the result of a check on `buffer` to the words of `found`."""

    @abstractmethod
    def count(self, buffers: Sequence[Any], queue: Callable[[Any, Any], None]) -> WordPairs:
        """Return the results of kernels that add to two 32-bit words for each buffer.

        Parameters
        ----------
        buffers
            Buffers to check.
        queue
            Queues the kernels for a buffer, given the buffer and its two words on the device.

        Returns
        -------
        array of shape (buffers, 2)
            The words.
        """

    @abstractmethod
    def wait(self) -> None:
        """Wait until all queued commands are done."""

    # What all devices share.

    def queue_comparison(self, words: Any, output: Output, found: Any) -> None:
        """Queue a kernel that compares an output, and writes two words that `deviation` interprets.

        Parameters
        ----------
        words
            Linear buffer with the output.
        output
            Expected values and tolerance.
        found
            Buffer of two words for the result.
        """
        if output.tolerance is None:
            self.check(Differing(output.expected), words, found)
        else:
            assert self.limits is not None
            self.limits.queue(words, output, output.tolerance, found)

    def strays(self, buffers: Sequence[Any]) -> list[OutOfBoundsWrites]:
        """Count the words that were written in the guard zones around buffers.

        Far from a buffer, only one word in STRIDE is read. If any word was written, all words are
        counted.

        Parameters
        ----------
        buffers
            Buffers, none of which is an image.
        """
        return [
            self._strays([buffer], 1)[0] if strays else strays
            for buffer, strays in zip(buffers, self._strays(buffers, STRIDE), strict=True)
        ]

    def _strays(self, buffers: Sequence[Any], stride: int) -> list[OutOfBoundsWrites]:
        """Count written words in the guard zones, reading one far word in `stride`."""
        found = self.count(buffers, partial(self.check, Strays(stride)))
        return [OutOfBoundsWrites(int(before), int(past)) for before, past in found]

    def checksums(self, buffers: Sequence[Any]) -> list[int]:
        """Return a 32-bit checksum of each buffer, which always changes if one word changes."""
        return [int(total) for total, _ in self.count(buffers, partial(self.check, Checksum()))]

    def mismatches(self, buffer: Any, expected: Any) -> int:
        """Return the number of 32-bit words in which two buffers differ."""
        return self.compare(Output(buffer, expected)).wrong

    def compare(self, output: Output) -> Deviation:
        """Return how an output differs from its expected values.

        The device compares if it supports the tolerance, otherwise the host does.
        """
        within = output.tolerance
        if within is not None and (self.limits is None or not self.limits.judges(within.limit)):
            return self._compared_on_host(output, within)
        found = self.count(
            [self.linear(output.buffer)],
            lambda words, row: self.queue_comparison(words, output, row),
        )
        return deviation(output, found[0])

    def _compared_on_host(self, output: Output, within: Tolerance) -> Deviation:
        """Compare an output within a tolerance on the host."""
        count, worst = 0, 0.0
        for begin in range(0, within.n, HOST_PART):
            size = min(HOST_PART, within.n - begin)
            found = elements_of(self, output.buffer, within.scalar, begin, size)
            expected = elements_of(self, output.expected, within.scalar, begin, size)
            wrong, share = within.limit.judged(found, expected, begin)
            count += int(wrong.sum())
            worst = float(np.fmax(worst, np.fmax.reduce(share)))
        return Deviation(count, worst)

    def words(self, buffer: Any, begin: int, count: int) -> npt.NDArray[np.uint32]:
        """Return `count` 32-bit words of `buffer` from word `begin` on, as an array on the host."""
        return self.read(self.linear(buffer), begin, count)

    def poison(self, buffer: Any) -> None:
        """Fill `buffer` with words of ones, which are NaN in every float type, and wait."""
        with self.translated():
            self._queue_poison(buffer)
            self.wait()

    def _queue_poison(self, buffer: Any, byte: int = POISON_BYTES[0], padding: int = 0) -> None:
        """Queue commands that fill a buffer with `byte`, except its last `padding` bytes."""
        words = buffer.linear() if isinstance(buffer, Image) else buffer
        self.fill(words, POISON_BYTES[0], 0)
        if byte != POISON_BYTES[0]:
            self.fill(words, byte, padding)
        if isinstance(buffer, Image):
            buffer.copy_from(words)

    def prepare(self, output: Output, poison: int = POISON_BYTES[0]) -> None:
        """Write into an output what a launch finds there: its content, or poison. Wait for it."""
        with self.translated():
            self.queue_preparation(output, poison)
            self.wait()

    def queue_preparation(self, output: Output, poison: int = POISON_BYTES[0]) -> None:
        """Queue a copy of the output's content, or its poison, without waiting for it."""
        if output.content is None:
            self._queue_poison(output.buffer, poison, output.padding)
        else:
            self.copy(output.content, output.buffer)

    def linear(self, buffer: Any) -> Any:
        """Return the buffer itself, or a buffer with the texels of an image."""
        if not isinstance(buffer, Image):
            return buffer
        with self.translated():
            buffer.copy_to(buffer.linear())
        return buffer.linear()

    def bind_copy(self, source: Any, target: Any) -> PreparedLaunch:
        """Prepare the runtime's device-to-device copy of a buffer, the baseline of every kernel.

        One of the two, but not both, may be an image.
        """
        if isinstance(source, Image):
            return self.time(lambda: source.copy_to(target))
        if isinstance(target, Image):
            return self.time(lambda: target.copy_from(source))
        return self.time(lambda: self.copy(source, target))

    def drawn_offset(self) -> int:
        """Return the number of bytes by which the next buffer is shifted in its allocation.

        It is drawn if `placement` is set, so that repeats use different addresses.
        """
        if self.placement is None:
            return 0
        return int(self.placement.integers(PLACES_OF_A_BUFFER)) * ALIGNMENT

    def sample_all(self, samples: Sequence[Sample]) -> Sequence[float | TypedError]:
        """Take samples, if possible without a wait between them.

        Returns
        -------
        list
            Mean time of a launch in seconds, or the error, of each sample.

        Raises
        ------
        DeviceLostError
            If the device is lost.
        """
        if self.batches is None:
            return each_or_error(Sample.take, samples)
        return self.batches.sample(samples)

    def prove_all(
        self, proofs: Sequence[PreparedLaunch], proof_buffers: ProofBuffers
    ) -> Sequence[ProofResult | TypedError]:
        """Run launches on poisoned output and verify each, if possible without a wait between them.

        Parameters
        ----------
        proofs
            Launches to verify.
        proof_buffers
            Buffers to check after each.

        Returns
        -------
        list
            Result or error of each launch.

        Raises
        ------
        DeviceLostError
            If the device is lost.
        """
        if self.batches is None:
            return prove_each(self, proofs, proof_buffers)
        return self.batches.prove(proofs, proof_buffers)

    def close(self) -> None:
        """Wait for the last command. The system frees the memory when the process ends."""
        self.wait()


def image_refusal(device: Device, problem: Problem, dtype: DType) -> str | None:
    """Return why the device does not support such images, as a clause, or None if it does.

    Parameters
    ----------
    device
        The device.
    problem
        Height and width of the image in texels.
    dtype
        Type of a texel.
    """
    if device.images is None:
        return "the device has no images"
    return device.images.refusal(problem, dtype)


def bind_library(device: Device, call: LibraryCall, buffers: Mapping[str, Any]) -> PreparedLaunch:
    """Prepare a call of the vendor's library; raise LaunchConfigError if the device lacks it."""
    if device.library is None:
        raise LaunchConfigError(f"There is no library that computes '{call.name}'.")
    return device.library.bind(call, buffers)


def set_constants(
    device: Device, program: Program, constants: Mapping[str, npt.NDArray[Any]]
) -> None:
    """Copy arrays from the host to the constant memory of a loaded program.

    Parameters
    ----------
    device
        The device that the program is loaded on.
    program
        The loaded program.
    constants
        Arrays by the names of their ``__constant__`` symbols in the program; at least one.

    Raises
    ------
    BuildError
        If the backend cannot set constant memory by the name of a symbol, or if the program has no
        such symbol, or the symbol has fewer bytes than the array.
    """
    if device.constants is None:
        raise BuildError(
            f"constants: {device.info.backend} sets no constant memory by the name of a symbol; "
            f"pass '{next(iter(constants))}' as an argument.",
            "",
        )
    device.constants.write(program, constants)


def images_of(device: Device) -> Images:
    """Return the images of a device; raise LaunchConfigError if it does not support them."""
    if device.images is None:
        raise LaunchConfigError("There is no such image: the device has no images.")
    return device.images


def streams_of(device: Device) -> Streams:
    """Return the streams of a device; raise LaunchConfigError if it does not support them."""
    if device.streams is None:
        raise LaunchConfigError("The device has no streams, which feed it from the host.")
    return device.streams


T = TypeVar("T")
R = TypeVar("R")


def elements_of(
    device: Device, buffer: Any, scalar: np.dtype[Any], begin: int, count: int
) -> npt.NDArray[Any]:
    """Return elements of a buffer as an array on the host.

    Parameters
    ----------
    device, buffer
        The device, and its buffer.
    scalar
        NumPy type of an element.
    begin
        Index of the first element. It must be at the beginning of a 32-bit word.
    count
        Number of elements.
    """
    first, words = begin * scalar.itemsize // 4, -(-count * scalar.itemsize // 4)
    return device.words(buffer, first, words).view(scalar)[:count]


def each_or_error(act: Callable[[T], R], items: Iterable[T]) -> list[R | TypedError]:
    """Return the result of `act` for each item, or the error that it raised for the item.

    Raises
    ------
    DeviceLostError
        If the device is lost.
    """
    results: list[R | TypedError] = []
    for item in items:
        try:
            results.append(act(item))
        except DeviceLostError:
            raise
        except TypedError as err:
            results.append(err)
    return results


def prove_each(
    device: Device,
    proofs: Sequence[PreparedLaunch],
    proof_buffers: ProofBuffers,
    clock: Callable[[], float] = time.monotonic,
) -> list[ProofResult | TypedError]:
    """Do the same as `Device.prove_all` one launch at a time, for a device without `Batches`.

    Parameters
    ----------
    device
        The device.
    proofs
        Launches to verify.
    proof_buffers
        Buffers to check after each.
    clock
        Returns the time in seconds.
    """

    def prove(proof: PreparedLaunch) -> ProofResult:
        for output in proof_buffers.outputs:
            device.prepare(output, proof_buffers.poison)
        before = clock()
        proof.run()
        seconds = clock() - before
        deviations = [device.compare(output) for output in proof_buffers.outputs]
        strays, sums = device.strays(proof_buffers.guarded), device.checksums(proof_buffers.inputs)
        return ProofResult(seconds, deviations, strays, sums)

    return each_or_error(prove, proofs)


def flush_bytes(info: DeviceInfo) -> int:
    """Return the number of bytes to write so that the last cache level contains no useful data.

    It is the size of that cache, as in NVIDIA's nvbench. On an H200, twice as many bytes give the
    same times within 0.5 %. If the size is not known, it is 256 MiB.

    Parameters
    ----------
    info
        Properties of the device.
    """
    return info.cache or 256 * 2**20


class BackendModule(Protocol):
    """Functions of a backend's module. Importing the module imports no library of the backend."""

    def open_device(self, index: int, runtime: str, cache: Path) -> Device:
        """Open a device in this process.

        Parameters
        ----------
        index
            Index of the device, from 0.
        runtime
            One of the backend's runtimes, if it has any.
        cache
            Folder in which the backend may keep files between processes.

        Raises
        ------
        NoDeviceError
            With one sentence on the missing part.
        """

    def list_devices(self, wanted: int | None) -> Sequence[tuple[int, str]] | None:
        """Return index and UUID of devices without opening any.

        Parameters
        ----------
        wanted
            Index of a device, or None for all.

        Returns
        -------
        list or None
            None if a device reports its UUID only once it is open.

        Raises
        ------
        NoDeviceError
            If there is no such device.
        """

    def count_devices(self) -> int:
        """Return the number of devices that this process can probably use.

        It is called only for a backend with ``claims_gpu``.
        """

    def clocks(self, uuid: str) -> Clocks:
        """Return the clocks of a device that this process does not open.

        It is called only for a backend with ``locks_clocks``.

        Parameters
        ----------
        uuid
            UUID of the device.
        """

    def targets(self, request: BuildRequest) -> tuple[str, ...]:
        """Return the targets of the requested devices, see `KernelBuild`.

        Raises
        ------
        NoDeviceError
            If there is no such device.
        """

    def compile_version(
        self, request: BuildRequest, folder: KernelFolder, dtype: str, version: Version, target: str
    ) -> VersionBuild:
        """Compile a version of a kernel, and read its machine code if the backend can.

        Parameters
        ----------
        request
            Options and cache of the compiler.
        folder
            The kernel.
        dtype
            Name of the element type.
        version
            Defines of a variant, and of the axes that are compiled in.
        target
            The devices to compile for, see `KernelBuild`.

        Raises
        ------
        BuildError, WorkloadError
            If the source does not compile, or if the workload raises an error.
        NoDeviceError
            If there is no compiler.
        """


def functions_of(backend: Backend) -> BackendModule:
    """Return the module of `backend`, which the first call imports."""
    return cast(BackendModule, import_module(backend.module))


def completed(launch: Launch, program: Program) -> Launch:
    """Return a launch with the block and the arguments that the compiler chose, if it chose them.

    Parameters
    ----------
    launch
        The launch as the workload describes it.
    program
        The compiled kernel.
    """
    facts = program.facts.get(launch.entry)
    if facts is None or facts.block is None or launch.block == facts.block:
        return launch
    args = [a for place, a in enumerate(launch.args) if place not in facts.left_out]
    args += [NullRef()] * facts.hidden
    args += [SharedMemory(facts.shared_bytes)] if facts.shared_bytes else []
    return replace(launch, block=facts.block, args=tuple(args))


def fitted(launch: Launch, program: Program, info: DeviceInfo) -> Launch:
    """Return a completed launch whose grid has the number of waves that the launch requests.

    Parameters
    ----------
    launch
        The launch as the workload describes it.
    program
        The compiled kernel.
    info
        Properties of the device.
    """
    launch = completed(launch, program)
    if not launch.waves:
        return launch
    resident = program.resident_blocks(launch)
    return launch.in_waves(info.multiprocessors * resident)


def check_limits(launch: Launch, info: DeviceInfo) -> None:
    """Raise LaunchConfigError if block or grid exceeds the limits of the device."""
    if launch.threads > info.max_threads_per_block:
        raise LaunchConfigError(
            f"{launch.threads} threads a block; the device takes {info.max_threads_per_block}."
        )
    sizes = (("block", launch.block, info.max_block), ("grid", launch.grid, info.max_grid))
    for what, given, most in sizes:
        for axis, size, limit in zip("xyz", given, most, strict=True):
            if size > limit:
                raise LaunchConfigError(f"{what} {axis} is {size}; the device takes {limit}.")
