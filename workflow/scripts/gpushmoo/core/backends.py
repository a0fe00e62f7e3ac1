"""Register the backends: each is an entry of `BACKENDS` and a folder of `devices`.

An entry is all that the rest of the library knows about a backend without importing it. No other
module names a backend, except `compat`, which knows other tuners' names, and the configuration's
keys ``cuda_arch`` and ``opencl_runtime``. `devices.base` defines the functions of a backend.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .paths import PACKAGE
from .space import TIMING_MODES

# Value in the configuration that selects the first backend, or its first runtime, that responds.
AUTO = "auto"


@dataclass(frozen=True)
class Backend:
    """Properties of a backend, as plain values.

    Attributes
    ----------
    name
        Its folder, its name in the configuration, and the column ``backend`` of the data.
    source_suffix, other_suffixes, marks
        A kernel's source is the file ``kernel`` with the `source_suffix`, in which one of the
        `marks` precedes each kernel, or with one of the `other_suffixes`.
    cache_name
        Name of the last cache level in figures.
    tells_occupancy
        Whether it reports how many blocks fit on a multiprocessor.
    claims_gpu
        Whether a measuring job takes one of Snakemake's resource ``gpu`` and one core. Otherwise
        the device may be the host itself, and the job takes all cores.
    runtimes
        Runtimes that can provide it, in the order in which ``auto`` tries them; () without a
        choice.
    cell_s
        Approximate seconds per cell, for the estimate of a run's time.
    timing_modes
        Supported modes of `space.TIMING_MODES`.
    profiler, profiler_places
        Program that reads hardware counters ("" without one), and patterns of the folders in which
        it is usually installed.
    imported
        Modules of its compilers that a process may import before it forks.
    begin_compiler
        Function, as ``module:name`` in its folder, that such a process may call with a runtime and
        the folder of caches; or "".
    locks_clocks
        Whether it can lock a device's clock.
    environment
        File of the conda environment that its jobs need.
    unit_bytes
        Bytes that a multiprocessor loads and stores at most per clock, as the makers of its devices
        document.
    """

    name: str
    source_suffix: str
    cache_name: str = "cache"
    tells_occupancy: bool = False
    claims_gpu: bool = False
    runtimes: tuple[str, ...] = ()
    cell_s: float = 0.01
    timing_modes: tuple[str, ...] = ("batched", "isolated")
    profiler: str = ""
    profiler_places: tuple[str, ...] = ()
    imported: tuple[str, ...] = ()
    begin_compiler: str = ""
    locks_clocks: bool = False
    environment: str = "environment.yml"
    marks: tuple[str, ...] = ()
    other_suffixes: tuple[str, ...] = ()
    unit_bytes: int = 512

    @property
    def suffixes(self) -> tuple[str, ...]:
        """All suffixes that a kernel's source may have."""
        return (self.source_suffix, *self.other_suffixes)

    @property
    def module(self) -> str:
        """Dotted name of the module that defines `devices.base.BackendModule`."""
        return f"{PACKAGE.name}.devices.{self.name}.backend"


# In the order in which ``backend: auto`` tries them. OpenCL reports the size of the last cache, but
# not its level. PoCL is the lightest of its runtimes.
BACKENDS: Mapping[str, Backend] = {
    backend.name: backend
    for backend in (
        Backend(
            name="cuda",
            source_suffix=".cu",
            cache_name="L2",
            tells_occupancy=True,
            claims_gpu=True,
            cell_s=0.005,
            timing_modes=TIMING_MODES,
            profiler="ncu",
            profiler_places=("/usr/local/cuda*/bin", "/opt/nvidia/nsight-compute/*"),
            locks_clocks=True,
            environment="environment-cuda.yml",
            marks=("__global__",),
            other_suffixes=(".triton.py", ".cubin"),
            unit_bytes=128,
        ),
        Backend(
            name="opencl",
            source_suffix=".cl",
            runtimes=("pocl", "intel", "system"),
            cell_s=0.05,
            imported=("pyopencl",),
            begin_compiler="runtime:begin_compiler",
            marks=("__kernel", "kernel void"),
        ),
    )
}


def source_suffix(name: str) -> str | None:
    """Return the suffix of ``kernel`` that the backend `name` compiles.

    The result is None if that is ``auto``.
    """
    return BACKENDS[name].source_suffix if name in BACKENDS else None


def cache_name(name: str) -> str:
    """Return the name of the last cache level for the backend `name` of recorded data."""
    return BACKENDS[name].cache_name if name in BACKENDS else "cache"
