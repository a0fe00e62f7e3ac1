"""The machine code of one version of a kernel, compiled and read here without a device."""

from __future__ import annotations

from ...core.dtypes import DTYPES
from ...core.space import Version
from ...workloads.loader import KernelFolder
from ..sources import kernel_source
from .nvrtc import build_options, compile_cubin
from .sass import EntryCode, listing, parse


def version_code(
    folder: KernelFolder, dtype: str, version: Version, arch: str
) -> dict[str, EntryCode]:
    """What is in the machine code of each of the version's functions, for an `arch` as ``sm_90``.

    Raises BuildError, WorkloadError, or NoDeviceError without a compiler or a disassembler.
    """
    options = build_options(DTYPES[dtype], folder.workload.macros(dtype, version))
    source = kernel_source(folder.path, ".cu")
    return parse(listing(compile_cubin(source, folder.name, options, arch).code))
