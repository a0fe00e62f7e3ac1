"""The device of a job, and a job that measures beside the sweeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True, kw_only=True)
class JobDevice:
    """Choice of the device that a job opens.

    Attributes
    ----------
    backend
        Name of the backend.
    device
        Index of the device in the backend, or ``all``.
    opencl_runtime
        Name of the OpenCL runtime. Other backends ignore it.
    seed
        Seed of the job's input data.
    """

    backend: str
    device: int | str
    opencl_runtime: str
    seed: int

    @property
    def plain(self) -> dict[str, Any]:
        """The fields by name, sorted, so that Snakemake compares equal devices as equal."""
        return dict(sorted(vars(self).items()))


@dataclass(frozen=True, kw_only=True)
class StudyJob:
    """Everything but code and cells that the measurements of a study depend on.

    `kernels` are the digests of the sources of the kernels, and `folders` their folders, by name.
    """

    device: JobDevice
    kernels: Mapping[str, str]
    folders: Mapping[str, str]

    @property
    def plain(self) -> dict[str, Any]:
        """The job as JSON has it: Snakemake compares it."""
        return {**vars(self), "device": self.device.plain}

    @classmethod
    def of_plain(cls, values: Mapping[str, Any]) -> Self:
        """Return the job that `plain` gave."""
        return cls(**{**values, "device": JobDevice(**values["device"])})
