"""OpenCL's runtimes: settings before the import of pyopencl, devices, facts, programs."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import re
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any

from ...core.dtypes import DType
from ...core.errors import BuildError, HostError, NoDeviceError
from ...core.paths import install
from ...core.space import INDEX_BITS
from ...storage.wholefile import write_atomic
from ..base import DeviceInfo
from ..build_file import blaming_the_host, compile_error, own_headers

# Name of the platform that each runtime reports (a part of it). The PoCL that pip ships knows no
# CPU younger than its LLVM (14) and then builds nothing, so a probe has to build and run a kernel.
PLATFORM_NAMES = {"pocl": "Portable Computing Language", "intel": "Intel"}

# PoCL compiles a kernel again for every work-group size unless specialisation is off: 0.16 s a
# cell against 0.1 ms. Pinned threads cut slow launches several times.
# Intel's runtime pins its threads by the variable of its SYCL sibling.
SETTINGS = {
    "POCL_WORK_GROUP_SPECIALIZATION": "0",
    "POCL_AFFINITY": "1",
    "DPCPP_CPU_PLACES": "threads",
    "DPCPP_CPU_CU_AFFINITY": "close",
}


def prepare_environment(runtime: str, cache: Path) -> None:
    """Point OpenCL at one runtime (``pocl``, ``intel`` or ``system``) and at writable caches.

    Must run before pyopencl is imported. `cache` is made when missing; without a writable cache
    PoCL reports no devices and says nothing. Raises HostError if it cannot be written to.
    """
    with blaming_the_host(cache):
        _prepare(runtime, cache)


def _prepare(runtime: str, cache: Path) -> None:
    cache.mkdir(parents=True, exist_ok=True)
    os.environ["XDG_CACHE_HOME"] = str(cache)
    os.environ["POCL_CACHE_DIR"] = str(cache / "pocl")
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    if runtime == "intel":
        os.environ["OCL_ICD_VENDORS"] = str(_vendors(cache, "intel", _intel_library()))
    elif runtime == "pocl" and _bundled_pocl():
        # pyopencl's own loader always finds the bundled PoCL; an empty folder hides all others.
        os.environ["OCL_ICD_VENDORS"] = str(_vendors(cache, "pocl", None))


def _vendors(cache: Path, name: str, library: Path | None) -> Path:
    folder = cache / f"vendors-{name}"
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.icd"
    line = f"{library}\n".encode()
    # Other jobs may read the file at this moment, so it is written whole.
    if library is not None and not (path.is_file() and path.read_bytes() == line):
        write_atomic(path, line)
    return folder


def _bundled_pocl() -> bool:
    spec = importlib.util.find_spec("pyopencl")
    if spec is None or not spec.submodule_search_locations:
        return False
    return any((Path(p) / ".libs" / "pocl.icd").is_file() for p in spec.submodule_search_locations)


def _intel_library() -> Path | None:
    """The Intel runtime of this environment; its own .icd file names a path of another machine."""
    path = Path(sys.prefix) / "lib" / "libintelocl.so"
    return path if path.is_file() else None


def runtime_settings(platform_name: str) -> dict[str, str]:
    """The active settings that affect this platform, for the provenance."""
    prefix = "POCL_" if PLATFORM_NAMES["pocl"] in platform_name else "DPCPP_"
    return {n: os.environ[n] for n in sorted(SETTINGS) if n.startswith(prefix) and n in os.environ}


def find_device(cl: Any, runtime: str, index: int) -> Any:
    """Device `index` of `runtime`, as pyopencl holds it. Raises NoDeviceError."""
    try:
        platforms = cl.get_platforms()
    except cl.Error as err:
        raise NoDeviceError(f"OpenCL finds no runtime ({err}); install pyopencl[pocl].") from err
    wanted = PLATFORM_NAMES.get(runtime, "")
    found = []
    for p in platforms:
        if wanted in p.name:
            found += [d for d in p.get_devices() if d not in found]
    if index >= len(found):
        names = ", ".join(sorted({p.name for p in platforms})) or "none"
        hint = install("intel") if runtime == "intel" else "choose another opencl_runtime"
        raise NoDeviceError(
            f"OpenCL runtime '{runtime}' has {len(found)} devices, so there is no device {index} "
            f"(runtimes found: {names}); {hint}."
        )
    return found[index]


def _last_level_cache() -> int:
    """Bytes of the CPU's last cache level by Linux, or 0. OpenCL runtimes report other levels."""
    sizes = Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")
    return max(
        (int(p.read_text(encoding="utf-8").strip().rstrip("K")) * 1024 for p in sizes), default=0
    )


