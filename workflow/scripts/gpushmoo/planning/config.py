"""Reads and checks a run's configuration: every fault is one sentence naming the key."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from ..core.backends import AUTO, BACKENDS
from ..core.readable import UnreadableError, refuse_braces
from ..core.schema import FAULTS, Status, axis_fault
from ..core.space import TYPICAL, Problem, asks_the_device, expand_axis, most_values
from ..measuring.sampling.stopping import StoppingRule
from ..measuring.settings import MeasureSettings
from ..simulation.request import Simulation, SimulationError, read_simulation
from ..workloads.contract import misfit
from ..workloads.host_fed import HostFedWorkload
from ..workloads.loader import KernelFolder, KernelFolderError, find_kernels, load_kernel
from .chapters import PlannedChapter, plan_chapters
from .config_bulk import bulk_fault
from .config_schema import ConfigError, check_schema, refuse_unknown
from .config_sentences import did_you_mean

# Numbers of blocks of one simulated device.
MOST_SIMULATED = 65_536


@dataclass(frozen=True)
class SweepConfig:
    """One sweep of a kernel, defaults filled in; `axes` are axis specifications."""

    folder: KernelFolder
    dtypes: tuple[str, ...]
    variants: tuple[str, ...]
    problems: tuple[Problem, ...]
    cache_states: tuple[str, ...]
    axes: dict[str, Any]

    @cached_property
    def known_values(self) -> dict[str, frozenset[int]]:
        """The values of those axes of which no device must be asked."""
        specs = {name: spec for name, spec in self.axes.items() if not asks_the_device(spec)}
        return {name: frozenset(expand_axis(spec, TYPICAL)) for name, spec in specs.items()}


@dataclass(frozen=True)
class RunConfig:
    """The checked configuration of a run, with defaults filled in.

    `device` is an index or ``all``, `device_memory` is in bytes, `dataset` the folder of a recorded
    data set to analyse instead of measuring, `holdout` the share of points that no fit sees. Cells
    that ended with a status in `again` are measured again.
    """

    run: str
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
    holdout: float
    dataset: Path | None
    strict: bool
    again: frozenset[Status]


def load_config(raw: Mapping[str, Any], root: Path) -> RunConfig:
    """Check `raw` (the merged YAML) against schema and cross-field rules.

    `root` is the folder that relative paths refer to. Raises ConfigError.
    """
    fault = bulk_fault(raw)
    if fault is not None:
        raise ConfigError(fault)
    schema = yaml.safe_load(
        (root / "workflow/schemas/config.schema.yaml").read_text(encoding="utf-8")
    )
    schema["properties"]["backend"]["enum"] = [AUTO, *BACKENDS]
    check_schema(raw, schema)
    try:
        paths = find_kernels(root / f for f in raw["kernel_folders"])
        configured = {
            name: _sweep(name, spec, paths)
            for name, spec in sorted(raw["kernels"].items())
            if spec is not None
        }
    except KernelFolderError as err:
        raise ConfigError(str(err)) from err
    if not configured:
        raise ConfigError("kernels: every kernel is null; at least one must be swept.")
    sweeps = _chosen(raw["only"], configured)
    fault = axis_fault(axis for sweep in sweeps.values() for axis in sweep.axes)
    if fault is not None:
        raise ConfigError(f"kernels: {fault}.")
    m = raw["measure"]
    _refuse_many_cells(sweeps, m["max_cells"])
    _refuse_shared_cells(sweeps)
    if m["max_samples"] < m["min_samples"]:
        raise ConfigError(
            f"measure.max_samples is {m['max_samples']} but must be at least measure.min_samples, "
            f"which is {m['min_samples']}."
        )
    memory = raw["device_memory_gib"]
    dataset = _dataset(raw["dataset"], root)
    simulations, chapters = plan_chapters(
        raw,
        schema,
        root,
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
        seed=raw["seed"],
        backend=raw["backend"],
        device=raw["device"],
        opencl_runtime=raw["opencl_runtime"],
        cuda_arch=raw["cuda_arch"],
        device_memory=None if memory is None else int(memory * 2**30),
        sweeps=sweeps,
        measure=MeasureSettings(
            seed=raw["seed"],
            thread_limit=raw["thread_limit"],
            warmup=m["warmup"],
            cell_timeout_s=m["cell_timeout_s"],
            rule=StoppingRule(
                m["min_samples"], m["max_samples"], m["relative_half_width"], m["cell_budget_s"]
            ),
        ),
        repeats=m["repeats"],
        cells_per_shard=m["cells_per_shard"],
        simulations=simulations,
        chapters=chapters,
        holdout=raw["fit"]["holdout"],
        dataset=dataset,
        strict=raw["strict"],
        again=_again(raw),
    )


def _again(raw: Mapping[str, Any]) -> frozenset[Status]:
    """Cells that ended so are measured again."""
    again = raw["again"]
    if again is not None and raw["dataset"] is not None:
        raise ConfigError("again: nothing of a recorded dataset is measured; set one of both null.")
    return FAULTS if again == "faults" else frozenset(map(Status, again or ()))


def _chosen(only: Sequence[str] | None, sweeps: dict[str, SweepConfig]) -> dict[str, SweepConfig]:
    """The sweeps that `only` names; without it, all."""
    if only is None:
        return sweeps
    for name in only:
        if name not in sweeps:
            raise ConfigError(
                f"only: there is no sweep '{name}' under kernels; there are: {', '.join(sweeps)}."
                f"{did_you_mean(name, sweeps)}"
            )
    return {name: sweep for name, sweep in sweeps.items() if name in only}


def _sweep(name: str, spec: Any, paths: Mapping[str, Path]) -> SweepConfig:
    if not re.fullmatch("[A-Za-z0-9_]+", name):
        raise ConfigError(
            f"kernels.{name}: a sweep's name must consist of letters, digits and '_'."
        )
    kernel = spec.get("kernel", name)
    if kernel not in paths:
        which = f"kernels.{name}" + (".kernel" if "kernel" in spec else "")
        raise ConfigError(
            f"{which}: there is no such kernel as '{kernel}'; found: {', '.join(sorted(paths))}."
            f"{did_you_mean(kernel, paths)}"
        )
    folder = load_kernel(paths[kernel])
    w = folder.workload
    axes = {**w.axes, **spec.get("axes", {})}
    refuse_unknown(f"kernels.{name}.axes", axes, w.axes)
    dtypes = spec.get("dtypes", list(w.dtypes))
    refuse_unknown(f"kernels.{name}.dtypes", dtypes, w.dtypes)
    variants = spec.get("variants", list(w.default_variants or w.variants))
    refuse_unknown(f"kernels.{name}.variants", variants, w.variants)
    for axis, value in axes.items():
        least = 0 if axis in w.zero_axes else 1
        _check_axis(f"kernels.{name}.axes.{axis}", value, least, w.most.get(axis))
    sizes = spec.get("sizes", list(w.sizes))
    least = 0 if isinstance(w, HostFedWorkload) else 1
    for size in sizes:
        if min(size if isinstance(size, list | tuple) else [size]) < least:
            raise ConfigError(
                f"Config key 'kernels.{name}.sizes' holds {size}; a size must be at least {least}."
            )
    problems = tuple(w.problem(s) if isinstance(s, int) else Problem(*s) for s in sizes)
    seen: set[Problem] = set()
    for problem in problems:
        if problem in seen:
            raise ConfigError(
                f"kernels.{name}.sizes: {problem.height} x {problem.width} stands twice; "
                "a size must stand once."
            )
        seen.add(problem)
    states = tuple(spec.get("cache", w.cache_states))
    return SweepConfig(folder, tuple(dtypes), tuple(variants), problems, states, axes)


def _refuse_many_cells(sweeps: Mapping[str, SweepConfig], most: int) -> None:
    """Count the cells of all sweeps, before any axis is expanded, and refuse too many."""
    cells = {name: _most_cells(sweep) for name, sweep in sweeps.items()}
    total = sum(cells.values())
    if total > most:
        name = max(cells, key=lambda name: cells[name])
        alone = f"{_number(total)} cells"
        among = f"{_number(cells[name])} of the run's {alone}"
        raise ConfigError(
            f"kernels.{name}: {alone if cells[name] == total else among}; a run may have {most}: "
            "sweep fewer values or sizes, or raise measure.max_cells."
        )


def _most_cells(sweep: SweepConfig) -> int:
    """Cells of all dtypes, at most: values that two parts of an axis share count twice."""
    values = (most_values(spec, TYPICAL) for spec in sweep.axes.values())
    others = (sweep.dtypes, sweep.variants, sweep.problems, sweep.cache_states)
    return math.prod(values) * math.prod(map(len, others))


def _number(n: int) -> str:
    """A product of many axes has too many digits to read, or for Python to write."""
    return str(n) if n < 10**15 else f"about 10^{math.log10(n):.0f}"


def _refuse_shared_cells(sweeps: Mapping[str, SweepConfig]) -> None:
    """No cell may be measured twice."""
    named = sorted(sweeps.items())
    for i, (name, sweep) in enumerate(named):
        for other, earlier in named[:i]:
            if sweep.folder.name != earlier.folder.name or _apart(sweep, earlier):
                continue
            others = set(earlier.problems)
            problem = next(p for p in sweep.problems if p in others)
            raise ConfigError(
                f"kernels.{name}.sizes: kernels.{other} sweeps {sweep.folder.name} at "
                f"{problem.height} x {problem.width}, too; no cell may be measured twice: two "
                "sweeps of one kernel must have no size in common, or else no type, no variant, no "
                "cache state or no value of one axis."
            )


def _apart(one: SweepConfig, other: SweepConfig) -> bool:
    """Whether two sweeps of a kernel have no cell in common, whatever the device."""
    parts: list[tuple[Collection[Any], Collection[Any]]] = [
        (one.problems, other.problems),
        (one.dtypes, other.dtypes),
        (one.variants, other.variants),
        (one.cache_states, other.cache_states),
    ]
    values, other_values = one.known_values, other.known_values
    parts += [(values[axis], other_values[axis]) for axis in values if axis in other_values]
    return any(frozenset(ours).isdisjoint(theirs) for ours, theirs in parts)


def _check_axis(key: str, spec: Any, least: int = 1, most: int | None = None) -> None:
    parts = spec if isinstance(spec, list) else [spec]
    for part in parts:
        first = part.get("from", least) if isinstance(part, Mapping) else part
        if first < least:
            raise ConfigError(f"Config key '{key}' is {first}; it must be at least {least}.")
        last = part.get("to", first) if isinstance(part, Mapping) else part
        if most is not None and last > most:
            raise ConfigError(f"Config key '{key}' is {last}; it must be at most {most}.")
        if isinstance(part, Mapping) and "from" in part and part["from"] > part["to"]:
            raise ConfigError(
                f"{key}: the range from {part['from']} to {part['to']} is empty; "
                "'to' must be at least 'from'."
            )


def _simulation(name: str, spec: Mapping[str, Any], root: Path) -> Simulation:
    if spec.get("num_partition") is not None:
        key, values = f"simulate.{name}.num_partition", spec["num_partition"]
        _check_axis(key, values)
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
        usable = path.is_dir() and any(path.rglob("*.parquet"))
    except OSError as err:
        raise ConfigError(f"dataset: '{value}' cannot be read ({err.strerror}).") from err
    if not usable:
        raise ConfigError(f"dataset: '{value}' is not a folder that holds Parquet files.")
    try:
        for file in path.rglob("*.parquet"):
            refuse_braces(os.path.relpath(file))
    except UnreadableError as err:
        raise ConfigError(f"dataset: {err}") from err
    return path


def check_memory(config: RunConfig, memory: int, allocation: int) -> None:
    """Refuse problems that do not fit `memory` bytes, `allocation` in one buffer: ConfigError."""
    for name, sweep in config.sweeps.items():
        for problem in sweep.problems:
            for dtype in sweep.dtypes:
                reason = misfit(sweep.folder.workload, problem, dtype, memory, allocation)
                if reason is not None:
                    raise ConfigError(f"kernels.{name}.sizes: {reason}; choose a smaller size.")
    workloads = {s.folder.name: s.folder.workload for s in config.sweeps.values()}
    single = (item for c in config.chapters.values() for item in c.plan.cells.items())
    for key, cell in single:
        workload = workloads[cell.kernel]
        reason = misfit(workload, cell.problem, cell.dtype, memory, allocation)
        if reason is not None:
            raise ConfigError(f"{key}.size: {reason}; choose a smaller size.")
