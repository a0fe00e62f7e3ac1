"""The device protocol: all that measuring knows about a backend."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from ..core.dtypes import DType
from ..core.errors import (
    BuildError,
    LaunchRefusedError,
    TypedError,
)
from ..core.space import USUAL, Condition, Problem
from ..core.text import one_line
from ..workloads.contract import Launch, LibraryCall
from .guard_bands import Strays

if TYPE_CHECKING:
    from .build_file import VersionBuild
    from .build_request import BuildRequest
    from .in_turn import FedInTurn, InTurn

T = TypeVar("T")


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


# How compilers begin an error's line: ``1:12:5: error: `` (Intel), ``x.cl:12:5: error: `` (Clang),
# ``x/kernel.cu(12): error: `` (NVRTC), ``error: x.cl:12:5: `` (PoCL 3).
_ERROR_LINE = re.compile(
    r"^(?:\S*?(?:\((\d+)\)|:(\d+)(?::\d+)?): [a-z ]*error[^:]*: |error: \S+?:(\d+):\d+: )(.+)$",
    re.M,
)


# Characters that are kept of a compiler's message, half of them from its end.
_MOST_LOG = 10**6


def compile_error(source: str, log: str) -> BuildError:
    """The error of the file `source` that did not compile, with the first line of `log` on it."""
    if len(log) > _MOST_LOG:
        left_out = f"\n[{len(log) - _MOST_LOG} characters are left out here]\n"
        log = log[: _MOST_LOG // 2] + left_out + log[-_MOST_LOG // 2 :]
    found = _ERROR_LINE.search(log)
    if found is not None:
        line = found[1] or found[2] or found[3]
        first = f"{source}:{line}: error: {found[4].strip()}"
    else:
        lines = [line.strip() for line in log.splitlines() if line.strip()]
        first = next((line for line in lines if "error" in line.lower()), (lines or ["error"])[0])
    return BuildError(f"{source} does not compile: {one_line(first)}", log)


def missing_entry(source: str, entry: str, there: Iterable[str], log: str) -> BuildError:
    """The error of a launch of `entry`, which is not among the kernels of the file `source`."""
    names = sorted(there)
    if any(name.startswith(f"_Z{len(entry)}{entry}") for name in names):
        said = f"'{entry}' has another name in the machine code of C++; declare it extern \"C\""
        return BuildError(f"{source}: kernel {said}", log)
    return BuildError(
        f"{source} has no kernel '{entry}'; it has: {', '.join(names) or 'none'}", log
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
    the inputs, as `DeviceBuffers.strays` (of the far words a part) and `checksums` give them.
    """

    seconds: float
    wrong_words: int
    strays: Sequence[Strays]
    sums: Sequence[int]


class Mark(Protocol):
    """A point in a stream's order: reached when all that was queued before is done."""

    def seconds_since(self, other: Any) -> float:
        """From when `other`, a mark of this device, was reached to when this one was.

        By the device's clock. Both marks' streams must have been waited for since.
        """


class Stream(Protocol):
    """A queue of copies and launches that run in its order, beside those of other streams.

    A context manager: at its end the stream is waited for, and gone with all that it allocated.
    """

    def __enter__(self) -> Stream:
        """The stream itself."""

    def __exit__(self, *exc: object) -> None:
        """Wait, then free."""

    def allocate(self, nbytes: int) -> Any:
        """A buffer of undefined content, the stream's own. Raises OutOfDeviceMemoryError."""

    def copy_in(self, target: Any, source: npt.NDArray[Any]) -> None:
        """Queue a copy of the whole flat `source` to the beginning of `target`.

        `source` must stay as it is until the stream was waited for.
        """

    def copy_out(self, target: npt.NDArray[Any], source: Any) -> None:
        """Queue a copy of the beginning of `source` to the whole flat `target`."""

    def launch(self, program: Any, launch: Launch, buffers: Mapping[str, Any]) -> None:
        """Queue a launch. Raises as `Device.bind` does."""

    def release(self) -> None:
        """Give back, in the stream's order, all that it allocated."""

    def mark(self) -> Mark:
        """Queue a mark, which is reached when all that was queued before it is done."""

    def wait(self) -> None:
        """Return when all that was queued is done. Raises LaunchFailedError or DeviceLostError."""


