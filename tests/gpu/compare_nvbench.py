"""Compares our medians with NVIDIA's own harness (PyPI ``cuda-bench``) on the same cells.

    export PYTHONPATH=workflow/scripts:kernels:reports/chapters
    python tests/gpu/compare_nvbench.py OUT.json

Both harnesses launch the same compiled kernels on the same buffers in one process; for each cell
ours samples right before and right after nvbench, so that a drift of the device would show. nvbench
flushes the L2 cache before every launch: our flushed cells are the like of it, our warm ones must
agree where the arrays are far larger than the cache. Needs a CUDA device, CuPy and cuda-bench. Exit
status 1 when a cell differs by more than 1 %.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cuda.bench as nvbench
import cupy
import numpy as np
from gpushmoo.core.dtypes import DTYPES
from gpushmoo.core.median import median_interval
from gpushmoo.core.paths import ROOT
from gpushmoo.core.space import Cell, Problem
from gpushmoo.devices.base import Sample
from gpushmoo.devices.cuda.device import CudaDevice
from gpushmoo.devices.cuda.timing import CudaBound
from gpushmoo.workloads.loader import load_kernel

LIMIT = 0.01
SAMPLES = 100


@dataclass(frozen=True)
class Subject:
    """A cell ready to run."""

    cell: Cell
    bound: CudaBound


def cells() -> Iterator[Cell]:
    """Fast and slow shapes of both kernels; small arrays flushed alone."""
    for dtype in ("float", "double", "float4"):
        for side, state in ((1024, "flushed"), (8192, "flushed"), (8192, "warm")):
            yield from _cells(dtype, side, state)


def _cells(dtype: str, side: int, state: str) -> Iterator[Cell]:
    problem = Problem(side, side)
    for variant, x, y in (("element", 64, 4), ("element", 4, 64), ("tile32", 32, 8)):
        params = (("block_x", x), ("block_y", y))
        yield Cell("copy2d_coalesced", dtype, variant, problem, params, state)
    for blocks in (32, 528, 529):
        params = (("num_partition", blocks),)
        yield Cell("block_eq_partition", dtype, "exact", problem, params, state)


def prepare(device: CudaDevice) -> list[Subject]:
    """Compile, upload and bind every cell; problems share their buffers."""
    buffers: dict[tuple[Problem, str], dict[str, Any]] = {}
    found = []
    for cell in cells():
        folder = load_kernel(ROOT / "kernels" / cell.kernel)
        workload = folder.workload
        key = (cell.problem, cell.dtype)
        if key not in buffers:
            inputs = workload.inputs(cell.problem, cell.dtype, np.random.default_rng(1))
            uploaded = {n: device.upload(a) for n, a in inputs.items()}
            output = device.allocate(workload.reference(inputs).nbytes)
            buffers[key] = uploaded | {workload.output: output}
        program = device.build(
            folder.path, DTYPES[cell.dtype], workload.defines(cell.dtype, cell.variant)
        )
        bound = device.bind(program, workload.launch(cell), buffers[key])
        bound.run()
        found.append(Subject(cell, bound))
    return found


def ours(subject: Subject) -> list[float]:
    """Samples in seconds, each taken as the sweep takes it."""
    flushed = subject.cell.cache_state == "flushed"
    return [Sample(subject.bound, 1, flushed).take() for _ in range(SAMPLES)]


def both(subjects: list[Subject]) -> list[tuple[list[float], float, list[float]]]:
    """For each subject our samples, nvbench's mean GPU time, and our samples again, in seconds."""
    around: dict[int, tuple[list[float], list[float]]] = {}

    def bench(state: nvbench.State) -> None:
        index = state.get_int64("cell")
        subject = subjects[index]

        def launch(go: nvbench.Launch) -> None:
            with cupy.cuda.ExternalStream(go.get_stream().addressof()):
                subject.bound.enqueue()

        ours(subject)  # a device that has just begun to work is a few per cent faster
        before = ours(subject)
        state.exec(launch, batched=False)
        around[index] = before, ours(subject)

    nvbench.register(bench).add_int64_axis("cell", range(len(subjects)))
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "nvbench.json"
        nvbench.run_all_benchmarks(["compare", "--json", str(out), "--min-time", "0.1"])
        report = json.loads(out.read_text())
    found = []
    for index, state in enumerate(report["benchmarks"][0]["states"]):
        summary = next(s for s in state["summaries"] if s["tag"] == "nv/cold/time/gpu/mean")
        mean = float(next(d["value"] for d in summary["data"] if d["name"] == "value"))
        found.append((around[index][0], mean, around[index][1]))
    return found


def main(out: Path) -> int:
    """Write the comparison to `out`, print it, and say by the exit status whether it holds."""
    device = CudaDevice(0, ROOT / "results" / "compare-nvbench")
    subjects = prepare(device)
    rows = []
    for subject, (first, mean, second) in zip(subjects, both(subjects), strict=True):
        median = median_interval(first + second)
        cell = subject.cell
        rows.append(
            {
                "kernel": cell.kernel,
                "dtype": cell.dtype,
                "variant": cell.variant,
                "params": dict(cell.params),
                "side": cell.problem.width,
                "cache_state": cell.cache_state,
                "ours_median_s": median.median,
                "ours_low_s": median.low,
                "ours_high_s": median.high,
                "nvbench_mean_s": mean,
                "ours_mean_s": float(np.mean(first + second)),
                # Means, because nvbench tells no median.
                "ratio": float(np.mean(first + second)) / mean,
                "ratio_before": float(np.mean(first)) / mean,
                "ratio_after": float(np.mean(second)) / mean,
            }
        )
        what = f"{cell.kernel} {cell.dtype} {cell.problem.label} {cell.cache_state} {cell.variant}"
        print(what, dict(cell.params), f"{rows[-1]['ratio']:.5f}")
    worst = max(abs(r["ratio"] - 1.0) for r in rows)
    out.write_text(
        json.dumps({"device": device.info.name, "worst": worst, "cells": rows}, indent=1)
    )
    print(f"worst difference {100 * worst:.2f} % of {100 * LIMIT:.0f} % allowed")
    return int(worst > LIMIT)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
