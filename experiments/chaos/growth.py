"""Memory, descriptors and threads of processes over time, and whether they are bounded."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from processes import JOB, WORKER

# Of the samples of a process so many at its beginning are its warm-up: imports, the device, the
# plan of all cells.
WARM_UP_S = 15.0
# A job keeps the results of its shard until it writes them, so that its memory follows the cells of
# a shard; the measuring process keeps nothing of a cell that has ended.
BYTES_PER_CELL = {JOB: 8000, WORKER: 1500}
# Opened and closed while a measuring process is replaced.
DESCRIPTORS_TO_AND_FRO = 6
# Every so many seconds a sample is kept in the figures.
KEPT_EVERY_S = 10.0


@dataclass(frozen=True)
class Sample:
    """A process at a moment: bytes resident, open descriptors, threads.

    `done` is how many cells of the shard number `shard` have ended; `log_bytes` is the size of the
    largest log of a shard.
    """

    at_s: float
    role: str
    pid: int
    shard: int
    done: int
    rss: int
    descriptors: int
    threads: int
    log_bytes: int


def read_process(pid: int) -> tuple[int, int, int] | None:
    """Bytes resident, open descriptors and threads of a process; None when it has gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
        descriptors = len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return None
    told = dict(line.split(":", 1) for line in lines if ":" in line)
    if "VmRSS" not in told:
        return None
    return 1024 * int(told["VmRSS"].split()[0]), descriptors, int(told["Threads"])


def judge_growth(samples: Sequence[Sample], log_limit: int) -> dict[str, Any]:
    """Figures of both roles, and sentences on the bounds that were broken."""
    broken: list[str] = []
    figures: dict[str, Any] = {"broken": broken}
    # In the end a job makes the table of its shard, once.
    measuring = {s.at_s for s in samples if s.role == WORKER}
    for name, role in (("job", JOB), ("worker", WORKER)):
        figures[name] = _figures([s for s in samples if s.role == role], measuring)
        growth = figures[name]["bytes_per_cell"]
        if growth is not None and growth > BYTES_PER_CELL[role]:
            broken.append(f"memory of the {role} grows by {growth} bytes a cell")
        if figures[name]["descriptors_grow_by"] > DESCRIPTORS_TO_AND_FRO:
            broken.append(f"descriptors of the {role} grow")
    figures["log_bytes_at_most"] = max((s.log_bytes for s in samples), default=0)
    if figures["log_bytes_at_most"] > log_limit:
        broken.append(f"a log is over {log_limit} bytes")
    kept: dict[tuple[str, int], Sample] = {}
    for sample in samples:
        kept.setdefault((sample.role, int(sample.at_s / KEPT_EVERY_S)), sample)
    figures["samples"] = [asdict(s) for s in kept.values()]
    return figures


def _settled(samples: Sequence[Sample]) -> list[Sample]:
    """Without the warm-up of each process."""
    first: dict[int, float] = {}
    for sample in samples:
        first.setdefault(sample.pid, sample.at_s)
    return [s for s in samples if s.at_s - first[s.pid] >= WARM_UP_S and s.done > 0]


def _figures(samples: Sequence[Sample], measuring: set[float]) -> dict[str, Any]:
    """Of one role; growth is judged while there was a measuring process."""
    settled = [s for s in _settled(samples) if s.at_s in measuring]
    slope = _bytes_per_cell(settled) if settled else None
    start = float(np.median([s.rss for s in settled[:5]])) if settled else None
    return {
        "rss_mb_after_warm_up": None if start is None else round(start / 1e6, 1),
        "rss_mb_at_most": round(max((s.rss for s in samples), default=0) / 1e6, 1),
        "bytes_per_cell": None if slope is None else round(slope),
        "growth_percent_per_10000_cells": (
            None if slope is None or start is None else round(1e6 * slope / start, 2)
        ),
        "descriptors_at_most": max((s.descriptors for s in samples), default=0),
        "descriptors_grow_by": (
            settled[-1].descriptors - min(s.descriptors for s in settled) if settled else 0
        ),
        "threads_at_most": max((s.threads for s in samples), default=0),
    }


def _bytes_per_cell(samples: Sequence[Sample]) -> float | None:
    """Slope of memory over ended cells within shards, by least squares; None for too few cells.

    Each shard has a level of its own. The processes of one shard share one: what the second starts
    with is what the first has left undone.
    """
    done = np.array([s.done for s in samples], float)
    rss = np.array([s.rss for s in samples], float)
    shards = np.array([s.shard for s in samples])
    for shard in np.unique(shards):
        own = shards == shard
        done[own] -= done[own].mean()
        rss[own] -= rss[own].mean()
    spread = float((done**2).sum())
    return float((done * rss).sum()) / spread if spread > 0 else None
