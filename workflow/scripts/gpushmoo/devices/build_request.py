"""What the backends' compilers are asked for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class BuildRequest:
    """For which devices a run's kernels are compiled.

    `device` is an index within the backend or ``all``; `cuda_arch` (``sm_90``) names a CUDA
    architecture instead, for devices that are not on this host; compilers keep what they have
    compiled in `cache`. `options` go to the compiler besides those of every build.
    """

    backend: str
    device: str
    opencl_runtime: str
    cuda_arch: str | None
    cache: Path
    options: tuple[str, ...] = ()
