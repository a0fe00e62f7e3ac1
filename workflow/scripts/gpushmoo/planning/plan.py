"""Derive shards, the measuring job of each shard, and figures from a checked configuration."""

from __future__ import annotations

import itertools
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..core.backends import source_suffix
from ..core.build_job import BuildJob
from ..core.errors import ConfigError, DamagedFileError
from ..core.measure_settings import Measure
from ..core.paths import ROOT
from ..core.run_plan import RunPlan, SweepPlan
from ..core.shard_job import ShardJob
from ..core.space import (
    CACHE_STATES,
    TIMING_MODES,
    TYPICAL,
    Problem,
    RelativeSize,
    Size,
    expand_axis,
    plain_size,
    shard_count,
    shard_name,
)
from ..search.planner import SearchMode
from ..storage.wholefile import read_json
from ..workloads.loader import KernelFolder
from ..workloads.views import Swept, View
from .config import RunConfig
from .digest import shared_digest
from .sweeps import SweepConfig

# Measuring jobs of a run. Snakemake takes minutes and gigabytes to plan as many.
MAX_SHARDS = 100_000
# The share of the cells that a search measures, about: a job is to have enough to do.
MEASURED: Mapping[str, float] = {SearchMode.GUIDED: 1 / 16}


@dataclass(frozen=True)
class Shard:
    """Identity of a shard, which is one part of a sweep's cells of one element type.

    Attributes
    ----------
    sweep, dtype
        Name of the sweep, and name of the element type.
    index, count
        The shard is part `index` (from 0) of `count` parts.
    repeat
        Number of the repeat, from 1.
    """

    sweep: str
    dtype: str
    index: int
    count: int
    repeat: int = 1

    @property
    def name(self) -> str:
        """Name of the shard's file without its suffix, see `space.shard_name`."""
        return shard_name(self.index, self.count, self.repeat)

    @property
    def path(self) -> str:
        """Relative path of the shard's file within ``cells/``."""
        return f"{self.sweep}/{self.dtype}/{self.name}.parquet"


def plan_shards(config: RunConfig) -> list[Shard]:
    """Return all shards of a run, first those of the first repeat. No device is needed.

    Raises
    ------
    ConfigError
        If there are more shards than Snakemake can plan.
    """
    counts = {name: _shards(sweep, config) for name, sweep in config.sweeps.items()}
    dtypes = {name: sweep.dtypes for name, sweep in config.sweeps.items()}
    repeats = config.settings.measure.repeats
    per_shard = config.settings.measure.cells_per_shard
    total = repeats * sum(n * len(dtypes[name]) for name, n in counts.items())
    if total > MAX_SHARDS:
        raise ConfigError(
            f"measure.cells_per_shard: {per_shard} makes {total} measuring jobs; a run may have "
            f"{MAX_SHARDS}: raise it, or sweep fewer sizes."
        )
    first = [Shard(n, d, i, counts[n]) for n in counts for d in dtypes[n] for i in range(counts[n])]
    return [replace(s, repeat=n) for n in range(1, repeats + 1) for s in first]


def _shards(sweep: SweepConfig, config: RunConfig) -> int:
    """Return the number of shards for each element type of a sweep.

    Sizes that depend on the device count separately. If two of them are equal on the device, a
    shard may be empty.
    """
    axes = (expand_axis(spec, TYPICAL) for spec in sweep.axes.values())
    cells: float = math.prod(map(len, (*axes, sweep.sizes, sweep.variants, sweep.met)))
    if sweep.is_looked_through and cells > config.settings.measure.cells_per_shard:
        cells = sweep.n_cells / len(sweep.dtypes)
    cells = math.ceil(cells * MEASURED.get(config.settings.measure.search.mode, 1.0))
    rounds = len(sweep.sizes) * len(sweep.met)
    return shard_count(cells, config.settings.measure.cells_per_shard, rounds)


def budget_of(config: RunConfig, shard: Shard) -> float | None:
    """Return the time that a measuring job may take, in seconds, or None if the run has no budget.

    Each sweep gets a share of the budget in proportion to its cells. The first repeat, the only one
    that measures all cells, gets as much as all later repeats together.
    """
    budget = config.settings.measure.budget
    repeats = config.settings.measure.repeats
    if budget is None:
        return None
    sweep = config.sweeps[shard.sweep]
    cells = sweep.n_cells / len(sweep.dtypes) / shard.count
    share = cells / sum(other.n_cells for other in config.sweeps.values())
    of_repeat = 1.0 if repeats == 1 else 0.5 / (1 if shard.repeat == 1 else repeats - 1)
    return float(budget * share * of_repeat)


