"""Programs of the OpenCL backend: built from a kernel's source, or from a binary of one."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...core.dtypes import DType
from ...core.errors import BuildError, NoDeviceError
from ...core.space import INDEX_BITS
from ..base import compile_error
from ..sources import kernel_source
from .runtime import prepare_environment

# What kernel.cl calls an element type by another name than its own. OpenCL's float3 takes 16 bytes:
# kernel.cl declares the packed structure itself.
_TYPES = {"float3": "packed_float3", "unorm8": "uchar", "unorm8x4": "uchar4"}


def import_pyopencl(runtime: str, cache: Path) -> Any:
    """The module pyopencl, with `runtime` as the one that it sees. Raises NoDeviceError."""
    prepare_environment(runtime, cache)
    try:
        import pyopencl as cl
    except ImportError as err:
        raise NoDeviceError(f"pyopencl does not import ({err}); install pyopencl[pocl].") from err
    # The compiler's remarks are kept with the build; pyopencl would print them at every build.
    warnings.filterwarnings("ignore", category=cl.CompilerWarning)
    return cl


def target_of(device: Any) -> str:
    """Names what a binary of the device's runtime is for: this version of it and such a device."""
    platform = device.platform
    names = (platform.name, platform.version, device.driver_version, device.name)
    return ", ".join(name.strip() for name in names)


def build_options(dtype: DType, defines: Mapping[str, str]) -> tuple[str, ...]:
    """The compiler's options for a kernel folder's source."""
    index = "ulong" if INDEX_BITS in defines else "uint"
    macros = (f"-D{name}={value}" for name, value in sorted(defines.items()))
    return (f"-Delement_t={_TYPES.get(dtype.name, dtype.name)}", f"-Dindex_t={index}", *macros)


def build_source(cl: Any, context: Any, folder: Path, options: Sequence[str]) -> tuple[Any, str]:
    """The program of a folder's ``kernel.cl``, and the compiler's messages. Raises BuildError.

    Where pyopencl has kept a binary the program is that, with other messages.
    """
    return _build(cl, context, cl.Program(context, kernel_source(folder, ".cl")), options)


def compile_source(cl: Any, context: Any, folder: Path, options: Sequence[str]) -> tuple[Any, str]:
    """As `build_source`, but compiled each time, so that the messages are the same each time."""
    program = cl.Program(context, kernel_source(folder, ".cl"))
    with warnings.catch_warnings():
        # "Pre-build attribute access defeats compiler caching": that is what it is for.
        warnings.simplefilter("ignore")
        program.get_info(cl.program_info.SOURCE)
    return _build(cl, context, program, options)


def _build(cl: Any, context: Any, program: Any, options: Sequence[str]) -> tuple[Any, str]:
    try:
        program.build(options=list(options))
    except cl.Error as err:
        raise compile_error("kernel.cl", str(err)) from err
    info: Any = program.get_build_info
    return program, str(info(context.devices[0], cl.program_build_info.LOG)).strip()


def load_binary(cl: Any, context: Any, code: bytes) -> Any:
    """The program of a binary. Raises BuildError where the runtime does not take it."""
    try:
        return cl.Program(context, context.devices, [code]).build()
    except (cl.Error, ValueError) as err:
        first = str(err).splitlines()[0]
        raise BuildError(f"The OpenCL runtime does not take its binary ({first}).", "") from err
