"""The functions of the OpenCL backend: opening a device, and the compiler."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from ...core.dtypes import DTYPES
from ...core.errors import BuildError
from ...core.space import Version
from ...workloads.loader import KernelFolder
from ..base import Device
from ..builds import BuildRequest, CompiledCode, VersionBuild, kept_code, kernel_source
from .device import OpenCLDevice
from .runtime import (
    build_options,
    build_source,
    find_device,
    import_pyopencl,
    load_binary,
    target_of,
)

__all__ = ["compile_version", "list_devices", "open_device", "targets"]


def open_device(index: int, runtime: str, cache: Path) -> Device:
    """Open device `index` of an OpenCL runtime by pyopencl. Raises NoDeviceError."""
    return OpenCLDevice(runtime, index, cache)


def list_devices(wanted: int | None) -> None:
    """None: OpenCL knows a device's identity only once it is open."""


def targets(request: BuildRequest) -> tuple[str, ...]:
    """The requested device with its runtime. Raises NoDeviceError."""
    return (target_of(_context(request)[1].devices[0]),)


def compile_version(
    request: BuildRequest, folder: KernelFolder, dtype: str, version: Version, target: str
) -> VersionBuild:
    """Build `version`; no `code` if the runtime gives no binary that it takes back."""
    cl, context = _context(request)
    options = build_options(DTYPES[dtype], folder.workload.macros(dtype, version))
    options += request.options
    log, code = _built(cl, context, folder.path, options, target, request.cache)
    return VersionBuild(target, " ".join(options), log, code=code)


@cache
def _context(request: BuildRequest) -> tuple[Any, Any]:
    cl = import_pyopencl(request.opencl_runtime, request.cache)
    index = 0 if request.device == "all" else int(request.device)
    return cl, cl.Context([find_device(cl, request.opencl_runtime, index)])


@cache
def _built(
    cl: Any, context: Any, folder: Path, options: tuple[str, ...], target: str, kept: Path
) -> tuple[str, bytes | None]:
    """The compiler's messages and the binary; versions that differ in launches share them."""

    def compiled() -> CompiledCode:
        # A build file with other messages would measure anew.
        program, log = build_source(cl, context, folder, options, anew=True)
        return CompiledCode(program.get_info(cl.program_info.BINARIES)[0], log)

    made = kept_code((kernel_source(folder, ".cl"), *options, target), kept / "opencl", compiled)
    try:
        load_binary(cl, context, made.code)
    except BuildError:
        return made.log, None
    return made.log, made.code
