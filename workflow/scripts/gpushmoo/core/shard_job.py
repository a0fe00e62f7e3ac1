"""A measuring job: everything that determines the cells of a shard, and the request to measure it.

The same `ShardJob` is in the plan of a run, in Snakemake's parameters of the rule, in the request
to the measuring server, in the measuring process, and in the provenance of the shard's file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from .measure_settings import Measure
from .paths import ROOT
from .space import TIMING_MODES, ShardSpace, space_of


@dataclass(frozen=True, kw_only=True)
class ShardJob:
    """Everything but code that the cells of a shard depend on.

    If it differs, Snakemake runs the job again. The job reuses cells that are the same (`Earlier`).

    Parameters
    ----------
    folder
        The kernel's folder, relative to the project's if it is inside.
    kernel_digest
        Digest of the kernel's sources.
    dtype, variants, cache_states, timing_modes, axes
        What is swept: names, and for each axis its values or how to find them.
    sizes
        ``[height, width]`` in elements, or a size that follows the device.
    shard
        The index of this part of the sweep, from 0, and the number of parts.
    repeat
        From 1 to ``measure.repeats``.
    backend, device, opencl_runtime
        The device: the name of a backend, the index of a device or ``all``, and of OpenCL the
        runtime.
    seed
        The seed of the data, of the orders of cells and samples, and of the places of buffers. The
        orders and places also depend on the repeat.
    thread_limit
        The most threads of a block; None for the device's own limit.
    measure
        How cells are measured.
    """

    folder: str
    kernel_digest: str
    dtype: str
    variants: Sequence[str]
    sizes: Sequence[Any]
    cache_states: Sequence[str]
    axes: Mapping[str, Any]
    shard: Sequence[int]
    repeat: int
    backend: str
    device: int | str
    opencl_runtime: str
    seed: int
    thread_limit: int | None
    measure: Measure
    timing_modes: Sequence[str] = TIMING_MODES[:1]

    @property
    def plain(self) -> dict[str, Any]:
        """The job as JSON has it: Snakemake compares it, and the shard's file keeps it.

        The usual timing mode alone is left out, as by versions that had no other.
        """
        values = {**vars(self), "axes": dict(self.axes), "measure": self.measure.of_jobs}
        if list(self.timing_modes) == list(TIMING_MODES[:1]):
            del values["timing_modes"]
        return dict(sorted(values.items()))

    @classmethod
    def of_plain(cls, values: Mapping[str, Any]) -> Self:
        """Return the job from the values of `plain`; raise KeyError or TypeError for others."""
        return cls(**{**values, "measure": Measure.of_plain(values["measure"])})

    @property
    def kernel_folder(self) -> Path:
        """The path of the kernel's folder."""
        return ROOT / self.folder

    @property
    def space(self) -> ShardSpace:
        """Return the shard's part of the sweep, made from this job alone.

        No device is open yet: `sizes` and values of `axes` that depend on the device are still
        rules, not numbers.
        """
        return space_of(self.plain)

    @property
    def speaks_for_sweep(self) -> bool:
        """Whether this is the first job of its sweep and type, which prints what concerns all."""
        return self.shard[0] == 0 and self.repeat == 1

    @property
    def is_last_repeat(self) -> bool:
        """Whether no other repeat follows."""
        return self.repeat >= self.measure.repeats

    def part(self, index: int, repeat: int) -> Self:
        """Return the job of another part of the sweep, from 0, in a repeat, from 1."""
        return replace(self, shard=[index, self.shard[1]], repeat=repeat)


@dataclass(frozen=True, kw_only=True)
class ShardRequest:
    """A job, its files, and all other values that do not affect its cells.

    Parameters
    ----------
    job
        The job.
    code
        Digest of the code that measures. Cells of earlier jobs are reused if it is the same.
    remeasure
        Statuses of cells that are not reused.
    place
        The shard's number, from 1, and the number of all shards, for messages.
    seconds
        Seconds of measuring after which no cell gets more than the fewest samples; None for no
        limit.
    cache
        The folder for compiled code of device runtimes.
    plan
        The run's plan, in the folder of the run.
    out, log
        The files of the shard and of messages.
    first
        The shard of the first repeat; None in the first repeat.
    build
        The kernel's build file; None if the measuring process compiles.
    """

    job: ShardJob
    code: str
    remeasure: Sequence[str]
    place: tuple[int, int]
    seconds: float | None
    cache: Path
    plan: Path
    out: Path
    log: Path
    first: Path | None
    build: Path | None

    @classmethod
    def of_plain(cls, values: Mapping[str, Any]) -> Self:
        """Return the request from the values that `measuring.client` sends.

        These are the plain job, the values of `Flow.measure_request`, and the names of the files.
        """
        number, total = values["place"]
        return cls(
            job=ShardJob.of_plain(values["job"]),
            code=values["code"],
            remeasure=values["remeasure"],
            place=(number, total),
            seconds=values["seconds"],
            cache=Path(values["cache"]),
            plan=Path(values["plan"]),
            out=Path(values["out"]),
            log=Path(values["log"]),
            first=Path(values["first"]) if values["first"] else None,
            build=Path(values["build"]) if values["build"] else None,
        )
