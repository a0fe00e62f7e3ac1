"""Compiles kernels with an OpenCL runtime, to binaries that its devices load."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from ...core.dtypes import DTYPES
from ...core.errors import BuildError
from ...workloads.loader import KernelFolder
from ..build_file import VariantBuild
from ..build_request import BuildRequest
from .programs import build_options, compile_source, import_pyopencl, load_binary, target_of
from .runtime import find_device


def targets(request: BuildRequest) -> tuple[str, ...]:
    """The device that is asked for, with its runtime. Raises NoDeviceError."""
    return (target_of(_context(request)[1].devices[0]),)


def own_kernels(request: BuildRequest, target: str) -> None:
    """None: a runtime brings its compiler along, and compiles the backend's own kernels itself."""


def compile_variant(
    request: BuildRequest, folder: KernelFolder, dtype: str, variant: str, target: str
) -> VariantBuild:
    """Build `variant` and take its binary. Raises BuildError, WorkloadError or NoDeviceError.

    There is no `code` where the runtime gives no binary, or none that it takes back.
    """
    cl, context = _context(request)
    options = build_options(DTYPES[dtype], folder.workload.defines(dtype, variant))
    log, code = _built(cl, context, folder.path, options)
    return VariantBuild(target, " ".join(options), log, code=code)


@cache
def _context(request: BuildRequest) -> tuple[Any, Any]:
    cl = import_pyopencl(request.opencl_runtime, request.cache)
    index = 0 if request.device == "all" else int(request.device)
    return cl, cl.Context([find_device(cl, request.opencl_runtime, index)])


@cache
def _built(
    cl: Any, context: Any, folder: Path, options: tuple[str, ...]
) -> tuple[str, bytes | None]:
    """The compiler's messages and the binary; variants that differ in launches share them."""
    # A build file with other messages would measure anew.
    program, log = compile_source(cl, context, folder, options)
    code: bytes = program.get_info(cl.program_info.BINARIES)[0]
    try:
        load_binary(cl, context, code)
    except BuildError:
        return log, None
    return log, code