def describe(cl: Any, d: Any, index: int) -> DeviceInfo:
    """Facts about pyopencl's device `d`, which is device `index` of its runtime."""
    kind = "cpu" if d.type & cl.device_type.CPU else "gpu"
    # Every CPU runtime measures the same cores, so they share one identity and one lock.
    uuid = f"cpu-{platform.node()}" if kind == "cpu" else f"ocl-{platform.node()}-{d.name}-{index}"
    big = 2**31 - 1
    sizes = [int(s) for s in d.max_work_item_sizes[:3]]
    return DeviceInfo(
        backend="opencl",
        name=d.name.strip(),
        uuid=uuid,
        kind=kind,
        driver=d.driver_version.strip(),
        runtime=f"{d.platform.name.strip()} {d.platform.version.strip()}",
        multiprocessors=int(d.max_compute_units),
        max_threads_per_block=int(d.max_work_group_size),
        max_block=(sizes[0], sizes[1], sizes[2]),
        max_grid=(big, big, big),
        global_memory=int(d.global_mem_size),
        max_allocation=int(d.max_mem_alloc_size),
        cache=_last_level_cache() if kind == "cpu" else int(d.global_mem_cache_size),
        core_clock_mhz=int(d.max_clock_frequency),
        extra={"pyopencl": cl.VERSION_TEXT, **runtime_settings(d.platform.name)},
        max_image=(int(d.image2d_max_width), int(d.image2d_max_height))
        if d.image_support
        else None,
    )


# Names of element types in kernel.cl that differ from ours. OpenCL's float3 takes 16 bytes, so
# kernel.cl declares a packed structure.
_TYPES = {
    "float3": "packed_float3",
    "unorm8": "uchar",
    "unorm8x4": "uchar4",
    "int8": "char",
    "uint8": "uchar",
    "int16": "short",
    "uint16": "ushort",
    "int32": "int",
    "uint32": "uint",
    "int64": "long",
    "uint64": "ulong",
}
_ABSENT = ("bfloat16", "float8_e4m3", "float8_e5m2")


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
    """The runtime with its version and the device: a binary is for both."""
    platform = device.platform
    names = (platform.name, platform.version, device.driver_version, device.name)
    return ", ".join(name.strip() for name in names)


def build_options(dtype: DType, defines: Mapping[str, str]) -> tuple[str, ...]:
    """A kernel folder's macros as options of a compiler. Raises BuildError."""
    if dtype.name in _ABSENT:
        raise BuildError(f"OpenCL C has no type '{dtype.name}'; the backend cuda has.", "")
    index = "ulong" if INDEX_BITS in defines else "uint"
    macros = (f"-D{name}={value}" for name, value in sorted(defines.items()))
    return (f"-Delement_t={_TYPES.get(dtype.name, dtype.name)}", f"-Dindex_t={index}", *macros)


# Paths that every runtime reads as they are.
_PLAIN = re.compile("[A-Za-z0-9_./+-]+")


