"""The registry of backends: an entry of `BACKENDS` and a folder of `devices` each.

A record is what the rest of the library knows of a backend without importing it: no other module
names a backend, apart from `compat`, which knows other tuners' names, and from the configuration's
keys ``cuda_arch`` and ``opencl_runtime``. What a backend does is in `devices.base`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .paths import PACKAGE
from .space import TIMING_MODES

# What the configuration says to have the first backend, or runtime of one, that answers.
AUTO = "auto"


@dataclass(frozen=True)
class Backend:
    """What a backend is, in plain values.

    `name` is its folder, its name in the configuration and the column ``backend`` of the data. A
    kernel's source for it is the file ``kernel`` with the `source_suffix`, in which one of the
    `marks` is before each kernel, or one of the `other_suffixes`. `cache_name` is what figures
    call the last cache level. `tells_occupancy`: whether it says how many blocks a
    multiprocessor holds at once. `claims_gpu`: whether a measuring job takes one of Snakemake's
    resource ``gpu`` and one core; else the device may be the host itself and the job has all cores.
    `runtimes` are those that it can be used through, in the order in which ``auto`` tries
    them; () where there is no choice. `cell_s` is how many seconds a cell takes, about, by which a
    run's time is estimated. `timing_modes` are those of `space.TIMING_MODES` that it has.
    `profiler` is the program that reads its devices' hardware counters; "" where there is none.
    `profiler_places` are patterns of folders into which it is usually installed.
    `imported` are modules of its compilers that a process may import before it forks, and
    `begin_compiler` is the function, as ``module:name`` in its folder, that such a process may call
    with a runtime and the folder of caches, or "".
    `locks_clocks`: whether it can hold a device at one clock. `environment` is the file of the
    conda environment that its jobs need. A multiprocessor loads and stores at most `unit_bytes`
    bytes a clock, as the makers of its devices document.
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
        """All that a kernel's source may end in."""
        return (self.source_suffix, *self.other_suffixes)

    @property
    def module(self) -> str:
        """Dotted name of the module that keeps `devices.base.BackendModule`."""
        return f"{PACKAGE.name}.devices.{self.name}.backend"


# In the order in which ``backend: auto`` tries them. OpenCL tells the size of the last cache, but
# not which level it is; of its runtimes PoCL is the lightest.
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
    """What the backend `name` compiles is ``kernel`` with it; None as long as that is ``auto``."""
    return BACKENDS[name].source_suffix if name in BACKENDS else None


def cache_name(name: str) -> str:
    """What the backend `name` of recorded data calls its last cache level."""
    return BACKENDS[name].cache_name if name in BACKENDS else "cache"
