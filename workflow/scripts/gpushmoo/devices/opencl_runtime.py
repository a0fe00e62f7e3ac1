"""Which OpenCL runtime answers, and the settings that must stand before pyopencl is imported."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

from ..wholefile import write_whole

# Tried in this order by `auto`. PoCL is light and MIT; the one that pip ships knows no CPU younger
# than its LLVM (14) and then builds nothing, so a probe has to build and run a kernel.
RUNTIMES = ("pocl", "intel", "system")

# Name of the platform that each runtime reports (a part of it).
PLATFORM_NAMES = {"pocl": "Portable Computing Language", "intel": "Intel"}

# PoCL compiles a kernel anew for every work-group size unless specialisation is off: 0.16 s a
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
    PoCL reports no devices and says nothing.
    """
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
    if library is not None:
        _put(folder / f"{name}.icd", f"{library}\n")
    return folder


def _put(path: Path, text: str) -> None:
    """Other jobs may read the file at this moment: it is never half there.

    Nor is what is written beside it seen: of a folder OpenCL reads what ends in ``.icd``.
    """
    if not path.is_file() or path.read_bytes() != text.encode():
        write_whole(path, text.encode())


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
    """The settings in force that change what this platform measures, for the provenance."""
    prefix = "POCL_" if PLATFORM_NAMES["pocl"] in platform_name else "DPCPP_"
    return {n: os.environ[n] for n in sorted(SETTINGS) if n.startswith(prefix) and n in os.environ}
