"""Cells on a real device: a shard measured by the real job, or one cell verified here."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from gpushmoo.core.shard_job import ShardJob
from gpushmoo.core.space import Cell, Version
from gpushmoo.devices.base import Device
from gpushmoo.devices.select import DeviceChoice
from gpushmoo.measuring.cell_memory import Verdict, open_space
from gpushmoo.measuring.events import CellRun, Event
from gpushmoo.measuring.job import ShardTask, run_shard
from gpushmoo.measuring.programs import programs_for
from gpushmoo.measuring.progress import live_path
from gpushmoo.measuring.rounds import ShardRun
from gpushmoo.measuring.sampling import StoppingRule
from gpushmoo.measuring.verify import CellSteps
from gpushmoo.storage.store import read_shard
from gpushmoo.workloads.loader import KernelFolder, load_kernel
from jobs import ended_runs, sampling_of

# For a fixture's `params`.
BACKENDS = ["opencl", pytest.param("cuda", marks=pytest.mark.gpu)]
THREADS = {"from": 32, "to": 256, "step": 32}


def choice_of(request: pytest.FixtureRequest, cache: Path) -> DeviceChoice:
    """The device of the backend that is the parameter of a fixture's `request`."""
    if request.param == "cuda":
        request.getfixturevalue("cuda_device")
        return DeviceChoice("cuda", 0, "auto", cache)
    return request.getfixturevalue("opencl_choice")


class Bench:
    """Measures a shard of a written kernel by the real job, in real processes."""

    def __init__(
        self, choice: DeviceChoice, folder: Path, tmp_path: Path, worker_log: Path | None = None
    ) -> None:
        self._choice, self._folder, self._tmp = choice, folder, tmp_path
        self._worker_log = worker_log
        self.terminal = io.StringIO()

    def measure(
        self, variants: list[str], threads: Any = THREADS, build: Path | None = None, **other: Any
    ) -> pd.DataFrame:
        """Rows by variant and threads."""
        out = self._tmp / "shard.parquet"
        job = ShardJob.of_plain(self.params(variants, threads) | other)
        live = live_path(self._tmp, out)
        files = {"log_file": "the.log", "worker_log": self._worker_log, "live": live}
        task = ShardTask(job, (1, 1), self._choice.cache, build=build, **files)
        run_shard(task, out, self.terminal)
        table, _ = read_shard(out)
        return table.to_pandas()

    def params(self, variants: list[str], threads: Any = THREADS) -> dict[str, Any]:
        """The job in plain values."""
        return {
            "axes": {"block_x": threads},
            "backend": self._choice.backend,
            "cache_states": ["warm"],
            "device": 0,
            "dtype": "float",
            "folder": str(self._folder),
            "kernel_digest": load_kernel(self._folder).digest(".cl"),
            "measure": {
                "repeats": 1,
                "cell_budget_s": 1.0,
                "max_samples": 6,
                "min_samples": 6,
                "relative_half_width": 0.1,
                "search": {
                    "mode": "all",
                    "tolerance": 0.01,
                    "better_probability": 0.05,
                    "max_share": 1.0,
                },
                "cell_timeout_s": 4.0,
                "warmup": 0,
            },
            "opencl_runtime": self._choice.runtime,
            "seed": 1,
            "repeat": 1,
            "shard": [0, 1],
            "sizes": [[64, 64]],
            "thread_limit": None,
            "variants": variants,
        }


def told(
    device: Device, folder: KernelFolder, cells: Sequence[Cell], limit: int | None = 1024
) -> list[Event]:
    """What measuring tells of cells of one type, each of which has six samples."""
    told: list[Event] = []
    rule = StoppingRule(min_samples=6, max_samples=6, relative_half_width=0.5, budget_s=1.0)
    builds = programs_for(
        device, folder, cells[0].dtype, [Version(v) for v in sorted({c.variant for c in cells})]
    )
    assert not builds.failures
    sampling = sampling_of(rule, thread_limit=limit, warmup=0)
    ShardRun(CellSteps(device, folder, builds, sampling, told.append)).measure(cells)
    return told


def ended(
    device: Device, folder: KernelFolder, cells: Sequence[Cell], limit: int | None = 1024
) -> list[CellRun]:
    """How measuring says that the cells end."""
    runs = ended_runs(told(device, folder, cells, limit))
    assert len(runs) == len(cells)
    return runs


def verdict(device: Device, folder: KernelFolder, cell: Cell) -> Verdict:
    """What is wrong with a cell's output after one proof on poisoned memory."""
    workload = folder.workload
    version = folder.workload.version(cell)
    space = open_space(device, workload, cell.problem, cell.dtype, cell.variant, seed=3)
    builds = programs_for(device, folder, cell.dtype, [version])
    assert not builds.failures
    proof = space.bind_proof(builds.programs[version.name], cell)
    if proof is None:
        proof = space.bind(builds.programs[version.name], cell)
    space.poison()
    proof.run()
    return space.verdict(cell, proof)


def wrong_words(device: Device, folder: KernelFolder, cell: Cell) -> int:
    """How many words of the output are wrong."""
    return verdict(device, folder, cell).wrong_words
