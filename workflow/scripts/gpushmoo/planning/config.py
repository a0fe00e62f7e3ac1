"""Reads and checks a run's configuration: every fault is one sentence naming the key."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from ..core.backends import AUTO, BACKENDS
from ..core.paths import RESULTS
from ..core.readable import UnreadableError, refuse_braces
from ..core.schema import FAULTS, Status, axis_fault
from ..core.space import TYPICAL, most_values
from ..measuring.settings import MeasureSettings
from ..simulation.request import Simulation, SimulationError, read_simulation
from ..storage.packed import unpacked
from ..storage.store import BadParquetError
from ..workloads.loader import KernelFolderError, find_kernels
from ..workloads.versions import misfit
from .bounds import Bounds, refuse_impossible, refuse_large
from .chapters import PlannedChapter, plan_chapters
from .compared import ComparedRuns, read_compared
from .config_bulk import bulk_fault
from .config_schema import ConfigError, check_schema
from .config_sentences import did_you_mean
from .earlier_runs import EarlierRuns, read_earlier
from .sweeps import (
    SweepConfig,
    check_axis,
    named_sweep,
    read_measure,
    refuse_kinds,
    refuse_shared_cells,
    refuse_too_large,
)

# Numbers of blocks of one simulated device.
MOST_SIMULATED = 65_536
# Studies that are sweeps, which config/<study>.yaml holds.
SWEPT_STUDIES = frozenset({"machine"})


@dataclass(frozen=True)
class RunConfig:
    """The checked configuration of a run, with defaults filled in.

    `results` is the run's folder, `device` an index or ``all``, `device_memory` is in bytes,
    `dataset` the folder of a recorded data set to analyse instead of measuring, `holdout` the share
    of points that no fit sees. Cells that ended with a status in `again` are measured again.
    """

    run: str
    results: Path
    seed: int
    backend: str
    device: int | str
    opencl_runtime: str
    cuda_arch: str | None
    device_memory: int | None
    sweeps: dict[str, SweepConfig]
    measure: MeasureSettings
    repeats: int
    cells_per_shard: int
    simulations: dict[str, Simulation]
    chapters: dict[str, PlannedChapter]
    studies: tuple[str, ...]
    holdout: float
    dataset: Path | None
    strict: bool
    simulate_anew: bool
    again: frozenset[Status]
    compared: ComparedRuns | None
    earlier: EarlierRuns | None


@cache
def _schema(text: str) -> Mapping[str, Any]:
    """The schema that is written so, with the backends that there are."""
    schema: dict[str, Any] = yaml.CSafeLoader(text).get_single_data()
    schema["properties"]["backend"]["enum"] = [AUTO, *BACKENDS]
    return schema


def load_config(raw: Mapping[str, Any], root: Path, results: Path = RESULTS) -> RunConfig:
    """Check `raw` (the merged YAML) against schema and cross-field rules.

    `root` is the project's folder, which relative paths refer to; the run's own lies in `results`.
    Raises ConfigError.
    """
    fault = bulk_fault(raw)
    if fault is not None:
        raise ConfigError(fault)
    schema = _schema((root / "workflow/schemas/config.schema.yaml").read_text(encoding="utf-8"))
    check_schema(raw, schema)
    raw = _with_studies(raw, root)
    try:
        paths = find_kernels(root / f for f in ["kernels", *raw["kernel_folders"]])
        configured = {
            name: named_sweep(name, spec, paths)
            for name, spec in sorted(raw["kernels"].items())
            if spec is not None
        }
    except KernelFolderError as err:
        raise ConfigError(str(err)) from err
    if not configured:
        raise ConfigError("kernels: every kernel is null; at least one must be swept.")
    sweeps = _chosen(raw["only"], configured, raw["kernels"])
    fault = axis_fault(axis for sweep in sweeps.values() for axis in sweep.axes)
    if fault is not None:
        named = {s.folder.name for s in sweeps.values() if any(f"'{a}'" in fault for a in s.axes)}
        raise ConfigError(f"kernels: {fault}, or leave one out ({', '.join(sorted(named))}).")
    m = raw["measure"]
    refuse_large(sweeps, raw["backend"], Bounds(m["max_cells"], m["max_builds"]))
    refuse_shared_cells(sweeps)
    if raw["backend"] != AUTO:
        refuse_kinds(sweeps, raw["backend"])
    refuse_impossible(sweeps)
    measure = read_measure("measure.", m, raw["seed"], raw["thread_limit"])
    memory = raw["device_memory_gib"]
    dataset = _dataset(raw["dataset"], root)
    simulations, chapters = plan_chapters(
        raw,
        schema,
        root,
        results / raw["run"],
        dataset,
        {s.folder.name: s.folder for s in sweeps.values()},
        {
            name: _simulation(name, spec, root)
            for name, spec in sorted((raw["simulate"] or {}).items())
            if spec is not None
        },
    )
    return RunConfig(
        run=raw["run"],
        results=results / raw["run"],
        seed=raw["seed"],
        backend=raw["backend"],
        device=raw["device"],
        opencl_runtime=raw["opencl_runtime"],
        cuda_arch=raw["cuda_arch"],
        device_memory=None if memory is None else int(memory * 2**30),
        sweeps=sweeps,
        measure=measure,
        repeats=m["repeats"],
        cells_per_shard=m["cells_per_shard"],
        simulations=simulations,
        chapters=chapters,
        studies=_studies(raw),
        holdout=raw["fit"]["holdout"],
        dataset=dataset,
        strict=raw["strict"],
        simulate_anew=raw["simulate_anew"],
        again=_again(raw),
        compared=read_compared(raw),
        earlier=read_earlier(raw, results / raw["run"]),
    )


def _studies(raw: Mapping[str, Any]) -> tuple[str, ...]:
    """What is measured beside the sweeps."""
    if raw["studies"] and raw["dataset"] is not None:
        raise ConfigError(
            "studies: nothing of a recorded dataset is measured; leave one of both out."
        )
    return tuple(raw["studies"])


def _with_studies(raw: Mapping[str, Any], root: Path) -> Mapping[str, Any]:
    """`raw` with the sweeps of its studies' files as ``<study>_<sweep>``, unless it has its own."""
    kernels, only = raw["kernels"], raw["only"]
    for study in SWEPT_STUDIES.intersection(raw["studies"]):
        text = (root / f"config/{study}.yaml").read_text(encoding="utf-8")
        file = yaml.CSafeLoader(text).get_single_data()
        added = {f"{study}_{n}": {"kernel": n, **file["kernels"][n]} for n in file["only"]}
        kernels = added | kernels
        only = only and [*only, *(n for n in added if kernels[n] is not None)]
    return {**raw, "kernels": kernels, "only": only}


