"""The contract of a backend: its module and its devices, with the code that all devices share."""

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
    """Facts about a device. Sizes are in bytes; `units` counts multiprocessors or compute units.

    `kind` is ``gpu`` or ``cpu``. `uuid` names the device on this host, for its lock. `max_image` is
    the largest width and height of an image in texels, None without images. The memory and the
    largest buffer of a CPU are those free at this moment. `extra` holds facts of one backend only
    (ECC, PCI bus, runtime settings), as strings.
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
    """The facts that change times, with `extra`; a CPU's clock is that of the moment."""
    left_out = {*_ROOM, "extra", *(["core_clock_mhz"] if device["kind"] == "cpu" else [])}
    return {**{k: v for k, v in device.items() if k not in left_out}, **device["extra"]}


def steady_room(info: DeviceInfo) -> tuple[int, int]:
    """Bytes of memory and of the largest buffer, throughout a run; of a CPU both are its host's."""
    if info.kind != "cpu":
        return info.global_memory, info.max_allocation
    host = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return host, host


class Program(Protocol):
    """A built kernel. `options` are the compiler's, `log` its output, `facts` a VersionBuild's."""

    options: str
    log: str
    facts: Mapping[str, EntryFacts]

    def resident_blocks(self, launch: Launch) -> int:
        """Blocks of a launch that one multiprocessor holds at once, at least 1."""

    def registers(self, entry: str) -> int | None:
        """Registers per thread; None if unknown."""


class PreparedLaunch(Protocol):
    """A launch bound to buffers, ready to run."""

    def run(self) -> None:
        """Launch once and wait. Raises LaunchFailedError or DeviceLostError."""

    def sample(self, launches: int, met: Condition = USUAL) -> float:
        """Seconds per launch by the device's clock, over `launches`. Raises LaunchConfigError."""

    def interval(self, met: Condition) -> TimedInterval:
        """Return what the clock's interval of a sample is around."""


class TimedInterval(StrEnum):
    """What a clock's interval is around.

    `LAUNCH`: a launch's own begin and end. `ROW`: all launches of a sample, and so its overhead
    once. `EACH`: one launch and the events around it, which no number of launches tells apart.
    """

    LAUNCH = "launch"
    ROW = "row"
    EACH = "each"


@dataclass(frozen=True)
class Sample:
    """A sample to take: `launches` of `bound` under the condition `met`."""

    bound: PreparedLaunch
    launches: int
    met: Condition = USUAL

    def take(self) -> float:
        """Take it alone; seconds per launch."""
        return self.bound.sample(self.launches, self.met)


class Library(Protocol):
    """The vendor's library of functions: `Device.library`."""

    def bind(self, call: LibraryCall, buffers: Mapping[str, Any]) -> PreparedLaunch:
        """Prepare a call. Raises LaunchConfigError if the library has no such function."""


class Batches(Protocol):
    """Queues much at once, so that the device does not wait for the host: `Device.batches`."""

    def sample(self, samples: Sequence[Sample]) -> Sequence[float | TypedError]:
        """Seconds per launch or error of each, in this order. Raises DeviceLostError."""

    def prove(
        self, proofs: Sequence[PreparedLaunch], proof_buffers: ProofBuffers
    ) -> Sequence[ProofResult | TypedError]:
        """The result or error of each proof, run on poisoned output. Raises DeviceLostError."""


