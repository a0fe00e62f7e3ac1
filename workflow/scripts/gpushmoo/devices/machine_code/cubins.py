"""CUDA C++ compiled to machine code by NVRTC, and kept; needs no device and no CuPy."""

from __future__ import annotations

import hashlib
import importlib
import re
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ...core.dtypes import DTYPES, DType
from ...core.errors import DeviceError, NoDeviceError
from ...core.space import INDEX_BITS, Version
from ...storage.wholefile import write_whole
from ...workloads.contract import Argument, Launch, SharedMemory
from ...workloads.loader import KernelFolder
from ..builds import CompiledCode, compile_error, kept_code, kernel_source
from .sass import EntryCode, listing, parse

# Names of element types in CUDA C++ that differ from ours.
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
    """`source` compiled for `arch` (``sm_90``), an ELF file. Raises BuildError, NoDeviceError."""
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


def _check_arch(nvrtc: Any, arch: str) -> None:
    """Raise NoDeviceError unless NVRTC compiles for `arch`."""
    known = sorted(_answer(nvrtc.nvrtcGetSupportedArchs()))
    match = re.fullmatch(r"sm_(\d+)[af]?", arch)
    if match is not None and int(match[1]) in known:
        return
    # CUDA 13 dropped capabilities below 7.5.
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
    """A result of `program` that NVRTC writes into a buffer."""
    # Not bytes: Python shares bytes objects of one character, and a log may be that short.
    buffer = bytearray(_answer(size_of(program)))
    _answer(read(program, buffer))
    return bytes(buffer)


def cached_cubin(
    source: str, name: str, options: Sequence[str], arch: str, cache: Path
) -> CompiledCode:
    """The machine code of `source` out of `cache`; see `kept_code`. Raises as `compile_cubin`."""
    parts = (source, *options, arch, nvrtc_version())
    compiled = partial(compile_cubin, source, name, options, arch)
    return kept_code(parts, cache / "cubin", compiled)


def disassembled(code: bytes, cache: Path) -> dict[str, EntryCode]:
    """The contents of each kernel's machine code; nvdisasm's text, of 0.5 s, is kept."""

    def text() -> CompiledCode:
        return CompiledCode(zlib.compress(listing(code).encode()), "")

    kept = kept_code((hashlib.sha256(code).hexdigest(), "nvdisasm"), cache / "sass", text)
    return parse(zlib.decompress(kept.code).decode())


def stored_cubin(code: bytes, cache: Path) -> Path:
    """A file in `cache` that holds `code`, named by its sum."""
    path = cache / "cubin" / f"{hashlib.sha256(code).hexdigest()[:32]}.cubin"
    if not path.is_file() or path.read_bytes() != code:
        write_whole(path, code)
    return path


def version_code(
    folder: KernelFolder, dtype: str, version: Version, arch: str
) -> dict[str, EntryCode]:
    """The contents of the machine code of each of the version's functions, for ``sm_90`` say."""
    options = build_options(DTYPES[dtype], folder.workload.macros(dtype, version))
    source = kernel_source(folder.path, ".cu")
    return parse(listing(compile_cubin(source, folder.name, options, arch).code))


_SECTION = ".nv.info."
# Attributes have 4 bytes: format, name, and a value or, in the last of the formats, the number of
# bytes that follow.
_SIZED = 0x04
_PARAMETER = 0x17


def parameter_sizes(cubin: bytes) -> dict[str, tuple[int, ...]]:
    """Bytes of each parameter of a cubin's kernels, by name; none of other files."""
    if cubin[:5] != b"\x7fELF\x02":
        return {}
    return {
        name.removeprefix(_SECTION): _sizes(body)
        for name, body in _sections(cubin)
        if name.startswith(_SECTION)
    }


def passed(launch: Launch) -> tuple[Argument, ...]:
    """The arguments with a kernel's parameter: all but its shared memory."""
    return tuple(a for a in launch.args if not isinstance(a, SharedMemory))


def _sections(elf: bytes) -> Iterator[tuple[str, bytes]]:
    (start,) = struct.unpack_from("<Q", elf, 0x28)
    size, count, names = struct.unpack_from("<3H", elf, 0x3A)
    headers = [struct.unpack_from("<2I4Q", elf, start + i * size) for i in range(count)]
    bodies = [elf[offset : offset + length] for *_, offset, length in headers]
    for header, body in zip(headers, bodies, strict=True):
        name = bodies[names][header[0] :].split(b"\0", 1)[0]
        yield name.decode(), body


def _sizes(attributes: bytes) -> tuple[int, ...]:
    found: dict[int, int] = {}
    at = 0
    while at + 4 <= len(attributes):
        form, name, value = struct.unpack_from("<2BH", attributes, at)
        if (form, name) == (_SIZED, _PARAMETER):
            # Symbol, place among the parameters, offset; the size is in the upper 14 bits.
            _, place, _, packed = struct.unpack_from("<I2HI", attributes, at + 4)
            found[place] = packed >> 18
        at += 4 + (value if form == _SIZED else 0)
    return tuple(found[place] for place in sorted(found))
