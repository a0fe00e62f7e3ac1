"""Implement the OpenCL backend with pyopencl: CPUs through PoCL or Intel's runtime, and GPUs."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ...core.display import one_line
from ...core.dtypes import DTYPES, DType
from ...core.errors import (
    BuildError,
    DeviceLostError,
    LaunchConfigError,
    LaunchFailedError,
    NoDeviceError,
    OutOfDeviceMemoryError,
)
from ...core.paths import install
from ...core.space import USUAL, Condition, Version
from ...workloads.contract import (
    Argument,
    BufferRef,
    Launch,
    NullRef,
    SharedMemory,
    SurfaceRef,
    TextureRef,
)
from ...workloads.loader import KernelFolder
from ..base import Device, TimedInterval, check_limits, flush_bytes
from ..build_file import (
    BuildRequest,
    CompiledCode,
    EntryFacts,
    VersionBuild,
    kept_code,
    kernel_source,
    missing_entry,
    own_headers,
)
from ..memory import check_count, named
from .buffers import OpenCLBuffers
from .images import OpenCLImages
from .runtime import (
    build_options,
    build_source,
    describe,
    find_device,
    import_pyopencl,
    include_option,
    load_binary,
    target_of,
)
from .streams import Enqueue, OpenCLStreams


class OpenCLProgram:
    """A built OpenCL program. It keeps its kernel objects, because fetching them again is slow.

    Parameters
    ----------
    cl
        The module pyopencl.
    program
        The built program of pyopencl.
    options, log
        Options and messages of the compiler.
    """

    def __init__(self, cl: Any, program: Any, options: str, log: str) -> None:
        self._cl, self._program = cl, program
        self._kernels: dict[str, Any] = {}
        self.options, self.log = options, log
        self.facts: Mapping[str, EntryFacts] = {}

    def kernel(self, entry: str) -> Any:
        """Return the kernel object `entry`; raise BuildError if the source lacks it."""
        if entry not in self._kernels:
            try:
                self._kernels[entry] = self._cl.Kernel(self._program, entry)
            except self._cl.Error as err:
                there = self._program.get_info(self._cl.program_info.KERNEL_NAMES).split(";")
                raise missing_entry("kernel.cl", entry, filter(None, there), self.log) from err
        return self._kernels[entry]

    def resident_blocks(self, launch: Launch) -> int:
        """Return 1: OpenCL does not report occupancy, and a CPU runs one group per core."""
        return 1

    def registers(self, entry: str) -> int | None:
        """Return None, because OpenCL does not report the registers of a thread."""
        return None


class OpenCLLaunch:
    """A command that can be queued repeatedly and timed.

    Parameters
    ----------
    device
        The device.
    enqueue
        Queues the command, and returns its event.
    renew
        Queues commands that restore the content of buffers before each timed launch, if required.
    """

    def __init__(
        self,
        device: OpenCLDevice,
        enqueue: Callable[[], Any],
        renew: Callable[[], None] | None = None,
    ) -> None:
        """Queue nothing before the first run."""
        self._device, self._enqueue, self._renew = device, enqueue, renew

    def run(self) -> None:
        """Launch once and wait, or raise LaunchFailedError or DeviceLostError if it fails."""
        self._together(1)

    def sample(self, launches: int, met: Condition = USUAL) -> float:
        """Return the mean time of a launch in seconds, from start to end of its profiling event."""
        if met == USUAL and self._renew is None:
            if launches > 1:
                # The first of a row would find the device idle.
                with self._device.translated():
                    self._enqueue()
            return self._together(launches)
        total_s = 0.0
        for _ in range(launches):
            with self._device.translated():
                if self._renew is not None:
                    self._renew()
                if met.flushed:
                    self._device.flush()
                elif launches > 1 and self._renew is None:
                    self._enqueue().wait()
            total_s += self._together(1)
        return total_s / launches

    def interval(self, met: Condition) -> TimedInterval:
        """Return LAUNCH, because each launch has its own begin and end."""
        return TimedInterval.LAUNCH

    def _together(self, launches: int) -> float:
        """Queue launches on an idle device without waits between them. Return their mean time."""
        with self._device.translated():
            events = [self._enqueue() for _ in range(launches)]
            events[-1].wait()
            total_ns = sum(e.profile.end - e.profile.start for e in events)
        return float(total_ns) * 1e-9 / launches


class _Translate:
    """Context manager that converts errors of pyopencl to those of `core.errors`."""

    def __init__(self, cl: Any) -> None:
        self._cl = cl

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, err: Any, trace: Any) -> None:
        if err is None or not isinstance(err, self._cl.Error):
            return
        text = str(err).split("\n")[0]
        if any(word in text for word in ("MEM_OBJECT_ALLOCATION", "INVALID_BUFFER_SIZE")):
            raise OutOfDeviceMemoryError(f"The buffer does not fit ({text}).") from err
        if any(word in text for word in ("WORK_GROUP", "WORK_ITEM", "GLOBAL_WORK", "RESOURCES")):
            raise LaunchConfigError(text) from err
        if any(word in text for word in ("DEVICE_NOT_AVAILABLE", "OUT_OF_HOST", "CONTEXT")):
            raise DeviceLostError(text) from err
        raise LaunchFailedError(text) from err


class OpenCLDevice(OpenCLBuffers):
    """One OpenCL device with a queue that records the times of commands.

    Parameters
    ----------
    runtime
        Name of the runtime.
    index
        Index of the device in the runtime, from 0.
    cache
        Folder in which runtimes keep results.
    """

    def __init__(self, runtime: str, index: int, cache: Path) -> None:
        """Open the device, or raise NoDeviceError if that fails."""
        cores = os.sched_getaffinity(0)
        cl = import_pyopencl(runtime, cache)
        self._cl = cl
        device = find_device(cl, runtime, index)
        self.target = target_of(device)
        self.request = BuildRequest("opencl", str(index), runtime, None, cache)
        self._context = cl.Context([device])
        self._queue = cl.CommandQueue(
            self._context, properties=cl.command_queue_properties.PROFILING_ENABLE
        )
        self._filler: Any = None
        try:
            self._build_own_kernels()
            self._self_test()
        except cl.Error as err:
            reason = next((t for t in str(err).splitlines() if t.startswith("error:")), str(err))
            raise NoDeviceError(
                f"{device.platform.name} cannot build kernels for this device "
                f"({reason.splitlines()[0]}); install another runtime, such as Intel's for CPUs: "
                f"{install('intel')}."
            ) from err
        # Intel's runtime pins this thread to one core. All threads and processes that it starts
        # afterwards would inherit that, for example those of a kernel that computes on the host.
        os.sched_setaffinity(0, cores)
        self.info = describe(cl, device, index)
        self.streams = OpenCLStreams(cl, self._context, self._queue, self.translated, self._prepare)
        if self.info.max_image is not None:
            self.images = OpenCLImages(cl, self._queue, self.info.max_image, self.translated)

    def _self_test(self) -> None:
        """Run a kernel, because a runtime may list a device that it cannot compile for."""
        a, b = np.arange(64, dtype=np.uint32), np.arange(64, dtype=np.uint32)
        b[7] += 1
        if self.mismatches(self.upload(a), self.upload(b)) != 1:
            raise NoDeviceError("The OpenCL runtime computes wrong results; choose another one.")

    def translated(self) -> _Translate:
        """Return a context manager that converts errors of pyopencl."""
        return _Translate(self._cl)

    def build(
        self, folder: Path, dtype: DType, defines: Mapping[str, str], options: Sequence[str] = ()
    ) -> OpenCLProgram:
        """Compile ``kernel.cl``, or raise BuildError if that fails."""
        options = (*build_options(dtype, defines), *options)
        source = kernel_source(folder, ".cl")
        cache = self.request.cache
        with include_option(folder, cache) as path:
            asked = (*options, *path)
            program, log = build_source(self._cl, self._context, source, asked, cache)
        return OpenCLProgram(self._cl, program, " ".join(options), log)

    def load(self, build: VersionBuild) -> OpenCLProgram:
        """Load a binary, or raise BuildError if the runtime does not accept it."""
        if build.code is None:
            raise BuildError("The runtime that built the kernel gave no binary of it.", build.log)
        program = load_binary(self._cl, self._context, build.code)
        return OpenCLProgram(self._cl, program, build.options, build.log)

    def flush(self) -> None:
        """Write a buffer as large as the last cache level, so that it contains no useful data."""
        if self._filler is None:
            self._filler = self.allocate(flush_bytes(self.info))
        fill = np.full(1, 0x5A5A5A5A, np.uint32)
        self._cl.enqueue_fill_buffer(self._queue, self._filler, fill, 0, self._filler.size).wait()

    def bind(
        self,
        program: OpenCLProgram,
        launch: Launch,
        buffers: Mapping[str, Any],
        renew: Callable[[], None] | None = None,
    ) -> OpenCLLaunch:
        """Prepare a launch, or raise LaunchConfigError or BuildError if it is not possible."""
        enqueue = self._prepare(program, launch, buffers)
        return OpenCLLaunch(self, lambda: enqueue(self._queue), renew)

    def time(self, enqueue: Callable[[], Any]) -> OpenCLLaunch:
        """Prepare a command to be run and timed. `enqueue` queues it and returns its event."""
        return OpenCLLaunch(self, enqueue)

    def copy(self, source: Any, target: Any) -> Any:
        """Queue a copy of a whole buffer; return its event."""
        return self._cl.enqueue_copy(self._queue, target, source)

    def fill(self, words: Any, byte: int, but: int) -> None:
        """Queue clEnqueueFillBuffer on a buffer, except its last `but` bytes."""
        pattern = np.full(1 if but else 4, byte, np.uint8)
        self._cl.enqueue_fill_buffer(self._queue, words, pattern, 0, words.size - but)

    def wait(self) -> None:
        """Wait for this queue by clFinish."""
        self._queue.finish()

    def _prepare(
        self, program: OpenCLProgram, launch: Launch, buffers: Mapping[str, Any]
    ) -> Enqueue:
        check_limits(launch, self.info)
        if launch.has_attributes:
            raise LaunchConfigError("OpenCL has no clusters, cooperative launches or carve-outs.")
        kernel = program.kernel(launch.entry)
        limit = kernel.get_work_group_info(
            self._cl.kernel_work_group_info.WORK_GROUP_SIZE, self._context.devices[0]
        )
        if launch.threads > limit:
            raise LaunchConfigError(
                f"{launch.threads} threads a block; this kernel takes {limit} on this device."
            )
        check_count(launch.entry, launch.args, kernel.num_args)
        most = self._context.devices[0].local_mem_size
        if launch.shared_bytes > most:
            raise LaunchConfigError(
                f"{launch.shared_bytes} bytes of local memory; the device has {most}."
            )
        args = [self._argument(a, buffers) for a in launch.args]
        for place, (argument, value) in enumerate(zip(launch.args, args, strict=True)):
            try:
                kernel.set_arg(place, value)
            except self._cl.Error as err:
                what = f"argument {place} of kernel '{launch.entry}'"
                fault = f"cannot be {argument!r} ({one_line(str(err))})"
                if "ARG_SIZE" in str(err):
                    fault = f"is of another size than {argument!r}, which it is given"
                raise LaunchFailedError(f"{what} {fault}") from err
        global_size = tuple(g * b for g, b in zip(launch.grid, launch.block, strict=True))

        def enqueue(queue: Any) -> Any:
            kernel.set_args(*args)
            return self._cl.enqueue_nd_range_kernel(queue, kernel, global_size, launch.block)

        return enqueue

    def _argument(self, argument: Argument, buffers: Mapping[str, Any]) -> Any:
        """Return an argument of a launch as ``set_args`` requires it."""
        match argument:
            case BufferRef():
                return named(argument, buffers)
            case NullRef():
                return None
            case TextureRef() | SurfaceRef():
                return named(argument, buffers).handle
            case SharedMemory(n_bytes):
                return self._cl.LocalMemory(n_bytes)
            case _:
                return argument


def open_device(index: int, runtime: str, cache: Path) -> Device:
    """Open device `index` of an OpenCL runtime, or raise NoDeviceError if that fails."""
    return OpenCLDevice(runtime, index, cache)


def list_devices(wanted: int | None) -> None:
    """Return None, because OpenCL reports a device's identity only once it is open."""


