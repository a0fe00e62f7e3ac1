"""Compilers of a CUDA kernel's source, one for each kind of file that a kernel folder may hold."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from ...core.errors import BuildError
from ...core.space import Version
from ...workloads.loader import KernelFolder
from ..builds import BuildRequest, CompiledCode
from . import triton
from .cubins import cached_cubin, nvrtc_version, parameter_sizes, plain_names, version_unit


class Built(NamedTuple):
    """Machine code with its facts, its compiler, and what that was told."""

    made: CompiledCode
    compiler: str
    options: str


def built(
    request: BuildRequest, folder: KernelFolder, dtype: str, version: Version, arch: str
) -> Built:
    """The machine code of a version for ``sm_90``, say. Raises as `BackendModule` says."""
    there = (s for s in _BUILDERS if (folder.path / f"kernel{s}").is_file())
    return _BUILDERS[next(there, ".cu")](request, folder, dtype, version, arch)


def _by_nvrtc(
    request: BuildRequest, folder: KernelFolder, dtype: str, version: Version, arch: str
) -> Built:
    unit = version_unit(folder, dtype, version)
    unit = replace(unit, options=unit.options + request.options)
    made = cached_cubin(unit, arch, request.cache)
    return Built(made, f"NVRTC {nvrtc_version()}", " ".join(unit.options))


def _by_triton(
    request: BuildRequest, folder: KernelFolder, dtype: str, version: Version, arch: str
) -> Built:
    made, told = triton.compiled(folder, dtype, version, arch, request.cache)
    return Built(made, triton.compiler(), " ".join(told))


def _ready(
    request: BuildRequest, folder: KernelFolder, dtype: str, version: Version, arch: str
) -> Built:
    """The folder's own machine code."""
    path = folder.path / "kernel.cubin"
    code = path.read_bytes()
    sizes = parameter_sizes(code)
    if not sizes:
        raise BuildError(f"{path.name} is no machine code of CUDA with a kernel", "")
    (flags,) = struct.unpack_from("<I", code, 0x30)
    # The eighth version of the file's format moved the architecture by a byte.
    held = flags >> 8 & 0xFF if code[8] >= 8 else flags & 0xFF
    wanted = int("".join(filter(str.isdigit, arch)))
    # Code runs on later devices of its generation.
    if held // 10 != wanted // 10 or held > wanted:
        raise BuildError(
            f"{path.name} holds code for sm_{held}, this device runs '{arch}'; compile it for that",
            "",
        )
    return Built(CompiledCode(code, "", plain_names(sizes)), path.name, "")


_BUILDERS: dict[str, Callable[[BuildRequest, KernelFolder, str, Version, str], Built]] = {
    ".cu": _by_nvrtc,
    triton.SUFFIX: _by_triton,
    ".cubin": _ready,
}
