"""Compiles CUDA C++ to machine code by NVRTC; needs no device and no CuPy."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ...core.dtypes import DType
from ...core.errors import DeviceError, NoDeviceError
from ...core.space import INDEX_BITS
from ..base import compile_error
from ..kept_code import CompiledCode

# What CUDA C++ calls an element type by another name than its own.
_TYPES = {"unorm8": "unsigned char", "unorm8x4": "uchar4"}

_INSTALL = "install the extra 'cuda13' (or 'cuda12' for an older driver)"


def nvrtc_version() -> str:
    """Version of the compiler, ``13.2``. Raises NoDeviceError when NVRTC is missing."""
    nvrtc = _bindings()
    status, major, minor = nvrtc.nvrtcVersion()
    if status:
        raise DeviceError(f"NVRTC fails unexpectedly ({status.name}); reinstall its package.")
    return f"{major}.{minor}"


def build_options(dtype: DType, defines: Mapping[str, str]) -> tuple[str, ...]:
    """NVRTC's options for a kernel folder's source; the device's architecture is not among them."""
    index = "size_t" if INDEX_BITS in defines else "unsigned"
    types = f"-Delement_t={_TYPES.get(dtype.name, dtype.name)}", f"-Dindex_t={index}"
    macros = (f"-D{name}={value}" for name, value in sorted(defines.items()))
    return ("-std=c++17", *types, *macros)


def compile_cubin(source: str, name: str, options: Sequence[str], arch: str) -> CompiledCode:
    """`source` compiled for `arch` (``sm_90``), an ELF file; `name` is the kernel folder's.

    Raises BuildError with the compiler's log when the source does not compile, NoDeviceError when
    NVRTC is missing or does not know `arch`.
    """
    nvrtc = _bindings()
    _check_arch(nvrtc, arch)
    flags = [flag.encode() for flag in (f"--gpu-architecture={arch}", *options)]
    file = f"{name}/kernel.cu".encode()
    program = _answer(nvrtc.nvrtcCreateProgram(source.encode(), file, 0, [], []))
    try:
        (status,) = nvrtc.nvrtcCompileProgram(program, len(flags), flags)
        message = _read(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program)
        log = message.rstrip(b"\0").decode(errors="replace").strip()
        if status:
            raise compile_error("kernel.cu", log)
        return CompiledCode(_read(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program), log)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _bindings() -> Any:
    """The module ``cuda.bindings.nvrtc`` with its library loaded."""
    try:
        nvrtc: Any = importlib.import_module("cuda.bindings.nvrtc")
        nvrtc.nvrtcVersion()  # the import alone does not look for the library
    except (ImportError, RuntimeError) as err:
        cause = str(err).splitlines()[0]
        raise NoDeviceError(f"NVRTC is missing ({cause}); {_INSTALL}.") from err
    return nvrtc


def _archs(nvrtc: Any) -> tuple[int, ...]:
    return tuple(sorted(_answer(nvrtc.nvrtcGetSupportedArchs())))


def _check_arch(nvrtc: Any, arch: str) -> None:
    """Raise NoDeviceError unless NVRTC compiles for `arch`."""
    known = _archs(nvrtc)
    match = re.fullmatch(r"sm_(\d+)[af]?", arch)
    if match is not None and int(match[1]) in known:
        return
    # CUDA 13 dropped what came before 7.5.
    older = match is not None and int(match[1]) < known[0]
    advice = "install the extra 'cuda12'" if older else "install a newer extra 'cuda13'"
    capabilities = ", ".join(f"{n // 10}.{n % 10}" for n in known)
    raise NoDeviceError(
        f"The installed NVRTC knows the compute capabilities {capabilities} and not '{arch}'; "
        f"{advice}."
    )


def _answer(reply: tuple[Any, ...]) -> Any:
    """The value in a reply of the bindings. Raises DeviceError when its status is a failure."""
    status, *values = reply
    if status:
        raise DeviceError(f"NVRTC fails unexpectedly ({status.name}); reinstall its package.")
    return values[0] if values else None


def _read(size_of: Any, read: Any, program: Any) -> bytes:
    """A result of `program` that NVRTC writes into a buffer of the caller."""
    # Not bytes: those of one blank are one object for all of Python, and a log may be that short.
    buffer = bytearray(_answer(size_of(program)))
    _answer(read(program, buffer))
    return bytes(buffer)
