"""A building job: everything that determines the machine code in a kernel's build file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from .paths import ROOT
from .space import Version


@dataclass(frozen=True, kw_only=True)
class BuildJob:
    """The versions of a kernel to compile for one element type, and the devices to compile for.

    Parameters
    ----------
    folder
        The kernel's folder, relative to the project's if it is inside.
    kernel_digest
        Digest of the kernel's sources.
    dtype
        The element type.
    versions
        What is compiled.
    backend, device, opencl_runtime
        The device: the name of a backend, the index of a device or ``all``, and of OpenCL the
        runtime.
    cuda_arch
        An architecture (``sm_90``) to compile for instead of that of the device; None for that.
    compile_timeout_s
        Seconds of a processor after which a version counts as one that does not compile.
    """

    folder: str
    kernel_digest: str
    dtype: str
    versions: tuple[Version, ...]
    backend: str
    device: int | str
    opencl_runtime: str
    cuda_arch: str | None
    compile_timeout_s: float

    @property
    def plain(self) -> dict[str, Any]:
        """The job as JSON has it: Snakemake compares it, and a compiling process reads it."""
        versions = [[v.variant, [list(value) for value in v.values]] for v in self.versions]
        return dict(sorted({**vars(self), "versions": versions}.items()))

    @classmethod
    def of_plain(cls, values: Mapping[str, Any]) -> Self:
        """Return the job from the values of `plain`; raise KeyError or TypeError for others."""
        versions = tuple(
            Version(variant, tuple((axis, value) for axis, value in compiled_in))
            for variant, compiled_in in values["versions"]
        )
        return cls(**{**values, "versions": versions})

    @property
    def kernel_folder(self) -> Path:
        """The path of the kernel's folder."""
        return ROOT / self.folder
