"""Measures very many cells for a long time, with a fault a minute, and watches what grows.

    make soak MINUTES=30 CELLS=200000

A real Snakemake run measures real cells on OpenCL on this machine's CPU, tiny ones. Each minute
something happens to it: the measuring process gets SIGKILL or SIGTERM, it is stopped for a while,
or a cell that was planned to writes to an illegal address or never returns. Each second memory,
descriptors and threads of the job and of its measuring process are read, and the size of the logs.
Figures go to ``results/chaos/soak.json``.
"""

from __future__ import annotations

import itertools
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.parquet as pq
from copies import write_copy
from figures_file import parser_of, provenance, write_figures
from growth import Sample, judge_growth, read_process
from processes import JOB, MARK, WORKER, Process, end_all, gone, marked
from projects import Project
from workflow_fixtures import new_project

KERNEL = "soak_copy"
# Cells of one size are measured together; as many as take a few seconds, for those of a size are
# begun again when their process ends.
CELLS_OF_A_SIZE = 500
CELL_TIMEOUT_S = 1.0
FAULT_EVERY_S = 60.0
# Of the faults so many stand among the cells; the others come from outside.
PLANNED_SHARE = 1 / 3
OUTSIDE = ("SIGKILL", "pause", "SIGTERM", "long pause")
PAUSES_S = {"pause": 3.0, "long pause": 14.0}
LOG_LIMIT_BYTES = 10_000_000

# What a cell does whose fault is 1 or 2: it writes to an illegal address, or never returns.
_FAULT = """
    volatile uint turning = fault;
    if (fault == 1)
        ((__global volatile uint *)(ulong)64)[i] = 1;
    while (turning == 2) {
    }
"""
_FAULT_OF = """
    def more(self, cell, blocks):
        place = cell.problem.height, cell.problem.width
        return (np.uint32(FAULTS.get(place, 0) if cell["turn"] == 1 else 0),)

"""
_PROGRESS = re.compile(r"^shard (\d+)/\d+ .*: (\d+)/\d+ cells done", re.MULTILINE)
_FINISHED = re.compile(r"^shard (\d+)/\d+ .*: [\d, a-z_]+ in ", re.MULTILINE)


@dataclass(frozen=True)
class Plan:
    """What is measured: sizes with CELLS_OF_A_SIZE cells each; `faults` (1, 2) by size."""

    sizes: list[list[int]]
    faults: dict[tuple[int, int], int]
    shards: int

    @property
    def cells(self) -> int:
        """Number of cells of the whole run."""
        return CELLS_OF_A_SIZE * len(self.sizes)


