"""Compile CUDA kernels to machine code with NVRTC, and cache it, without device or CuPy.

NVRTC from CUDA 13.3 on contains CUDA's headers. Other headers are those of installed packages or of
a toolkit.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import re
import struct
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from ...core.dtypes import DTYPES, DType
from ...core.errors import BuildError, DeviceError, NoDeviceError
from ...core.space import INDEX_BITS, Version
from ...storage.wholefile import write_atomic
from ...workloads.contract import Argument, Launch, SharedMemory
from ...workloads.loader import KernelFolder, included
from ..build_file import (
    BuildRequest,
    CompiledCode,
    EntryFacts,
    compile_error,
    kept_code,
    kernel_source,
    own_headers,
    shortened,
)
from . import triton
from .sass import EntryCode, listing, parse

# Below a folder of packages: CUDA's headers and CCCL's (libcu++, CUB, Thrust). Packages of CUDA 12
# had a folder each.
_OF_12 = ("cuda_runtime/include", "cuda_nvcc/include", "cuda_cccl/include")
_BELOW = {
    "nvidia": ("cu{major}/include", "cu{major}/include/cccl"),
    "cupy": (
        "_core/include/cupy/_cccl/libcudacxx",
        "_core/include/cupy/_cccl/cub",
        "_core/include/cupy/_cccl/thrust",
        "_core/include/cupy/_cuda/cuda-*",
    ),
}
# Files that contain the version of the files beside them.
_TELLING = ("cuda_runtime_api.h", "cuda.h", "cuda/std/__cccl/version.h", "cub/version.cuh")
_VERSION = re.compile(r"#\s*define (?:CUDART|CUDA|CCCL|CUB)_VERSION (\d+)")

_FROM_CUDA = (
    "algorithm",
    "array",
    "bit",
    "cassert",
    "cfloat",
    "climits",
    "cmath",
    "complex",
    "cstddef",
    "cstdint",
    "functional",
    "limits",
    "numeric",
    "span",
    "tuple",
    "type_traits",
    "utility",
)
_OF_C = ("assert", "float", "limits", "math", "stddef", "stdint")
# NVRTC has their contents for device code without them.
_BUILT_IN = ("cstdio", "cstdlib", "cuda_runtime.h", "stdio.h", "stdlib.h")
STANDARD: Mapping[str, str] = {
    **{
        name: f"#include <cuda/std/{name}>\nnamespace cuda::std {{}}\n"
        "namespace std { using namespace ::cuda::std; }\n"
        for name in _FROM_CUDA
    },
    **{f"{name}.h": f"#include <c{name}>\n" for name in _OF_C},
    "math.h": "#include <cmath>\n#define M_PI 3.14159265358979323846\n",
    **dict.fromkeys(_BUILT_IN, ""),
}


def bundled(nvrtc: Any, cache: Path) -> tuple[Path, ...]:
    """Return folders with the headers that NVRTC contains, empty for an NVRTC without headers.

    Parameters
    ----------
    nvrtc
        The module ``cuda.bindings.nvrtc``.
    cache
        Folder in which the headers are written.
    """
    version = "-".join(map(str, nvrtc.nvrtcVersion()[1:]))
    folder = cache / "headers" / version
    with suppress(AttributeError, RuntimeError):  # older bindings, or an older library
        folder.parent.mkdir(parents=True, exist_ok=True)
        status, *_ = nvrtc.nvrtcInstallBundledHeaders(os.fsencode(folder), 0)
        if not status:
            return folder, folder / "cccl"
    return ()


def installed(nvrtc: str) -> tuple[Path, ...]:
    """Return folders with CUDA's and CCCL's headers in packages and toolkits.

    Parameters
    ----------
    nvrtc
        Version of NVRTC, whose major version the headers must have.
    """
    major = nvrtc.split(".")[0]
    roots = [Path(os.environ[name]) for name in ("CUDA_PATH", "CUDA_HOME") if os.environ.get(name)]
    found = []
    for package, below in _BELOW.items():
        spec = importlib.util.find_spec(package)
        places = (spec.submodule_search_locations if spec is not None else None) or ()
        names = [name.format(major=major) for name in below]
        names += _OF_12 if (package, major) == ("nvidia", "12") else ()
        found += [f for place in places for name in names for f in sorted(Path(place).glob(name))]
    for root in (*roots, Path("/usr/local/cuda")):
        found += [root / "include", root / "include/cccl"]
    return tuple(path for path in dict.fromkeys(found) if path.is_dir())


def versions(nvrtc: str) -> Iterator[str]:
    """Yield the texts that determine the content of CUDA's headers: folders and versions.

    Parameters
    ----------
    nvrtc
        Version of NVRTC.
    """
    for path in installed(nvrtc):
        texts = (p.read_text("utf-8", "replace") for n in _TELLING if (p := path / n).is_file())
        yield " ".join([str(path), *(v for text in texts for v in _VERSION.findall(text)[:1])])


# Names of element types in CUDA C++ that differ from ours.
_TYPES = {
    "unorm8": "unsigned char",
    "unorm8x4": "uchar4",
    "int8": "signed char",
    "int16": "short",
    "uint8": "unsigned char",
    "uint16": "unsigned short",
    "int32": "int",
    "uint32": "unsigned",
    "int64": "long long",
    "uint64": "unsigned long long",
    "half": "__half",
    "bfloat16": "__nv_bfloat16",
    "float8_e4m3": "__nv_fp8_e4m3",
    "float8_e5m2": "__nv_fp8_e5m2",
}
# Headers of those that the language has not itself, included before the source.
_HEADERS = {
    "half": "cuda_fp16.h",
    "bfloat16": "cuda_bf16.h",
    **dict.fromkeys(("float8_e4m3", "float8_e5m2"), "cuda_fp8.h"),
}

_INSTALL = "install the extra 'cuda13' (or 'cuda12' for an older driver)"


def nvrtc_version() -> str:
    """Return the version of the compiler, for example ``13.2``.

    Raises
    ------
    NoDeviceError
        If NVRTC is missing.
    """
    nvrtc = _bindings()
    status, major, minor = nvrtc.nvrtcVersion()
    if status:
        raise DeviceError(f"NVRTC fails unexpectedly ({status.name}); reinstall its package.")
    return f"{major}.{minor}"


def build_options(dtype: DType, defines: Mapping[str, str]) -> tuple[str, ...]:
    """Return NVRTC's options for a kernel's source, without the architecture.

    Parameters
    ----------
    dtype
        Element type.
    defines
        Macros by name.
    """
    index = "size_t" if INDEX_BITS in defines else "unsigned"
    types = f"-Delement_t={_TYPES.get(dtype.name, dtype.name)}", f"-Dindex_t={index}"
    macros = (f"-D{name}={value}" for name, value in sorted(defines.items()))
    header = [f"--pre-include={_HEADERS[dtype.name]}"] if dtype.name in _HEADERS else []
    return ("-std=c++17", *header, *types, *macros)


@dataclass(frozen=True)
class Unit:
    """A source for NVRTC, with everything that determines its machine code.

    Attributes
    ----------
    text
        The source.
    name
        Name of the kernel, for messages.
    options
        Options of the compiler.
    folder
        Folder with headers that the source includes by a relative path.
    expressions
        Instances of the source's templates, for example ``sum<float, BLOCK>``.
    """

    text: str
    name: str
    options: tuple[str, ...] = ()
    folder: Path | None = None
    expressions: tuple[str, ...] = ()

    def includes(self) -> bool:
        """Return whether the source or an option includes a file."""
        return any(included(self.text.encode())) or any("include" in o for o in self.options)


def unit_of(
    folder: Path,
    dtype: DType,
    defines: Mapping[str, str],
    options: Sequence[str] = (),
    expressions: Sequence[str] = (),
) -> Unit:
    """Return the source in a kernel's folder.

    Parameters
    ----------
    folder
        The kernel's folder.
    dtype
        Element type.
    defines
        Macros by name.
    options
        Additional options of the compiler.
    expressions
        Instances of templates.

    Raises
    ------
    BuildError
        If there is no source.
    """
    options = (*build_options(dtype, defines), *options)
    return Unit(kernel_source(folder, ".cu"), folder.name, options, folder, tuple(expressions))


def version_unit(folder: KernelFolder, dtype: str, version: Version) -> Unit:
    """Return the source of a version of a kernel.

    Parameters
    ----------
    folder
        The kernel.
    dtype
        Name of the element type.
    version
        Defines of a variant, and of the axes that are compiled in.

    Raises
    ------
    BuildError, WorkloadError
        If there is no source, or if the workload raises an error.
    """
    w = folder.workload
    expressions = [name for name in w.name_expressions(version) if "<" in name]
    macros = w.macros(dtype, version)
    return unit_of(folder.path, DTYPES[dtype], macros, w.options, expressions)


def compile_cubin(unit: Unit, arch: str, cache: Path | None = None) -> CompiledCode:
    """Compile a source to machine code.

    Parameters
    ----------
    unit
        The source.
    arch
        Architecture, for example ``sm_90``.
    cache
        Folder for headers, by default a temporary one.

    Returns
    -------
    CompiledCode
        An ELF file, and the messages of the compiler.

    Raises
    ------
    BuildError
        If the source does not compile.
    NoDeviceError
        If NVRTC is missing or does not know the architecture.
    """
    nvrtc = _bindings()
    _check_arch(nvrtc, arch)
    needs_room = cache is None and unit.includes()
    with tempfile.TemporaryDirectory() if needs_room else nullcontext("") as own:
        return _compiled(nvrtc, unit, arch, cache or Path(own))


# NVRTC's of a header that is nowhere.
_NO_HEADER = re.compile(r"^(.*?)\((\d+)\): catastrophic error: .* open source file \"(.+?)\"", re.M)


def _without_header(log: str) -> BuildError | None:
    """Return the error of a header that does not exist, or None for any other message."""
    absent = _NO_HEADER.search(shortened(log))
    if absent is None:
        return None
    file, line, name = absent.groups()
    old = "; for CUDA 12: the package nvidia-cuda-nvcc-cu12" if name.startswith("crt/") else ""
    return BuildError(
        f"{Path(file).name}:{line} includes '{name}', which is neither beside it nor among the "
        f"headers of CUDA here; the extra 'cuda13' or 'cuda12' brings those{old}",
        shortened(log),
    )


def _compiled(nvrtc: Any, unit: Unit, arch: str, cache: Path) -> CompiledCode:
    flags = [f"--gpu-architecture={arch}", *unit.options]
    headers: Mapping[str, str] = {}
    if unit.includes():
        headers = STANDARD
        folders = (
            *filter(None, [unit.folder]),
            *bundled(nvrtc, cache),
            *installed(nvrtc_version()),
        )
        flags += [f"--include-path={folder}" for folder in folders]
    texts, names = ([item.encode() for item in column] for column in (headers.values(), headers))
    source = unit.text.encode()
    file = f"{unit.name}/kernel.cu".encode()
    program = _answer(nvrtc.nvrtcCreateProgram(source, file, len(headers), texts, names))
    try:
        for expression in unit.expressions:
            _answer(nvrtc.nvrtcAddNameExpression(program, expression.encode()))
        (status,) = nvrtc.nvrtcCompileProgram(program, len(flags), [*map(os.fsencode, flags)])
        message = _read(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program)
        log = message.rstrip(b"\0").decode(errors="replace").strip()
        if status:
            raise _without_header(log) or compile_error("kernel.cu", log, cache)
        code = _read(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program)
        facts = plain_names(parameter_sizes(code))
        for expression in unit.expressions:
            symbol = _answer(nvrtc.nvrtcGetLoweredName(program, expression.encode()))
            facts[expression] = EntryFacts(symbol.decode())
        return CompiledCode(code, log, facts)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


# A function of C++ that is neither in a namespace nor an instance of a template: ``_Z3fooPf``.
_PLAIN = re.compile(r"_Z(\d+)([A-Za-z_].*)")


def plain_names(symbols: Iterable[str]) -> dict[str, EntryFacts]:
    """Return the kernels that can be launched by their C++ names, because no other has them.

    Parameters
    ----------
    symbols
        Names in the machine code.
    """
    named: dict[str, list[str]] = {}
    for symbol in symbols:
        found = _PLAIN.fullmatch(symbol)
        name = found[2][: int(found[1])] if found else ""
        if found and found[2][len(name) : len(name) + 1] != "I":
            named.setdefault(name, []).append(symbol)
    return {name: EntryFacts(same[0]) for name, same in named.items() if len(same) == 1}


def _bindings() -> Any:
    """Return the module ``cuda.bindings.nvrtc`` after its library is loaded."""
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
    """Return the value in a reply of the bindings, or raise DeviceError for a failure."""
    status, *values = reply
    if status:
        raise DeviceError(f"NVRTC fails unexpectedly ({status.name}); reinstall its package.")
    return values[0] if values else None


def _read(size_of: Any, read: Any, program: Any) -> bytes:
    """Return a result of `program` that NVRTC writes into a buffer."""
    # Not bytes: Python shares bytes objects of one character, and a log may be that short.
    buffer = bytearray(_answer(size_of(program)))
    _answer(read(program, buffer))
    return bytes(buffer)


def cached_cubin(unit: Unit, arch: str, cache: Path) -> CompiledCode:
    """Return the machine code of a source from the cache, or compile it.

    Errors are those of `compile_cubin`.

    Parameters
    ----------
    unit
        The source.
    arch
        Architecture, for example ``sm_90``.
    cache
        Folder of the cache.
    """
    included: tuple[str, ...] = tuple(versions(nvrtc_version())) if unit.includes() else ()
    if unit.folder is not None:
        included += own_headers(unit.folder, ".cu")
    parts = (unit.text, *unit.options, *unit.expressions, *included, arch, nvrtc_version())
    return kept_code(parts, cache / "cubin", partial(compile_cubin, unit, arch, cache))


def disassembled(code: bytes, cache: Path) -> dict[str, EntryCode]:
    """Return the contents of each kernel in machine code, by name.

    The output of nvdisasm, which takes 0.5 s, is cached.

    Parameters
    ----------
    code
        A cubin.
    cache
        Folder of the cache.
    """

    def text() -> CompiledCode:
        return CompiledCode(zlib.compress(listing(code).encode()), "")

    kept = kept_code((hashlib.sha256(code).hexdigest(), "nvdisasm"), cache / "sass", text)
    return parse(zlib.decompress(kept.code).decode())


def stored_cubin(code: bytes, cache: Path) -> Path:
    """Return the path of a file in `cache` with this machine code. Write it if it is missing."""
    path = cache / "cubin" / f"{hashlib.sha256(code).hexdigest()[:32]}.cubin"
    if not path.is_file() or path.read_bytes() != code:
        write_atomic(path, code)
    return path


def version_code(
    folder: KernelFolder, dtype: str, version: Version, arch: str, cache: Path
) -> dict[str, EntryCode]:
    """Return the contents of a version's machine code, by name of the kernel function.

    Parameters
    ----------
    folder
        The kernel.
    dtype
        Name of the element type.
    version
        Defines of a variant, and of the axes that are compiled in.
    arch
        Architecture, for example ``sm_90``.
    cache
        Folder of the cache.
    """
    made = cached_cubin(version_unit(folder, dtype, version), arch, cache)
    return by_entry(disassembled(made.code, cache), made.facts)


def by_entry(
    codes: Mapping[str, EntryCode], facts: Mapping[str, EntryFacts]
) -> dict[str, EntryCode]:
    """Return the contents of machine code by the names that launches use for the functions.

    Parameters
    ----------
    codes
        Contents by symbol.
    facts
        Symbols by name.
    """
    asked = {fact.symbol: name for name, fact in facts.items()}
    return {(name := asked.get(s, s)): replace(code, entry=name) for s, code in codes.items()}


_SECTION = ".nv.info."
# Attributes have 4 bytes: format, name, and a value or, in the last of the formats, the number of
# bytes that follow.
_SIZED = 0x04
_PARAMETER = 0x17
_VARIABLE = 1  # STT_OBJECT


def parameter_sizes(cubin: bytes) -> dict[str, tuple[int, ...]]:
    """Return the bytes of each parameter of a cubin's kernels, by symbol."""
    if cubin[:5] != b"\x7fELF\x02":
        return {}
    return {
        name.removeprefix(_SECTION): _sizes(body)
        for name, body in _sections(cubin)
        if name.startswith(_SECTION)
    }


