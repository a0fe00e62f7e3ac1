"""A small run's shards, made by all of the production code but the device, and their judge.

Two kernels, two shards of each, two repeats; cells over the limit of threads and cells that faulted
are among them. No device is needed and nothing is timed, so thousands of mutants can be tried.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from conftest import ROOT
from gpushmoo.analysis.aggregate import AggregateError, aggregate
from gpushmoo.core.run_plan import RunPlan
from gpushmoo.core.schema import Status
from gpushmoo.core.space import Cell, space_of
from gpushmoo.measuring.events import CellRun, Opened, ShardResult, planned
from gpushmoo.measuring.job import _metadata as shard_metadata
from gpushmoo.measuring.shard_file import NOTHING, cell_table
from gpushmoo.planning.config import load_config
from gpushmoo.planning.plan import plan_shards, run_plan
from gpushmoo.storage.store import write_parquet
from gpushmoo.workloads.loader import load_kernel
from synthetic import GPU

_KERNELS: dict[str, Any] = {
    "copy2d_coalesced": {
        "dtypes": ["float"],
        "variants": ["element", "tile32"],
        "sizes": [48, 64],
        "axes": {"block_x": [16, 32, 64], "block_y": [4, 32]},
    },
    "global_copy": {
        "dtypes": ["float"],
        "variants": ["plain"],
        "sizes": [64],
        "cache": ["warm", "flushed"],
        "axes": {"block_x": [128, 256], "unroll": [1, 2], "passes": [1, 4]},
    },
}
# Of a hundred cells so many end in a fault.
_FAULTY = 10


@dataclass(frozen=True)
class ShardSet:
    """The shards of a complete run below `folder`, in the order of its plan."""

    plan: RunPlan
    folder: Path
    paths: tuple[Path, ...]

    def copied_to(self, folder: Path) -> ShardSet:
        """The same shards below another folder, which is made."""
        shutil.copytree(self.folder, folder)
        return ShardSet(
            self.plan, folder, tuple(folder / p.relative_to(self.folder) for p in self.paths)
        )


def refusal(shards: ShardSet) -> str | None:
    """The sentence by which the aggregating step refuses a run's shards; None if it accepts them.

    Any other exception than those that it promises comes through.
    """
    with tempfile.TemporaryDirectory(prefix="gpushmoo-mutants-") as out:
        try:
            aggregate(shards.paths, Path(out) / "dataset", one_model=True, plan=shards.plan)
        except AggregateError as err:
            return str(err)
    return None


def accepted(shards: ShardSet) -> bool:
    """Whether the aggregating step makes a data set of a run's shards."""
    return refusal(shards) is None


def make_shards(folder: Path, seed: int = 1) -> ShardSet:
    """Write all shards of a run, whose times are drawn, below `folder`."""
    raw = yaml.safe_load((ROOT / "config/config.yaml").read_text(encoding="utf-8"))
    raw |= {"kernels": _KERNELS, "only": None, "backend": "cuda"}
    raw |= {"simulate": None, "chapters": None}
    raw["measure"] |= {"repeats": 2, "cells_per_shard": 4}
    config = load_config(raw, ROOT)
    plan = run_plan(config, "cuda", "auto")
    rng = np.random.default_rng(seed)
    ok: dict[str, set[str]] = {}
    paths = []
    for shard in plan_shards(config):
        params = plan.sweeps[shard.sweep][shard.dtype].shard_params(shard.index, shard.repeat)
        first = shard.path.split(".")[0]
        cells = [c for c in _cells(params) if shard.repeat == 1 or c.key in ok[first]]
        path = folder / "cells" / shard.path
        measured = _write(path, params, cells, rng)
        ok.setdefault(first, measured)
        paths.append(path)
    return ShardSet(plan, folder, tuple(paths))


def _cells(params: dict[str, Any]) -> list[Cell]:
    # Axes are lists here, which no device need resolve.
    return space_of(params).cells(Path(params["folder"]).name, params["axes"])


def _write(
    path: Path, params: dict[str, Any], cells: Sequence[Cell], rng: np.random.Generator
) -> set[str]:
    """Write a shard as the measuring job does; the keys of its ``ok`` cells."""
    workload = load_kernel(ROOT / params["folder"]).workload
    runs = {cell.key: planned(workload, cell) for cell in cells}
    for run in runs.values():
        _end(run, params, rng)
    places = {(c.problem, c.condition) for c in cells}
    copies = {
        place: [(0.1 * i, float(s)) for i, s in enumerate(1e-5 * rng.uniform(0.99, 1.01, 7))]
        for place in sorted(places)
    }
    result = ShardResult(runs, copies)
    opened = Opened(GPU, dict.fromkeys(params["variants"], "-std=c++17"), {}, None, {}, cells)
    table = cell_table(result, workload, GPU, params["axes"])
    write_parquet(table, path, shard_metadata(params, opened, result, NOTHING, None))
    return {key for key, run in runs.items() if run.status is Status.OK}


def _end(run: CellRun, params: dict[str, Any], rng: np.random.Generator) -> None:
    limit = GPU.max_threads_per_block
    if run.launch.threads > limit:
        run.end(Status.TOO_MANY_THREADS, f"{run.launch.threads} threads a block; limit {limit}")
        return
    run.resident_per_unit, run.registers = 4, int(rng.integers(16, 40))
    run.launches = 4
    run.verified_words, run.wrong_words = run.cell.problem.height * run.cell.problem.width, 0
    count = int(rng.integers(6, 10))
    run.samples_s = [float(s) for s in 1e-5 * rng.uniform(0.9, 1.1, count)]
    run.sampled_at_s = [0.01 * i for i in range(count)]
    # Later repeats measure what was ok in the first.
    if params["repeat"] == 1 and rng.integers(100) < _FAULTY:
        run.end(Status.TIMEOUT, "one launch took 11 s")
    else:
        run.end(Status.OK)