def plan(cells: int, shards: int, minutes: float) -> Plan:
    """Sizes for so many cells, with a planned fault in every so many of them."""
    count = max(shards, round(cells / CELLS_OF_A_SIZE))
    sizes = [
        [h, w] for h, w in itertools.islice(itertools.product(range(40, 90), range(64, 84)), count)
    ]
    faulty = max(1, round(minutes * 60 / FAULT_EVERY_S * PLANNED_SHARE))
    every = max(1, len(sizes) // faulty)
    places = range(every // 2, len(sizes), every)
    faults = {(sizes[p][0], sizes[p][1]): 1 + i % 2 for i, p in enumerate(places)}
    return Plan(sizes, faults, shards)


def write_project(root: Path, asked: Plan) -> Project:
    """A copy of the project with the kernel and the configuration of the soak."""
    project = new_project(root)
    methods = _FAULT_OF.replace("FAULTS", repr(asked.faults))
    axes = {"block_x": [64], "turn": [1]}
    write_copy(root, KERNEL, axes, before=_FAULT, parameter="const uint fault", methods=methods)
    turns = {"from": 1, "to": CELLS_OF_A_SIZE // 2}
    config = {
        "run": "soak",
        "backend": "opencl",
        "only": [KERNEL],
        "kernels": {KERNEL: {"sizes": asked.sizes, "axes": {"block_x": [64, 128], "turn": turns}}},
        "measure": {
            "repeats": 1,
            "min_samples": 6,
            "max_samples": 6,
            "warmup": 0,
            "cell_timeout_s": CELL_TIMEOUT_S,
            "cells_per_shard": -(-asked.cells // asked.shards),
        },
        "simulate": None,
        "chapters": None,
    }
    project.write_config("soak.yaml", config)
    return project


@dataclass
class Soak:
    """The run, the samples taken of it, and what happened to it."""

    project: Project
    mark: str
    rng: Random
    began: float = field(default_factory=time.monotonic)
    samples: list[Sample] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    _stopped: list[tuple[float, Process]] = field(default_factory=list)

    @property
    def now_s(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self.began

    def watch(self, minutes: float) -> int | None:
        """Sample and strike until the end, or for so long; the exit status, None if cut off."""
        marks = {MARK: self.mark}
        self.run = self.project.start("results/soak/dataset", config=("soak.yaml",), **marks)
        order = itertools.cycle(OUTSIDE)
        every_s = FAULT_EVERY_S / (1.0 - PLANNED_SHARE)
        next_fault = every_s / 2
        while not self.run.ended:
            time.sleep(1.0)
            processes = marked(self.mark)
            self.sample(processes)
            self._continue()
            if self.now_s > next_fault and self.strike(next(order), processes):
                next_fault += every_s
            if self.now_s > 60 * minutes:
                return None
        return self.run.end()

    def sample(self, processes: list[Process]) -> None:
        """Read what the job at work and its measuring process hold."""
        shard, done = self.progress()
        logs = (self.project.root / "results/soak/logs/measure").glob("*.log")
        log_bytes = max((p.stat().st_size for p in logs), default=0)
        now_s = round(self.now_s, 1)
        for process in processes:
            measures = process.role == WORKER or ".measure.py" in process.command
            told = read_process(process.pid) if measures else None
            if told is not None:
                entry = (now_s, process.role, process.pid, shard, done)
                self.samples.append(Sample(*entry, *told, log_bytes))

    def progress(self) -> tuple[int, int]:
        """Number of the shard at work, and how many of its cells have ended."""
        text = self.run.text
        finished = len(set(_FINISHED.findall(text)))
        lines = _PROGRESS.findall(text)
        return (int(lines[-1][0]), int(lines[-1][1])) if lines else (finished + 1, 0)

    def strike(self, kind: str, processes: list[Process]) -> bool:
        """Let a fault come from outside; False while there is nobody to strike."""
        jobs = {p.pid for p in processes if p.role == JOB}
        workers = [p for p in processes if p.role == WORKER and p.parent in jobs]
        if not workers:
            return False
        seconds = PAUSES_S.get(kind)
        number = signal.SIGSTOP if seconds is not None else signal.Signals[kind]
        if not workers[-1].send(number):
            return False
        if seconds is not None:
            self._stopped.append((self.now_s + seconds, workers[-1]))
        self.faults[kind] += 1
        return True

    def _continue(self) -> None:
        due = [entry for entry in self._stopped if entry[0] <= self.now_s]
        for entry in due:
            entry[1].send(signal.SIGCONT)
            self._stopped.remove(entry)


def statuses(results: Path, asked: Plan) -> dict[str, Any]:
    """Rows of the shards by status, with those that were planned to fault apart."""
    counted: Counter[str] = Counter()
    planned: Counter[str] = Counter()
    keys: set[str] = set()
    innocent: list[str] = []
    columns = ["cell_key", "status", "message", "height", "width", "turn", "block_x"]
    rows = 0
    for path in sorted((results / "cells").rglob("*.parquet")):
        for row in pq.ParquetFile(path).read(columns=columns).to_pylist():
            rows += 1
            keys.add(row["cell_key"])
            faulty = row["turn"] == 1 and (row["height"], row["width"]) in asked.faults
            (planned if faulty else counted)[row["status"]] += 1
            if not faulty and row["status"] != "ok":
                innocent.append(f"{row['cell_key']}: {row['status']}: {row['message']}")
    return {
        "rows": rows,
        "distinct_cells": len(keys),
        "cells_by_status": dict(sorted(counted.items())),
        "cells_planned_to_fault_by_status": dict(sorted(planned.items())),
        "innocent_cells_with_a_fault_status": len(innocent),
        "first_of_them": innocent[:5],
    }


def soak(cells: int, shards: int, minutes: float, seed: str, out: Path) -> int:
    """Soak, write the figures; the number of broken bounds."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    folder = Path(tempfile.mkdtemp(prefix="gpushmoo-soak-"))
    try:
        asked = plan(cells, shards, minutes)
        run = Soak(write_project(folder / "project", asked), folder.name, Random(seed))
        try:
            # Time for the last shard to be written; the faults go by the minutes asked for.
            status = run.watch(2 * minutes + 2)
        finally:
            end_all(run.mark)
        left = [p.role for p in gone(run.mark, 10)]
        found = statuses(folder / "project/results/soak", asked)
        figures = {
            **provenance(seed),
            "device": "OpenCL on this machine's CPU; real cells, real processes",
            "seconds": round(run.now_s, 1),
            "cells": asked.cells,
            "shards": asked.shards,
            "ended_by_itself": status is not None,
            "exit_status": status,
            "processes_left": left,
            **found,
            "cells_a_second": round(found["rows"] / run.now_s, 1),
            "faults_from_outside": dict(sorted(run.faults.items())),
            "cells_planned_to_fault": 2 * len(asked.faults),
            **judge_growth(run.samples, LOG_LIMIT_BYTES),
        }
        if status != 0:
            shutil.copyfile(run.run.screen, out.with_suffix(".terminal.txt"))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    complete = status == 0 and found["distinct_cells"] == found["rows"] == asked.cells
    if not complete:
        figures["broken"].append(f"the run did not complete (status {status})")
    if found["innocent_cells_with_a_fault_status"]:
        figures["broken"].append("innocent cells have a fault status")
    write_figures(out, figures, _lines(figures))
    return len(figures["broken"])


def _lines(figures: dict[str, Any]) -> list[str]:
    """A short text for the documentation."""
    faults = sum(figures["faults_from_outside"].values())
    return [
        f"Soak of {figures['date']}, commit {figures['commit'][:12]}, {figures['cores']} cores: "
        f"{figures['rows']} cells in {figures['seconds'] / 60:.0f} min, {faults} faults from "
        f"outside and {figures['cells_planned_to_fault']} cells that fault or hang.",
        "",
        "| | job | measuring process |",
        "|---|---|---|",
        *(
            f"| {title} | {figures['job'][name]} | {figures['worker'][name]} |"
            for title, name in (
                ("memory after warm-up, MB", "rss_mb_after_warm_up"),
                ("memory at most, MB", "rss_mb_at_most"),
                ("growth, bytes a cell of the shard", "bytes_per_cell"),
                ("growth per 10,000 cells, %", "growth_percent_per_10000_cells"),
                ("descriptors at most", "descriptors_at_most"),
                ("threads at most", "threads_at_most"),
            )
        ),
        "",
        f"Largest log: {figures['log_bytes_at_most']} bytes. Innocent cells with a fault status: "
        f"{figures['innocent_cells_with_a_fault_status']}. Broken bounds: "
        f"{'; '.join(figures['broken']) or 'none'}.",
    ]


def main() -> None:
    """Read the command line; exit status 1 if a bound was broken."""
    parser = parser_of(__doc__, "soak")
    parser.add_argument("--cells", type=int, default=200_000)
    parser.add_argument("--shards", type=int, default=4, help="a power of two")
    parser.add_argument("--minutes", type=float, default=30.0, help="what the cells should take")
    given = parser.parse_args()
    print(f"make soak SEED={given.seed}", flush=True)
    sys.exit(bool(soak(given.cells, given.shards, given.minutes, given.seed, given.out)))


if __name__ == "__main__":
    main()
