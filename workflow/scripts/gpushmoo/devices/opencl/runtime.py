"""Set up OpenCL's runtimes before pyopencl is imported. Find devices and build programs."""

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
    """Make OpenCL use one runtime and writable caches. Call it before pyopencl is imported.

    Without a writable cache, PoCL reports no devices and no error.

    Parameters
    ----------
    runtime
        ``pocl``, ``intel`` or ``system``.
    cache
        Folder of the caches, which is created if it is missing.

    Raises
    ------
    HostError
        If the folder cannot be written.
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
    """Return Intel's runtime in this environment, whose own .icd file has a wrong path."""
    path = Path(sys.prefix) / "lib" / "libintelocl.so"
    return path if path.is_file() else None


def runtime_settings(platform_name: str) -> dict[str, str]:
    """Return the active environment variables that affect a platform, for the provenance.

    Parameters
    ----------
    platform_name
        Name of the platform that the runtime reports.
    """
    prefix = "POCL_" if PLATFORM_NAMES["pocl"] in platform_name else "DPCPP_"
    return {n: os.environ[n] for n in sorted(SETTINGS) if n.startswith(prefix) and n in os.environ}


def find_device(cl: Any, runtime: str, index: int) -> Any:
    """Return pyopencl's object of a device.

    Parameters
    ----------
    cl
        The module pyopencl.
    runtime
        Name of the runtime.
    index
        Index of the device in the runtime, from 0.

    Raises
    ------
    NoDeviceError
        If there is no such device.
    """
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
    """Return the bytes of the CPU's last cache level, or 0. OpenCL runtimes report other levels."""
    sizes = Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")
    return max(
        (int(p.read_text(encoding="utf-8").strip().rstrip("K")) * 1024 for p in sizes), default=0
    )


def describe(cl: Any, d: Any, index: int) -> DeviceInfo:
    """Return the properties of pyopencl's device `d`, which has this index in its runtime."""
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
    """Return the module pyopencl, which uses only `runtime`.

    Parameters
    ----------
    runtime
        Name of the runtime.
    cache
        Folder in which runtimes keep results.

    Raises
    ------
    NoDeviceError
        If pyopencl cannot be imported.
    """
    prepare_environment(runtime, cache)
    try:
        import pyopencl as cl
    except ImportError as err:
        raise NoDeviceError(f"pyopencl does not import ({err}); install pyopencl[pocl].") from err
    # The compiler's remarks are kept with the build; pyopencl would print them at every build.
    warnings.filterwarnings("ignore", category=cl.CompilerWarning)
    return cl


def target_of(device: Any) -> str:
    """Return the target of a device: its name, and its runtime with the version.

    A binary is valid only for both.
    """
    platform = device.platform
    names = (platform.name, platform.version, device.driver_version, device.name)
    return ", ".join(name.strip() for name in names)


def build_options(dtype: DType, defines: Mapping[str, str]) -> tuple[str, ...]:
    """Return a kernel's macros as options of the compiler.

    Parameters
    ----------
    dtype
        Element type.
    defines
        Macros by name.

    Raises
    ------
    BuildError
        If OpenCL C has no such element type.
    """
    if dtype.name in _ABSENT:
        raise BuildError(f"OpenCL C has no type '{dtype.name}'; the backend cuda has.", "")
    index = "ulong" if INDEX_BITS in defines else "uint"
    macros = (f"-D{name}={value}" for name, value in sorted(defines.items()))
    return (f"-Delement_t={_TYPES.get(dtype.name, dtype.name)}", f"-Dindex_t={index}", *macros)


# Paths that every runtime reads as they are.
_PLAIN = re.compile("[A-Za-z0-9_./+-]+")


@contextmanager
def include_option(folder: Path, cache: Path) -> Iterator[tuple[str, ...]]:
    """Yield the compiler's option for the headers next to a kernel, empty if it includes none.

    Runtimes read options in different ways. PoCL splits a path at blanks, and treats quotes as a
    part of the name. Therefore the option names a link with a plain name if the path of the folder
    is not plain.

    Parameters
    ----------
    folder
        The kernel's folder.
    cache
        Folder that gets the link, unless its path is not plain. Then the link is temporary.

    Raises
    ------
    HostError, OSError
        If the link cannot be created.
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
    """Return a link in the folder `place` that leads to `folder`."""
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
    """Replace options that define macros by lines in front of the source.

    Runtimes differ in how they split an option at blanks, quotes and backslashes. Headers that are
    included before the source do not see these macros.

    Parameters
    ----------
    source
        The source.
    options
        Options of the compiler.

    Returns
    -------
    tuple
        The source with the macros, and the other options.
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
    """Build a program from source, and return it with the compiler's messages.

    Parameters
    ----------
    cl, context
        The module pyopencl, and the context of the device.
    source
        The source.
    options
        Options of the compiler.
    cache
        Folder in which the runtime keeps results.
    anew
        Whether to compile although the runtime has a cached binary, which may have other messages.

    Raises
    ------
    BuildError
        If the source does not compile.
    HostError
        If the machine stopped the compiler.
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
    """Initialize PoCL's compiler once in this process, so that forks need not do it.

    The initialization reads a library of built-in functions, which takes longer than to compile
    most kernels. It lasts as long as a context, which this function keeps. Forks lack the threads
    of the device, but these do not compile. Other runtimes do not guarantee that they work in
    forks, so nothing is done for them.

    Parameters
    ----------
    runtime
        Name of the runtime.
    folder
        Folder in which the runtime keeps results.
    """
    if runtime != "pocl":
        return None
    cl = import_pyopencl(runtime, folder)
    context = cl.Context([find_device(cl, runtime, 0)])
    build_source(cl, context, "__kernel void nothing(void) { }", (), folder, anew=True)
    return context


def load_binary(cl: Any, context: Any, code: bytes) -> Any:
    """Return the program of a binary.

    Parameters
    ----------
    cl, context
        The module pyopencl, and the context of the device.
    code
        The binary.

    Raises
    ------
    BuildError
        If the runtime does not accept the binary.
    """
    try:
        return cl.Program(context, context.devices, [code]).build()
    except (cl.Error, ValueError) as err:
        first = str(err).splitlines()[0]
        raise BuildError(f"The OpenCL runtime does not take its binary ({first}).", "") from err