class DeviceBuffers(Protocol):
    """A device's buffers, opaque to the caller, between guard zones (see `guard_bands`)."""

    def upload(self, array: npt.NDArray[Any]) -> Any:
        """A device buffer holding `array`. Raises OutOfDeviceMemoryError."""

    def allocate(self, nbytes: int) -> Any:
        """A buffer of undefined content. Raises OutOfDeviceMemoryError."""

    def guard(self, buffer: Any) -> None:
        """Make the zones around `buffer`, which is no image, as they were before any stray."""

    def strays(self, buffers: Sequence[Any]) -> list[Strays]:
        """Words that were written around each of the buffers, none of them an image."""

    def checksums(self, buffers: Sequence[Any]) -> list[int]:
        """A 32-bit number for the content of each of the buffers, none of them an image.

        Two contents that differ in one word never have the same one.
        """

    def mismatches(self, buffer: Any, expected: Any) -> int:
        """Number of 32-bit words in which the two differ, counted on the device.

        `expected` is no image; rows of an image follow each other in it without a gap.
        """

    def words(self, buffer: Any, begin: int, count: int) -> npt.NDArray[np.uint32]:
        """`count` 32-bit words of `buffer` from the word `begin` on, on the host."""


class Device(DeviceBuffers, Protocol):
    """One open device. Buffers and images are opaque to the caller.

    Where a method takes a buffer without a word on images, an image serves as well. Around an image
    are no guard zones.
    """

    info: DeviceInfo
    # Which machine code the device runs (see `build_file.KernelBuild`), and what to ask the
    # backend's compiler for to have it made.
    target: str
    request: BuildRequest

    def build(self, folder: Path, dtype: DType, defines: Mapping[str, str]) -> Program:
        """Compile the folder's source for this device. Raises BuildError."""

    def load(self, build: VersionBuild) -> Program:
        """The program of machine code that was compiled before, for `target`.

        Raises BuildError where there is none that the device takes.
        """

    def image_refusal(self, problem: Problem, dtype: DType) -> str | None:
        """Why the device has no image of so many texels of this type; None when it has."""

    def upload_image(self, array: npt.NDArray[Any], dtype: DType) -> Any:
        """An image that holds `array` of shape (height, width[, lanes]).

        Raises LaunchRefusedError or OutOfDeviceMemoryError.
        """

    def allocate_image(self, problem: Problem, dtype: DType) -> Any:
        """An image of undefined content. Raises as `upload_image` does."""

    def poison(self, buffer: Any) -> None:
        """Overwrite `buffer` with a pattern that no verified output holds (NaN as floats)."""

    def bind(self, program: Any, launch: Launch, buffers: Mapping[str, Any]) -> Bound:
        """Prepare a launch of a program that this device built.

        Raises LaunchRefusedError when the block or grid is over a limit.
        """

    def bind_library(self, call: LibraryCall, buffers: Mapping[str, Any]) -> Bound:
        """Prepare a call of the vendor's library. Raises LaunchRefusedError where it has none."""

    def sample_all(self, samples: Sequence[Sample]) -> Sequence[float | TypedError]:
        """Take the samples in this order, if possible without waiting between them.

        Seconds per launch of each, or what went wrong with it. Raises DeviceLostError.
        """

    def prove_all(
        self, proofs: Sequence[Bound], witnesses: Witnesses
    ) -> Sequence[Proven | TypedError]:
        """Run each once on poisoned output and look at the witnesses after it.

        In this order, if possible without waiting between them. What happened, or what went wrong.
        Raises DeviceLostError.
        """

    def bind_copy(self, source: Any, target: Any) -> Bound:
        """The runtime's own device-to-device copy of a whole buffer: the peer of every kernel.

        One of the two, but not both, may be an image.
        """

    def open_stream(self) -> Stream:
        """A new stream, which does not wait for what other streams hold."""

    def bind_in_turn(self, fed: FedInTurn) -> InTurn:
        """Prepare feeding pieces one after another. Raises as `bind` does."""

    def host_array(self, array: npt.NDArray[Any], pinned: bool) -> npt.NDArray[Any]:
        """A flat copy of `array` in host memory, `pinned` so that the device reads it by itself."""

    def reading(self) -> Reading | None:
        """Clocks, temperature, power and throttle reasons now; None where nothing tells."""

    def energy_mj(self) -> int | None:
        """What the device has used since its driver was loaded, in mJ; None where nothing tells."""

    def close(self) -> None:
        """Release all that the device holds; it is not to be used any more."""


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
