"""Implement the CUDA backend with CuPy: its functions, and its device with events and graphs."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...core.dtypes import DType
from ...core.errors import BuildError, DeviceError, LaunchConfigError, NoDeviceError
from ...core.schema import Status
from ...core.space import Version
from ...workloads.contract import (
    Argument,
    BufferRef,
    Launch,
    NullRef,
    SurfaceRef,
    TextureRef,
)
from ...workloads.loader import KernelFolder
from ..base import (
    Device,
    check_limits,
)
from ..build_file import BuildRequest, CompiledCode, EntryFacts, VersionBuild, missing_entry
from ..capabilities import Translated
from ..machine_code.cubins import (
    Unit,
    built,
    by_entry,
    cached_cubin,
    disassembled,
    parameter_sizes,
    passed,
    stored_cubin,
    symbol_sizes,
    unit_of,
)
from ..machine_code.sass import EntryCode, failed_check
from ..memory import check_sizes, named
from .batches import CudaBatches
from .buffers import SOURCE, CudaBuffers
from .images import CudaImages
from .library import CublasCalls
from .runtime import (
    CudaCounters,
    NvmlClocks,
    Translate,
    architecture,
    describe,
    list_devices,
    load_cupy,
    open_sensor,
)
from .streams import CudaStreams, Enqueue
from .timing import (
    SPIN_SOURCE,
    CudaLaunch,
    EventTimer,
    blocks_in_clusters,
    driver_bindings,
    extended,
)

# The backend's own kernels, which measure no bandwidth.
_OWN_KERNELS = SPIN_SOURCE + SOURCE


class CudaProgram:
    """A loaded module and its kernel functions.

    `parameters` contains the sizes of each function's parameters in bytes, by name.

    Parameters
    ----------
    cupy
        The module CuPy.
    made
        The machine code.
    options
        Options of the compiler.
    cache
        Folder for the file from which CuPy loads the code.
    """

    def __init__(self, cupy: Any, made: CompiledCode, options: str, cache: Path) -> None:
        # CuPy loads machine code from a file alone.
        self._cupy = cupy
        self._module = cupy.RawModule(path=str(stored_cubin(made.code, cache)))
        self.options = options
        self.log = made.log
        self.facts = made.facts
        self._globals, sizes = symbol_sizes(made.code), parameter_sizes(made.code)
        named = {name: sizes[fact.symbol] for name, fact in made.facts.items()}
        self.parameters = {**sizes, **named}

    def function(self, entry: str) -> Any:
        """Return the kernel function `entry`; raise BuildError if the source lacks it."""
        fact = self.facts.get(entry)
        try:
            return self._module.get_function(entry if fact is None else fact.symbol)
        except self._cupy.cuda.driver.CUDADriverError as err:
            raise missing_entry("kernel.cu", entry, self.parameters, self.log) from err

    def set_constant(self, name: str, array: npt.NDArray[Any]) -> None:
        """Write an array into the constant memory of the symbol `name`.

        Raises
        ------
        BuildError
            If there is no such symbol, or if it is too small.
        """
        room = self._globals.get(name)
        if room is None or array.nbytes > room:
            said = "has no symbol of this name" if room is None else f"has {room} bytes for it"
            raise BuildError(f"constants: '{name}' of {array.nbytes} bytes; the code {said}.", "")
        held = np.ascontiguousarray(array)
        self._module.get_global(name).copy_from_host(held.ctypes.data, held.nbytes)

    def resident_blocks(self, launch: Launch) -> int:
        """Return the driver's occupancy. For clusters, the mean over all multiprocessors."""
        function = self.function(launch.entry)
        driver = self._cupy.cuda.driver
        pointer = function.kernel.ptr
        shared_bytes = launch.shared_bytes
        held = driver.occupancyMaxActiveBlocksPerMultiprocessor
        try:
            if shared_bytes > function.max_dynamic_shared_size_bytes:
                function.max_dynamic_shared_size_bytes = shared_bytes
            if launch.cluster is None:
                return max(1, int(held(pointer, launch.threads, shared_bytes)))
            blocks = blocks_in_clusters(driver_bindings(), pointer, launch, self.check)
            return max(1, blocks // int(self._cupy.cuda.Device().attributes["MultiProcessorCount"]))
        except driver.CUDADriverError:
            return 1  # which is refused when it is launched

    def check(self, code: int) -> None:
        """Raise CuPy's error if `code`, which the driver returned, is not zero."""
        if code:
            raise self._cupy.cuda.driver.CUDADriverError(int(code))

    def registers(self, entry: str) -> int | None:
        """Return the registers per thread of the kernel function `entry`."""
        return int(self.function(entry).num_regs)


class CudaConstants:
    """Constant memory of modules, see `capabilities.Constants`.

    Parameters
    ----------
    translated
        Returns a context manager that converts errors of CuPy.
    """

    def __init__(self, translated: Translated) -> None:
        self._translated = translated

    def write(self, program: CudaProgram, constants: Mapping[str, npt.NDArray[Any]]) -> None:
        """Write arrays into the module's symbols of the same names.

        Raises
        ------
        BuildError
            If there is no such symbol, or if it is too small.
        """
        with self._translated():
            for name, array in constants.items():
                program.set_constant(name, array)


def _argument(argument: Argument, buffers: Mapping[str, Any]) -> Any:
    """Return an argument as CuPy requires it: an array, a texture, a surface or a number."""
    match argument:
        case BufferRef():
            return named(argument, buffers)
        case NullRef():
            return np.uint64(0)
        case TextureRef():
            return named(argument, buffers).texture(argument)
        case SurfaceRef():
            return named(argument, buffers).surface()
        case _:
            return argument


class CudaDevice(CudaBuffers):
    """One CUDA device with its own stream and without a memory pool.

    Parameters
    ----------
    index
        Index of the device, from 0.
    cache
        Folder for compiled machine code.
    """

    def __init__(self, index: int, cache: Path) -> None:
        """Open the device, or raise NoDeviceError if that fails."""
        self.cupy = load_cupy()
        try:
            with self.translated():
                self._open(index, cache)
        except NoDeviceError:
            raise
        except DeviceError as err:
            raise NoDeviceError(f"CUDA device {index} cannot be opened ({err}).") from err

    def _open(self, index: int, cache: Path) -> None:
        cupy = self.cupy
        self.info = describe(cupy, index)
        self.target = architecture(self.info)
        self.request = BuildRequest("cuda", str(index), "auto", self.target, cache)
        self._cache = cache
        cupy.cuda.Device(index).use()
        attributes = cupy.cuda.Device(index).attributes
        self._most_shared = int(attributes["MaxSharedMemoryPerBlockOptin"])
        own = self._own_module(_OWN_KERNELS)
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.timer = EventTimer(
            cupy, own.get_function("spin"), self.stream, self.info, self.translated
        )
        self.library = CublasCalls(cupy, self.stream, self.translated, self.time)
        self.batches = CudaBatches(self, self.timer)
        self.constants = CudaConstants(self.translated)
        self.streams = CudaStreams(cupy, self.translated, self._prepare)
        assert self.info.max_image is not None
        self.images = CudaImages(cupy, self.stream, self.info.max_image, self.translated)
        # A pool would keep memory that the next problem needs.
        cupy.cuda.set_allocator(None)
        self._load_own_kernels(own)
        self.power = open_sensor(cupy.cuda.runtime.deviceGetPCIBusId(index))
        self.counters = CudaCounters(cupy.cuda.runtime)

    def _own_module(self, source: str) -> Any:
        code = cached_cubin(Unit(source, "gpushmoo"), self.target, self._cache).code
        return self.cupy.RawModule(path=str(stored_cubin(code, self._cache)))

    def translated(self) -> Translate:
        """Return a context manager that converts errors of CuPy."""
        return Translate(self.cupy)

    def build(
        self, folder: Path, dtype: DType, defines: Mapping[str, str], options: Sequence[str] = ()
    ) -> CudaProgram:
        """Compile ``kernel.cu`` to machine code for this device, or raise BuildError."""
        unit = unit_of(folder, dtype, defines, options)
        made = cached_cubin(unit, self.target, self._cache)
        return CudaProgram(self.cupy, made, " ".join(unit.options), self._cache)

    def load(self, build: VersionBuild) -> CudaProgram:
        """Load machine code for this architecture, or raise BuildError if it is missing."""
        if build.code is None:
            raise BuildError("The build file holds no machine code for the variant.", build.log)
        made = CompiledCode(build.code, build.log, build.facts)
        with self.translated():
            return CudaProgram(self.cupy, made, build.options, self._cache)

    def bind(
        self,
        program: CudaProgram,
        launch: Launch,
        buffers: Mapping[str, Any],
        renew: Callable[[], None] | None = None,
    ) -> CudaLaunch:
        """Prepare a launch, or raise LaunchConfigError or BuildError if it is not possible."""
        return CudaLaunch(self.timer, self._prepare(program, launch, buffers), renew)

    def time(self, enqueue: Enqueue) -> CudaLaunch:
        """Prepare a command on the device's stream to be run and timed."""
        return CudaLaunch(self.timer, enqueue)

    def copy(self, source: Any, target: Any) -> None:
        """Queue cudaMemcpyAsync for a whole buffer. Copies of images use its 2D form."""
        target.data.copy_from_device_async(source.data, source.nbytes, self.stream)

    def fill(self, words: Any, byte: int, but: int) -> None:
        """Queue cudaMemsetAsync on a buffer, except its last `but` bytes."""
        words.data.memset_async(byte, words.nbytes - but, self.stream)

    def wait(self) -> None:
        """Wait for this stream by cudaStreamSynchronize."""
        self.stream.synchronize()

    def _prepare(self, program: CudaProgram, launch: Launch, buffers: Mapping[str, Any]) -> Enqueue:
        function = self.checked(program, launch)
        args = tuple(_argument(a, buffers) for a in passed(launch))
        shared_bytes = launch.shared_bytes
        if launch.has_attributes:
            return self._extended(program, launch, args)
        return lambda: function(launch.grid, launch.block, args, shared_mem=shared_bytes)

    def _extended(self, program: CudaProgram, launch: Launch, args: Sequence[Any]) -> Enqueue:
        def stream() -> int:
            return int(self.cupy.cuda.get_current_stream().ptr)

        with self.translated():
            pointer = program.function(launch.entry).kernel.ptr
            check = program.check
            return extended(driver_bindings(), pointer, launch, args, stream, check)

    def checked(self, program: CudaProgram, launch: Launch) -> Any:
        """Return the kernel function of `launch`, or raise LaunchConfigError beyond a limit."""
        check_limits(launch, self.info)
        function = program.function(launch.entry)
        if launch.threads > function.max_threads_per_block:
            raise LaunchConfigError(
                f"{launch.threads} threads a block; this kernel's registers allow "
                f"{function.max_threads_per_block}."
            )
        if launch.shared_bytes:
            self._allow_shared(function, launch.shared_bytes)
        if launch.entry in program.parameters:
            check_sizes(launch.entry, passed(launch), program.parameters[launch.entry])
        return function

    def _allow_shared(self, function: Any, n_bytes: int) -> None:
        """Allow a function more than 48 KiB of dynamic shared memory, up to the device's limit."""
        most = self._most_shared - int(function.shared_size_bytes)
        if n_bytes > most:
            raise LaunchConfigError(
                f"{n_bytes} bytes of shared memory; this kernel may ask for {most}."
            )
        if n_bytes > function.max_dynamic_shared_size_bytes:
            function.max_dynamic_shared_size_bytes = n_bytes


__all__ = ["clocks", "compile_version", "count_devices", "list_devices", "open_device", "targets"]


def open_device(index: int, runtime: str, cache: Path) -> Device:
    """Open CUDA device `index` with CuPy, or raise NoDeviceError if that fails."""
    return CudaDevice(index, cache)


# The driver's own list of devices, with a folder for each.
_DRIVER_LISTS = Path("/proc/driver/nvidia/gpus")


def count_devices() -> int:
    """Return the number of visible devices without initializing the driver.

    The result is 0 without CuPy, and 1 on WSL, where the driver lists no devices.
    """
    if find_spec("cupy") is None:
        return 0
    try:
        listed = sum(1 for _ in _DRIVER_LISTS.iterdir())
    except OSError:
        listed = int(_driver() is not None)
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return listed if named is None else _named_devices(named, listed)


def _named_devices(named: str, listed: int) -> int:
    """Return how many of the `listed` devices CUDA_VISIBLE_DEVICES leaves, as the driver reads it.

    An entry that is not a valid device ends the list. An entry that is repeated hides all devices.
    A process sees only one MIG device.
    """
    words = [word.strip() for word in named.split(",")]
    if words[0].startswith("MIG-"):
        return min(listed, 1)
    by_identity = words[0].startswith("GPU-")
    found: list[str | int] = []
    for word in words:
        number = re.match(r"[-+]?\d+", word)
        if by_identity and word.startswith("GPU-"):
            one: str | int = word
        elif not by_identity and number is not None and 0 <= int(number[0]) < listed:
            one = int(number[0])
        else:
            break
        if one in found:
            return 0
        found.append(one)
    return min(listed, len(found))


def _driver() -> ctypes.CDLL | None:
    """Load the CUDA driver's library; None if the host lacks it."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None


_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_…


def _visible_archs() -> list[str]:
    """Return the architectures (``sm_90``) of visible devices.

    This initializes the driver, after which the process must not fork.
    """
    cuda = _driver()
    count, device, value = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    if cuda is None or cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)):
        return []
    archs = []
    for index in range(count.value):
        cuda.cuDeviceGet(ctypes.byref(device), index)
        digits = ""
        for attribute in (_MAJOR, _MINOR):
            cuda.cuDeviceGetAttribute(ctypes.byref(value), attribute, device)
            digits += str(value.value)
        archs.append(f"sm_{digits}")
    return archs


def clocks(uuid: str) -> NvmlClocks:
    """Return the clocks of a GPU, which NVML locks."""
    return NvmlClocks(uuid)


def targets(request: BuildRequest) -> tuple[str, ...]:
    """Return the configured architecture, or those of the visible devices.

    Raises
    ------
    NoDeviceError
        If no architecture is configured and no device responds.
    """
    if request.cuda_arch is not None:
        return (request.cuda_arch,)
    archs = _visible_archs()
    if request.device != "all":
        archs = archs[int(request.device) :][:1]
    if not archs:
        raise NoDeviceError(
            "No CUDA device answers; this needs an NVIDIA GPU and its driver (or cuda_arch in the "
            "configuration, to compile without one)."
        )
    return tuple(sorted(set(archs)))


def compile_version(
    request: BuildRequest, folder: KernelFolder, dtype: str, version: Version, target: str
) -> VersionBuild:
    """Compile `version` for the architecture `target`, and check its machine code."""
    made, compiler, options = built(request, folder, dtype, version, target)
    codes = _contents(made.code, tuple(made.facts.items()), request.cache)
    failure = failed_check(folder, dtype, version.variant, codes.values())
    return VersionBuild(
        compiler,
        options,
        made.log,
        None if failure is None else Status.BUILD_FAILED,
        failure,
        code=made.code,
        entries=[asdict(codes[name]) for name in sorted(codes)],
        facts=made.facts,
    )


@cache
def _contents(
    code: bytes, facts: tuple[tuple[str, EntryFacts], ...], kept: Path
) -> dict[str, EntryCode]:
    """Return the contents of machine code, which versions share if they differ only in launches."""
    return by_entry(disassembled(code, kept), dict(facts))