class Device(ABC):
    """One open device. Buffers and images are opaque to the caller.

    A buffer is the middle of a larger allocation between guard zones. A method that takes a buffer
    also takes an image, which has no guard zones, unless documented otherwise. A capability that
    the device lacks is None.
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
        """Context manager that turns the backend's errors into `core.errors`."""

    @abstractmethod
    def build(
        self, folder: Path, dtype: DType, defines: Mapping[str, str], options: Sequence[str] = ()
    ) -> Program:
        """Compile the folder's source for this device. Raises BuildError."""

    @abstractmethod
    def load(self, build: VersionBuild) -> Program:
        """The program of machine code that was compiled before, for `target`. Raises BuildError."""

    @abstractmethod
    def bind(
        self,
        program: Any,
        launch: Launch,
        buffers: Mapping[str, Any],
        renew: Callable[[], None] | None = None,
    ) -> PreparedLaunch:
        """Prepare a launch of a program that this device built.

        With `renew`, launches are timed one by one, and it is called before each to queue what
        gives the buffers their content. Raises LaunchConfigError when the block or grid is over a
        limit.
        """

    @abstractmethod
    def time(self, enqueue: Callable[[], Any]) -> PreparedLaunch:
        """Make ready a command of the device, which `enqueue` queues, to be run and timed."""

    @abstractmethod
    def allocate(self, nbytes: int) -> Any:
        """A buffer of undefined content. Raises OutOfDeviceMemoryError."""

    @abstractmethod
    def upload(self, array: npt.NDArray[Any]) -> Any:
        """A device buffer that holds `array`. Raises OutOfDeviceMemoryError."""

    @abstractmethod
    def guard(self, buffer: Any) -> None:
        """Write the guard word to the zones around `buffer`, which must not be an image."""

    @abstractmethod
    def read(self, buffer: Any, begin: int, count: int) -> npt.NDArray[np.uint32]:
        """Read `count` words of a buffer, which must not be an image, from word `begin` on."""

    @abstractmethod
    def copy(self, source: Any, target: Any) -> Any:
        """Queue a copy of a whole buffer; neither is an image."""

    @abstractmethod
    def fill(self, words: Any, byte: int, but: int) -> None:
        """Queue a command that fills a buffer, `but` its last bytes, with this byte."""

    @abstractmethod
    def check(self, check: Check, buffer: Any, found: Any) -> None:
        """Queue a kernel that adds the result of a check on `buffer` to the words of `found`."""

    @abstractmethod
    def count(self, buffers: Sequence[Any], queue: Callable[[Any, Any], None]) -> WordPairs:
        """Return two words for each buffer, to which the kernels that `queue` queues for it add."""

    @abstractmethod
    def wait(self) -> None:
        """Wait until all queued commands are done."""

    # What all devices share.

    def queue_comparison(self, words: Any, output: Output, found: Any) -> None:
        """Queue a kernel that writes to two words what `deviation` reads."""
        if output.tolerance is None:
            self.check(Differing(output.expected), words, found)
        else:
            assert self.limits is not None
            self.limits.queue(words, output, output.tolerance, found)

    def strays(self, buffers: Sequence[Any]) -> list[OutOfBoundsWrites]:
        """Words written around each of the buffers, none of them an image.

        One far word in STRIDE is read; if any stray is found, all words are counted.
        """
        return [
            self._strays([buffer], 1)[0] if strays else strays
            for buffer, strays in zip(buffers, self._strays(buffers, STRIDE), strict=True)
        ]

    def _strays(self, buffers: Sequence[Any], stride: int) -> list[OutOfBoundsWrites]:
        found = self.count(buffers, partial(self.check, Strays(stride)))
        return [OutOfBoundsWrites(int(before), int(past)) for before, past in found]

    def checksums(self, buffers: Sequence[Any]) -> list[int]:
        """A 32-bit number for the content of each buffer; one changed word always changes it."""
        return [int(total) for total, _ in self.count(buffers, partial(self.check, Checksum()))]

    def mismatches(self, buffer: Any, expected: Any) -> int:
        """Return the number of 32-bit words in which the two differ; `expected` is a buffer."""
        return self.compare(Output(buffer, expected)).wrong

    def compare(self, output: Output) -> Deviation:
        """Return how an output differs from its expected values; the device counts if it can."""
        within = output.tolerance
        if within is not None and (self.limits is None or not self.limits.judges(within.limit)):
            return self._compared_on_host(output, within)
        found = self.count(
            [self.linear(output.buffer)],
            lambda words, row: self.queue_comparison(words, output, row),
        )
        return deviation(output, found[0])

    def _compared_on_host(self, output: Output, within: Tolerance) -> Deviation:
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
        """`count` 32-bit words of `buffer` from the word `begin` on, on the host."""
        return self.read(self.linear(buffer), begin, count)

    def poison(self, buffer: Any) -> None:
        """Overwrite `buffer` with all-ones words, which are NaN: no verified output holds it."""
        with self.translated():
            self._queue_poison(buffer)
            self.wait()

    def _queue_poison(self, buffer: Any, byte: int = POISON_BYTES[0], padding: int = 0) -> None:
        words = buffer.linear() if isinstance(buffer, Image) else buffer
        self.fill(words, POISON_BYTES[0], 0)
        if byte != POISON_BYTES[0]:
            self.fill(words, byte, padding)
        if isinstance(buffer, Image):
            buffer.copy_from(words)

    def prepare(self, output: Output, poison: int = POISON_BYTES[0]) -> None:
        """Write what a launch finds in an output: its content, or poison of this byte."""
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
        """The runtime's own device-to-device copy of a whole buffer: the peer of every kernel.

        One of the two, but not both, may be an image.
        """
        if isinstance(source, Image):
            return self.time(lambda: source.copy_to(target))
        if isinstance(target, Image):
            return self.time(lambda: target.copy_from(source))
        return self.time(lambda: self.copy(source, target))

    def drawn_offset(self) -> int:
        """Return the bytes by which the next buffer begins later in its allocation."""
        if self.placement is None:
            return 0
        return int(self.placement.integers(PLACES_OF_A_BUFFER)) * ALIGNMENT

    def sample_all(self, samples: Sequence[Sample]) -> Sequence[float | TypedError]:
        """Seconds per launch or error of each, in this order, unwaited. Raises DeviceLostError."""
        if self.batches is None:
            return each_or_error(Sample.take, samples)
        return self.batches.sample(samples)

    def prove_all(
        self, proofs: Sequence[PreparedLaunch], proof_buffers: ProofBuffers
    ) -> Sequence[ProofResult | TypedError]:
        """The result or error of each proof, run on poisoned output. Raises DeviceLostError."""
        if self.batches is None:
            return prove_each(self, proofs, proof_buffers)
        return self.batches.prove(proofs, proof_buffers)

    def close(self) -> None:
        """Wait for the last command. Memory is freed when the process ends."""
        self.wait()