def named_shard(wildcards: Any) -> Shard:
    """Return the shard that the wildcards of a measuring job name.

    The rule `measure` has no wildcard for the repeat, because it always measures the first one.
    """
    index, count = (int(n) for n in wildcards.shard.split("-of-"))
    repeat = int(getattr(wildcards, "repeat", 1))
    return Shard(wildcards.sweep, wildcards.dtype, index, count, repeat)


def run_plan(config: RunConfig, backend: str, opencl_runtime: str) -> RunPlan:
    """Return the measuring jobs of all shards of the run.

    Parameters
    ----------
    config
        The checked configuration.
    backend, opencl_runtime
        Names of the backend and of the OpenCL runtime. ``auto`` if not resolved.
    """
    how = HowMeasured(
        backend=backend,
        device=config.settings.device,
        opencl_runtime=opencl_runtime,
        seed=config.settings.seed,
        thread_limit=config.settings.thread_limit,
        measure=config.settings.measure,
    )
    sweeps: dict[str, dict[str, SweepPlan]] = {}
    for shard in plan_shards(config):
        if (shard.index, shard.repeat) == (0, 1):
            sweep = config.sweeps[shard.sweep]
            job = shard_job(sweep, shard.dtype, how, shard.count)
            rows = sweep.rows(shard.dtype, shard.count)
            sweeps.setdefault(shard.sweep, {})[shard.dtype] = SweepPlan(job, rows)
    return RunPlan(sweeps)


@dataclass(frozen=True, kw_only=True)
class HowMeasured:
    """Values that all measuring jobs of a run share. `ShardJob` describes them."""

    backend: str
    device: int | str
    opencl_runtime: str
    seed: int
    thread_limit: int | None
    measure: Measure


def shard_job(sweep: SweepConfig, dtype: str, how: HowMeasured, parts: int = 1) -> ShardJob:
    """Return the job that measures the first shard of a sweep and type, in the first repeat.

    Parameters
    ----------
    sweep
        The sweep.
    dtype
        Name of the element type.
    how
        Values that all jobs of the run share.
    parts
        Number of shards.
    """
    return ShardJob(
        folder=_folder_of(sweep),
        kernel_digest=sweep.folder.digest(source_suffix(how.backend)),
        dtype=dtype,
        variants=list(sweep.variants),
        sizes=[plain_size(size) for size in sweep.sizes],
        cache_states=list(sweep.cache_states),
        timing_modes=list(sweep.timing_modes),
        axes=dict(sorted(sweep.axes.items())),
        shard=[0, parts],
        repeat=1,
        backend=how.backend,
        device=how.device,
        opencl_runtime=how.opencl_runtime,
        seed=how.seed,
        thread_limit=how.thread_limit,
        measure=how.measure,
    )


@dataclass(frozen=True, kw_only=True)
class CompilerChoice:
    """Values that all building jobs of a run share. `BuildJob` describes them."""

    backend: str
    device: int | str
    opencl_runtime: str
    compile_timeout_s: float
    cuda_arch: str | None = None


def build_job(sweep: SweepConfig, dtype: str, compiler: CompilerChoice) -> BuildJob:
    """Return the job that compiles all versions of a sweep's kernel for one element type."""
    return BuildJob(
        folder=_folder_of(sweep),
        kernel_digest=sweep.folder.digest(source_suffix(compiler.backend)),
        dtype=dtype,
        versions=tuple(sweep.versions[dtype]),
        backend=compiler.backend,
        device=compiler.device,
        opencl_runtime=compiler.opencl_runtime,
        cuda_arch=compiler.cuda_arch,
        compile_timeout_s=compiler.compile_timeout_s,
    )


def _folder_of(sweep: SweepConfig) -> str:
    return os.path.relpath(sweep.folder.path, ROOT)


