"""From a checked configuration to shards: what each measuring job is told."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..core.backends import source_suffix
from ..core.paths import ROOT
from ..core.run_plan import RunPlan, SweepPlan
from ..core.space import LAUNCH_KINDS, TYPICAL, count_cells, expand_axis, shard_count, shard_name
from ..measuring.settings import MeasureSettings
from ..search.planner import SearchMode
from .config import RunConfig
from .config_schema import ConfigError
from .sweeps import SweepConfig

# Measuring jobs of a run. Snakemake takes minutes and gigabytes to plan as many.
MOST_SHARDS = 100_000
# The share of the cells that a search measures, about: a job is to have enough to do.
MEASURED: Mapping[str, float] = {SearchMode.GUIDED: 1 / 16}


@dataclass(frozen=True)
class ShardJob:
    """One measuring job: a repeat, from 1, of part `index` of `count` of a sweep and dtype."""

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


def plan_shards(config: RunConfig) -> list[ShardJob]:
    """All shards of a run, a whole repeat after the other, in a fixed order; asks no device.

    Raises ConfigError, before there is any, where they are more than MOST_SHARDS.
    """
    counts = {name: _shards(sweep, config) for name, sweep in config.sweeps.items()}
    dtypes = {name: sweep.dtypes for name, sweep in config.sweeps.items()}
    total = config.repeats * sum(n * len(dtypes[name]) for name, n in counts.items())
    if total > MOST_SHARDS:
        raise ConfigError(
            f"measure.cells_per_shard: {config.cells_per_shard} makes {total} measuring jobs; a "
            f"run may have {MOST_SHARDS}: raise it, or sweep fewer sizes."
        )
    first = [
        ShardJob(n, d, i, counts[n]) for n in counts for d in dtypes[n] for i in range(counts[n])
    ]
    return [replace(s, repeat=n) for n in range(1, config.repeats + 1) for s in first]


def _shards(sweep: SweepConfig, config: RunConfig) -> int:
    """Number of shards of each dtype."""
    axes = {a: expand_axis(spec, TYPICAL) for a, spec in sweep.axes.items()}
    cells = count_cells(axes, len(sweep.problems), len(sweep.variants), len(sweep.met))
    cells = math.ceil(cells * MEASURED.get(config.measure.search.mode, 1.0))
    rounds = len(set(sweep.problems)) * len(sweep.met)
    return shard_count(cells, config.cells_per_shard, rounds)


def named_shard(wildcards: Any) -> ShardJob:
    """The shard that the wildcards of a measuring rule name; of rule `measure` the first repeat."""
    index, count = (int(n) for n in wildcards.shard.split("-of-"))
    repeat = int(getattr(wildcards, "repeat", 1))
    return ShardJob(wildcards.sweep, wildcards.dtype, index, count, repeat)


def run_plan(config: RunConfig, backend: str, opencl_runtime: str) -> RunPlan:
    """What every measuring job of the run is told; see `RunPlan`."""
    shards = {(s.sweep, s.dtype): s.count for s in plan_shards(config)}
    sweeps: dict[str, dict[str, SweepPlan]] = {}
    for (name, dtype), count in shards.items():
        params = sweep_params(
            config.sweeps[name],
            dtype,
            config.measure,
            config.repeats,
            backend,
            config.device,
            opencl_runtime,
        )
        sweeps.setdefault(name, {})[dtype] = SweepPlan(params, count)
    return RunPlan(sweeps)


USUAL_KINDS = [*LAUNCH_KINDS[:1]]


def sweep_params(
    sweep: SweepConfig,
    dtype: str,
    measure: MeasureSettings,
    repeats: int,
    backend: str,
    device: int | str,
    opencl_runtime: str,
) -> dict[str, Any]:
    """Everything that the measuring jobs of a sweep and dtype depend on besides their code.

    Plain values, which Snakemake compares with the last run's: a difference, and nothing else,
    measures again.
    """
    rule = measure.rule
    return {
        "axes": {a: sweep.axes[a] for a in sorted(sweep.axes)},
        "backend": backend,
        "cache_states": list(sweep.cache_states),
        "device": device,
        "dtype": dtype,
        "folder": os.path.relpath(sweep.folder.path, ROOT),
        "kernel_digest": sweep.folder.digest(source_suffix(backend)),
        # The usual kind alone is not told: what was measured before there were others stays.
        **({"launch_kinds": kinds} if (kinds := list(sweep.launch_kinds)) != USUAL_KINDS else {}),
        "measure": {
            "budget_s": rule.budget_s,
            "max_samples": rule.max_samples,
            "min_samples": rule.min_samples,
            "relative_half_width": rule.relative_half_width,
            "repeats": repeats,
            "search": _search_params(measure),
            "timeout_s": measure.cell_timeout_s,
            "warmup": measure.warmup,
            # Only where it is asked for: what was measured before there was such a key counts.
            **({} if measure.lock_clocks is None else {"lock_clocks": measure.lock_clocks}),
        },
        "opencl_runtime": opencl_runtime,
        "seed": measure.seed,
        "sizes": [[p.height, p.width] for p in sweep.problems],
        "thread_limit": measure.thread_limit,
        "variants": list(sweep.variants),
    }


def _search_params(measure: MeasureSettings) -> dict[str, Any]:
    """What `measuring.settings.settings_of` makes the search's settings of."""
    search = measure.search
    return {
        "better_probability": search.better_probability,
        "mode": str(search.mode),
        "most_share": search.most_share,
        "tolerance": search.tolerance,
        "transfer": measure.transfer,
    }


def build_params(
    sweep: SweepConfig,
    dtype: str,
    backend: str,
    device: int | str,
    opencl_runtime: str,
    cuda_arch: str | None,
) -> dict[str, Any]:
    """Everything that a build file depends on besides its code."""
    return {
        "backend": backend,
        "cuda_arch": cuda_arch,
        "device": device,
        "dtype": dtype,
        "folder": os.path.relpath(sweep.folder.path, ROOT),
        "kernel_digest": sweep.folder.digest(source_suffix(backend)),
        "opencl_runtime": opencl_runtime,
        "versions": [
            [v.variant, [list(value) for value in v.values]] for v in sweep.versions[dtype]
        ],
    }