def image_refusal(device: Device, problem: Problem, dtype: DType) -> str | None:
    """Return why the device has no such image, as a clause; None if it has."""
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
    """`count` elements of `buffer` from `begin` on, which begins a word, on the host."""
    first, words = begin * scalar.itemsize // 4, -(-count * scalar.itemsize // 4)
    return device.words(buffer, first, words).view(scalar)[:count]


def each_or_error(act: Callable[[T], R], items: Iterable[T]) -> list[R | TypedError]:
    """The result of `act` for each item, or the error that it raised. Raises DeviceLostError."""
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
    """`Device.prove_all` one by one, for a device without `Batches`."""

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
    """Bytes to write so that the last cache level holds nothing of use: its size.

    NVIDIA's harness does the same, and on an H200 twice as much gives the same times to 0.5 %.
    256 MiB for a device of unknown cache.
    """
    return info.cache or 256 * 2**20


class BackendModule(Protocol):
    """A backend's module. Importing it imports no library behind the backend."""

    def open_device(self, index: int, runtime: str, cache: Path) -> Device:
        """Open device `index` in this process; `runtime` is one of the record's, if it has any.

        The folder `cache` is the backend's between processes. Raises NoDeviceError with one
        sentence on the missing part.
        """

    def list_devices(self, wanted: int | None) -> Sequence[tuple[int, str]] | None:
        """Return index and UUID of device `wanted`, or of all for None, without opening any.

        The result is None if a device reports its UUID only once it is open. Raises NoDeviceError.
        """

    def count_devices(self) -> int:
        """How many devices a process here seems able to use; of a record with ``claims_gpu``."""

    def clocks(self, uuid: str) -> Clocks:
        """The clocks of a device, which this process does not open.

        Called only if the record says ``locks_clocks``.
        """

    def targets(self, request: BuildRequest) -> tuple[str, ...]:
        """The targets of the requested devices, see `KernelBuild`. Raises NoDeviceError."""

    def compile_version(
        self, request: BuildRequest, folder: KernelFolder, dtype: str, version: Version, target: str
    ) -> VersionBuild:
        """A version compiled for `target`, with the contents of its machine code if it is read.

        Raises BuildError, WorkloadError, or NoDeviceError without a compiler.
        """


def functions_of(backend: Backend) -> BackendModule:
    """The module of `backend`, imported on the first call."""
    return cast(BackendModule, import_module(backend.module))


def completed(launch: Launch, program: Program) -> Launch:
    """With the block and the arguments that the compiler of `program` chose, if it did."""
    facts = program.facts.get(launch.entry)
    if facts is None or facts.block is None or launch.block == facts.block:
        return launch
    args = [a for place, a in enumerate(launch.args) if place not in facts.left_out]
    args += [NullRef()] * facts.hidden
    args += [SharedMemory(facts.shared_bytes)] if facts.shared_bytes else []
    return replace(launch, block=facts.block, args=tuple(args))


def fitted(launch: Launch, program: Program, info: DeviceInfo) -> Launch:
    """Completed, its grid with as many waves of this device's blocks as it asks."""
    launch = completed(launch, program)
    if not launch.waves:
        return launch
    resident = program.resident_blocks(launch)
    return launch.in_waves(info.multiprocessors * resident)


def check_limits(launch: Launch, info: DeviceInfo) -> None:
    """Raise LaunchConfigError when block or grid exceed the device's limits."""
    if launch.threads > info.max_threads_per_block:
        raise LaunchConfigError(
            f"{launch.threads} threads a block; the device takes {info.max_threads_per_block}."
        )
    sizes = (("block", launch.block, info.max_block), ("grid", launch.grid, info.max_grid))
    for what, given, most in sizes:
        for axis, size, limit in zip("xyz", given, most, strict=True):
            if size > limit:
                raise LaunchConfigError(f"{what} {axis} is {size}; the device takes {limit}.")