@dataclass(frozen=True)
class FigureSpec:
    """One figure that a view draws from the measured cells of a kernel.

    Attributes
    ----------
    folder
        Folder of the kernel.
    view
        Draws the figure.
    dtypes
        Element types that the sweep measured.
    dtype, size, cache_state, timing_mode
        The figure shows only cells with these values. None selects all values that were swept.
    """

    folder: KernelFolder
    view: View
    dtypes: tuple[str, ...]
    dtype: str | None = None
    size: Size | None = None
    cache_state: str | None = None
    timing_mode: str = TIMING_MODES[0]

    @property
    def name(self) -> str:
        """Name of the figure's files without the suffix, unique in a run."""
        size = None if self.size is None else size_label(self.size)
        kind = None if self.timing_mode == TIMING_MODES[0] else self.timing_mode
        parts = (self.folder.name, self.dtype, self.view.label(), size, self.cache_state, kind)
        return "-".join([self.view.kind, *filter(None, parts)])

    @property
    def where(self) -> dict[str, Any]:
        """Values of the columns that select the cells to show, for `dataset.matching`."""
        where: dict[str, Any] = {"kernel": self.folder.name, "timing_mode": self.timing_mode}
        if isinstance(self.size, Problem):
            where |= {"height": self.size.height, "width": self.size.width}
        named = {"dtype": self.dtype, "cache_state": self.cache_state}
        return where | {column: value for column, value in named.items() if value is not None}

    @property
    def nearest(self) -> Any:
        """Size that depends on the device's cache, as plain values, or None.

        The figure shows the measured size that is nearest to it.
        """
        return plain_size(self.size) if isinstance(self.size, RelativeSize) else None

    @property
    def code(self) -> list[str]:
        """Values that change if the code changes that draws the figure.

        They are digests of the kernel's folder if it defines the view. A view of the library is
        only named, because the rule's digest covers the library.
        """
        if type(self.view).__module__.startswith("gpushmoo."):
            return [repr(self.view)]
        return [self.folder.digest(None), shared_digest(self.folder.path)]


def figures_of(sweep: SweepConfig, backend: str) -> list[FigureSpec]:
    """Return the figures of a sweep, as its kernel's views define them.

    A view may have one figure for each element type. For the size, the cache state and the timing
    mode, each figure shows only one: the largest size, and the first state and mode.

    Parameters
    ----------
    sweep
        The sweep.
    backend
        Name of the backend. A view may exist only for some backends.
    """
    workload = sweep.folder.workload
    largest = max(sweep.sizes, key=_rank)
    first_kind = next(k for k in TIMING_MODES if k in sweep.timing_modes)
    first_state = next(s for s in CACHE_STATES if s in sweep.cache_states)
    swept = Swept(backend, sweep.dtypes, sweep.variants, sweep.sizes, sweep.cache_states)
    return [
        FigureSpec(sweep.folder, view, sweep.dtypes, dtype, size, state, first_kind)
        for view in workload.views
        if view.shown(swept)
        for size, state, dtype in itertools.product(
            (largest,) if "size" in view.each else (None,),
            (first_state,) if "cache_state" in view.each else (None,),
            sweep.dtypes if "dtype" in view.each else (None,),
        )
    ]


def size_label(size: Size) -> str:
    """Return a size as in names of files: ``512x512``, or ``4-of-cache`` for a relative size."""
    return size.label if isinstance(size, Problem) else f"{size.of_cache:g}-of-cache"


def _rank(size: Size) -> tuple[bool, float, int]:
    """Return a sort key that puts sizes larger than the cache behind sizes in elements."""
    if isinstance(size, RelativeSize):
        return size.of_cache >= 1.0, size.of_cache, 0
    return False, size.height * size.width, size.height


# What reStructuredText takes for markup within a line.
_MARKUP = re.compile(r"[\\*`|_]")
_BRACES = str.maketrans("{}", "()")


def figure_note(wildcards: Any, output: Any) -> dict[str, str]:
    """Return a figure's caption, escaped for reStructuredText, empty until the figure is drawn.

    It is a parameter of the rule, and Snakemake evaluates it again for its report. Because the
    function takes `output`, Snakemake does not compare the value with that of the last run. So a
    new caption does not make Snakemake draw the figure again.

    Parameters
    ----------
    wildcards
        Not used.
    output
        The rule's outputs, of which `note` is a JSON file.
    """
    return {"caption": _MARKUP.sub(r"\\\g<0>", _note(output).get("caption", ""))}


def figure_labels(wildcards: Any, output: Any) -> dict[str, str]:
    """Return the title of a figure for the list of figures in Snakemake's report.

    Parameters
    ----------
    wildcards
        Not used.
    output
        The rule's outputs, of which `note` is a JSON file.
    """
    # Snakemake would take what is in braces for wildcards.
    return {"figure": _note(output).get("title", "").translate(_BRACES)}


def _note(output: Any) -> dict[str, Any]:
    path = Path(str(output.note))
    try:
        return read_json(path)
    except DamagedFileError:
        return {}