def _again(raw: Mapping[str, Any]) -> frozenset[Status]:
    """Cells that ended so are measured again."""
    again = raw["again"]
    if again is not None and raw["dataset"] is not None:
        raise ConfigError("again: nothing of a recorded dataset is measured; set one of both null.")
    named = {"faults": FAULTS, "all": frozenset(Status)}
    return named[again] if isinstance(again, str) else frozenset(map(Status, again or ()))


def _chosen(
    only: Sequence[str] | None, sweeps: dict[str, SweepConfig], kernels: Mapping[str, Any]
) -> dict[str, SweepConfig]:
    """The sweeps that `only` names; without it, all."""
    if only is None:
        return sweeps
    for name in only:
        if name in kernels and name not in sweeps:
            raise ConfigError(
                f"only: kernels.{name} is null, which leaves the sweep out; write '{name}: {{}}'."
            )
        if name not in sweeps:
            raise ConfigError(
                f"only: there is no sweep '{name}' under kernels; there are: {', '.join(sweeps)}."
                f"{did_you_mean(name, sweeps)}"
            )
    return {name: sweep for name, sweep in sweeps.items() if name in only}


def _simulation(name: str, spec: Mapping[str, Any], root: Path) -> Simulation:
    if spec.get("num_partition") is not None:
        key, values = f"simulate.{name}.num_partition", spec["num_partition"]
        check_axis(key, values)
        n = most_values(values, TYPICAL)
        if n > MOST_SIMULATED:
            raise ConfigError(f"{key}: {n} values; at most {MOST_SIMULATED} are simulated.")
    try:
        return read_simulation(name, spec, root)
    except SimulationError as err:
        raise ConfigError(f"{err}.") from err


def _dataset(value: str | None, root: Path) -> Path | None:
    if value is None:
        return None
    path = root / value
    try:
        shards = unpacked(path)
        usable = shards.is_dir() and any(shards.rglob("*.parquet"))
    except BadParquetError as err:
        raise ConfigError(f"dataset: {err}") from err
    except OSError as err:
        raise ConfigError(f"dataset: '{value}' cannot be read ({err.strerror}).") from err
    if not usable:
        raise ConfigError(f"dataset: '{value}' is not a folder that holds Parquet files.")
    try:
        for file in shards.rglob("*.parquet"):
            refuse_braces(os.path.relpath(file))
    except UnreadableError as err:
        raise ConfigError(f"dataset: {err}") from err
    return path


def check_memory(config: RunConfig, memory: int, allocation: int) -> None:
    """Refuse problems that do not fit `memory` bytes, `allocation` in one buffer: ConfigError."""
    refuse_too_large(config.sweeps, memory, allocation)
    workloads = {s.folder.name: s.folder.workload for s in config.sweeps.values()}
    single = (item for c in config.chapters.values() for item in c.plan.cells.items())
    for key, cell in single:
        workload = workloads[cell.kernel]
        reason = misfit(workload, cell.problem, cell.dtype, memory, allocation)
        if reason is not None:
            raise ConfigError(f"{key}.size: {reason}; choose a smaller size.")