def targets(request: BuildRequest) -> tuple[str, ...]:
    """Return the requested device with its runtime as the only target.

    Raises
    ------
    NoDeviceError
        If there is no such device.
    """
    return (target_of(_context(request)[1].devices[0]),)


def compile_version(
    request: BuildRequest, folder: KernelFolder, dtype: str, version: Version, target: str
) -> VersionBuild:
    """Build a version. `code` is None if the runtime does not accept its own binary again."""
    cl, context = _context(request)
    workload = folder.workload
    for expression in filter(lambda name: "<" in name, workload.name_expressions(version)):
        said = f"OpenCL C has no templates, of which '{expression}' names an instance."
        raise BuildError(said, "")
    options = build_options(DTYPES[dtype], workload.macros(dtype, version))
    options += (*workload.options, *request.options)
    source = kernel_source(folder.path, ".cl")
    beside = own_headers(folder.path, ".cl"), folder.path
    log, code = _built(cl, context, source, options, beside, target, request.cache)
    return VersionBuild(target, " ".join(options), log, code=code)


@cache
def _context(request: BuildRequest) -> tuple[Any, Any]:
    cl = import_pyopencl(request.opencl_runtime, request.cache)
    index = 0 if request.device == "all" else int(request.device)
    return cl, cl.Context([find_device(cl, request.opencl_runtime, index)])


@cache
def _built(
    cl: Any,
    context: Any,
    source: str,
    options: tuple[str, ...],
    beside: tuple[tuple[str, ...], Path],
    target: str,
    kept: Path,
) -> tuple[str, bytes | None]:
    """Return the compiler's messages and the binary, which versions that differ in launches share.

    `beside` are digests of the headers that the source includes, and their folder.
    """
    headers, folder = beside

    def compiled() -> CompiledCode:
        # A build file with other messages would trigger another measurement.
        with include_option(folder, kept) as path:
            program, log = build_source(cl, context, source, (*options, *path), kept, anew=True)
        return CompiledCode(program.get_info(cl.program_info.BINARIES)[0], log)

    made = kept_code((source, *options, *headers, target), kept / "opencl", compiled)
    try:
        load_binary(cl, context, made.code)
    except BuildError:
        return made.log, None
    return made.log, made.code