def symbol_sizes(cubin: bytes) -> dict[str, int]:
    """Return the bytes of each variable of a cubin, by symbol, empty for other files."""
    if cubin[:5] != b"\x7fELF\x02":
        return {}
    bodies = dict(_sections(cubin))
    texts, table = bodies.get(".strtab", b""), bodies.get(".symtab", b"")
    entries = struct.iter_unpack("<I2BH2Q", table)
    return {
        texts[at:].split(b"\0", 1)[0].decode(): size
        for at, info, _, _, _, size in entries
        if info & 0xF == _VARIABLE
    }


def passed(launch: Launch) -> tuple[Argument, ...]:
    """Return the arguments for which the kernel has a parameter, that is all but shared memory."""
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


class Built(NamedTuple):
    """Compiled machine code, its properties, the compiler, and the compiler options."""

    made: CompiledCode
    compiler: str
    options: str


def built(
    request: BuildRequest, folder: KernelFolder, dtype: str, version: Version, arch: str
) -> Built:
    """Return the machine code of a version, with the builder for the kind of its source.

    Errors are those of `BackendModule.compile_version`.

    Parameters
    ----------
    request
        Options and cache of the compiler.
    folder
        The kernel.
    dtype
        Name of the element type.
    version
        Defines of a variant, and of the axes that are compiled in.
    arch
        Architecture, for example ``sm_90``.
    """
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
    """Return the machine code that the kernel's folder contains."""
    path = folder.path / "kernel.cubin"
    code = path.read_bytes()
    sizes = parameter_sizes(code)
    if not sizes:
        raise BuildError(f"{path.name} is not CUDA machine code with a kernel", "")
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