@contextmanager
def include_option(folder: Path, cache: Path) -> Iterator[tuple[str, ...]]:
    """The option that finds the headers beside a kernel, if it includes any.

    Runtimes read options in different ways: PoCL takes a path apart at blanks, and quotes become
    part of its name. So a link with a plain name leads to a folder that has another. It stays in
    the runtimes' folder `cache`, or is temporary. Raises HostError, OSError.
    """
    if not own_headers(folder, ".cl"):
        yield ()
    elif _PLAIN.fullmatch(str(folder)):
        yield ("-I", str(folder))
    elif _PLAIN.fullmatch(str(cache)):
        yield ("-I", str(_link(cache / "includes", folder)))
    else:
        with TemporaryDirectory(prefix="gpushmoo-", dir=_plain_folder()) as place:
            yield ("-I", str(_link(Path(place), folder)))


def _link(place: Path, folder: Path) -> Path:
    """A link in `place` that leads to `folder`."""
    target = folder.absolute()
    link = place / hashlib.sha256(os.fsencode(target)).hexdigest()[:16]
    place.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        link.symlink_to(target, target_is_directory=True)
    return link


def _plain_folder() -> str:
    for place in (gettempdir(), "/tmp", "/var/tmp", "/dev/shm"):
        if _PLAIN.fullmatch(place) and os.access(place, os.W_OK | os.X_OK):
            return place
    raise HostError(
        f"The path of '{gettempdir()}' has characters that OpenCL's compilers do not take in the "
        "name of a folder with headers: set TMPDIR to a folder whose path has letters, digits and "
        "'/' only."
    )


def with_macros(source: str, options: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """The source behind lines that define the macros of `options`, and the other options.

    Runtimes differ in how they take an option apart at blanks, quotes and backslashes. The headers
    that they include before the source do not see these macros.
    """
    lines = []
    others = []
    words = iter(options)
    for word in words:
        macro = next(words, "") if word == "-D" else word.removeprefix("-D")
        if not word.startswith("-D"):
            others.append(word)
            continue
        name, equals, value = macro.partition("=")
        # As compilers have it, a macro without a value is 1.
        text = value if equals else "1"
        lines.append(f"#define {name} {text}".replace("\n", "\\\n"))
    return "\n".join([*lines, "#line 1", source]), tuple(others)


def build_source(
    cl: Any, context: Any, source: str, options: Sequence[str], cache: Path, anew: bool = False
) -> tuple[Any, str]:
    """Program and messages; a kept binary's may be others unless compiled `anew`.

    `cache` is the runtime's folder. Raises BuildError or HostError.
    """
    source, others = with_macros(source, options)
    program = cl.Program(context, source)
    if anew:
        with warnings.catch_warnings():
            # "Pre-build attribute access defeats compiler caching": so it shall.
            warnings.simplefilter("ignore")
            program.get_info(cl.program_info.SOURCE)
    try:
        program.build(options=list(others))
    except cl.Error as err:
        raise compile_error("kernel.cl", str(err), cache) from err
    info: Any = program.get_build_info
    return program, str(info(context.devices[0], cl.program_build_info.LOG)).strip()


@cache
def begin_compiler(runtime: str, folder: Path) -> object:
    """Compile next to nothing with PoCL, so that forks of this process need not begin its compiler.

    That reads a library of built-in functions, which takes longer than to compile most kernels; it
    lasts as long as a context, which is kept here. The device's threads, which forks lack, take no
    part in compiling. Other runtimes promise nothing of forks and are left alone.
    """
    if runtime != "pocl":
        return None
    cl = import_pyopencl(runtime, folder)
    context = cl.Context([find_device(cl, runtime, 0)])
    build_source(cl, context, "__kernel void nothing(void) { }", (), folder, anew=True)
    return context


def load_binary(cl: Any, context: Any, code: bytes) -> Any:
    """The program of a binary. Raises BuildError where the runtime does not take it."""
    try:
        return cl.Program(context, context.devices, [code]).build()
    except (cl.Error, ValueError) as err:
        first = str(err).splitlines()[0]
        raise BuildError(f"The OpenCL runtime does not take its binary ({first}).", "") from err
