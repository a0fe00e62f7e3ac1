"""From a checked configuration to shards, the job of each shard, and to figures."""

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
    """The name of a shard: a repeat, from 1, of part `index` of `count` of a sweep and dtype."""

    sweep: str
    dtype: str
    index: int
    count: int
    repeat: int = 1

    @property
    def name(self) -> str:
        """Name of the shard's file without its suffix; see `space.shard_name`."""
        return shard_name(self.index, self.count, self.repeat)

    @property
    def path(self) -> str:
        """Relative path of the shard's file within ``cells/``."""
        return f"{self.sweep}/{self.dtype}/{self.name}.parquet"


def plan_shards(config: RunConfig) -> list[Shard]:
    """All shards of a run, a repeat after the other, without a device. Raises ConfigError."""
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
    """Number of shards of each dtype.

    A size that follows the device counts, even if it is equal to another one there: then a shard
    may be empty.
    """
    axes = (expand_axis(spec, TYPICAL) for spec in sweep.axes.values())
    cells: float = math.prod(map(len, (*axes, sweep.sizes, sweep.variants, sweep.met)))
    if sweep.is_looked_through and cells > config.settings.measure.cells_per_shard:
        cells = sweep.n_cells / len(sweep.dtypes)
    cells = math.ceil(cells * MEASURED.get(config.settings.measure.search.mode, 1.0))
    rounds = len(sweep.sizes) * len(sweep.met)
    return shard_count(cells, config.settings.measure.cells_per_shard, rounds)


def budget_of(config: RunConfig, shard: Shard) -> float | None:
    """Seconds of the budget for a measuring job, by its share of the cells; None for no limit.

    The first repeat, which alone has all cells, gets as much as all later ones.
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
    """The shard that the wildcards of a measuring rule name; of rule `measure` the first repeat."""
    index, count = (int(n) for n in wildcards.shard.split("-of-"))
    repeat = int(getattr(wildcards, "repeat", 1))
    return Shard(wildcards.sweep, wildcards.dtype, index, count, repeat)


def run_plan(config: RunConfig, backend: str, opencl_runtime: str) -> RunPlan:
    """The job of every shard of the run; see `RunPlan`."""
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
    """What all jobs of a run have in common: the device, the seed, the samples. See `ShardJob`."""

    backend: str
    device: int | str
    opencl_runtime: str
    seed: int
    thread_limit: int | None
    measure: Measure


def shard_job(sweep: SweepConfig, dtype: str, how: HowMeasured, parts: int = 1) -> ShardJob:
    """The job of the first of `parts` parts of a sweep and dtype, in the first repeat."""
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
    """What all building jobs of a run have in common; see `BuildJob`."""

    backend: str
    device: int | str
    opencl_runtime: str
    compile_timeout_s: float
    cuda_arch: str | None = None


def build_job(sweep: SweepConfig, dtype: str, compiler: CompilerChoice) -> BuildJob:
    """The job that compiles a sweep's versions of one element type."""
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
    """One figure of a view of the kernel in `folder`.

    An attribute of None selects all that was swept.
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
        """Name of its files, without the suffix."""
        size = None if self.size is None else size_label(self.size)
        kind = None if self.timing_mode == TIMING_MODES[0] else self.timing_mode
        parts = (self.folder.name, self.dtype, self.view.label(), size, self.cache_state, kind)
        return "-".join([self.view.kind, *filter(None, parts)])

    @property
    def where(self) -> dict[str, Any]:
        """The cells to show, as values of columns, for dataset.matching."""
        where: dict[str, Any] = {"kernel": self.folder.name, "timing_mode": self.timing_mode}
        if isinstance(self.size, Problem):
            where |= {"height": self.size.height, "width": self.size.width}
        named = {"dtype": self.dtype, "cache_state": self.cache_state}
        return where | {column: value for column, value in named.items() if value is not None}

    @property
    def nearest(self) -> Any:
        """A size to look for among the measured ones, unless `where` names it."""
        return plain_size(self.size) if isinstance(self.size, RelativeSize) else None

    @property
    def code(self) -> list[str]:
        """What the figure changes with besides the library: its view, or the kernel that has it."""
        if type(self.view).__module__.startswith("gpushmoo."):
            return [repr(self.view)]
        return [self.folder.digest(None), shared_digest(self.folder.path)]


def figures_of(sweep: SweepConfig, backend: str) -> list[FigureSpec]:
    """Return the figures of a sweep: of its largest size, first cache state and first mode."""
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
    """A size in names of files: ``512x512``, or ``4-of-cache``."""
    return size.label if isinstance(size, Problem) else f"{size.of_cache:g}-of-cache"


def _rank(size: Size) -> tuple[bool, float, int]:
    """Orders sizes: those outside of the cache behind all that are given in elements."""
    if isinstance(size, RelativeSize):
        return size.of_cache >= 1.0, size.of_cache, 0
    return False, size.height * size.width, size.height


# What reStructuredText takes for markup within a line.
_MARKUP = re.compile(r"[\\*`|_]")
_BRACES = str.maketrans("{}", "()")


def figure_note(wildcards: Any, output: Any) -> dict[str, str]:
    """A figure's caption, for the template of captions; empty as long as there is no figure.

    A parameter of the rule, which Snakemake asks for again when it makes its report. It does not
    compare one whose function takes `output`, so a figure is not drawn again for its own note.
    """
    return {"caption": _MARKUP.sub(r"\\\g<0>", _note(output).get("caption", ""))}


def figure_labels(wildcards: Any, output: Any) -> dict[str, str]:
    """What is beside a figure in the report's list of them: its title."""
    # Snakemake would take what is in braces for wildcards.
    return {"figure": _note(output).get("title", "").translate(_BRACES)}


def _note(output: Any) -> dict[str, Any]:
    path = Path(str(output.note))
    try:
        return read_json(path)
    except DamagedFileError:
        return {}
