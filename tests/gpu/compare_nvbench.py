"""Compares our medians with NVIDIA's own harness (PyPI ``cuda-bench``) on the same cells.

    PYTHONPATH=workflow/scripts python tests/gpu/compare_nvbench.py OUT.json

Both harnesses launch the same compiled kernels on the same buffers in one process; ours samples
before and after nvbench, so that a drift of the device would show. Needs a CUDA device, CuPy and
cuda-bench. Exit status 1 when a cell differs by more than 1 %.
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
from gpushmoo.devices.cuda import CudaBound, CudaDevice
from gpushmoo.dtypes import DTYPES
from gpushmoo.kernels import load_kernel
from gpushmoo.plan import ROOT
from gpushmoo.space import Cell, Problem
from gpushmoo.timing.median import median_interval

LIMIT = 0.01
SAMPLES = 25


@dataclass(frozen=True)
class Subject:
    """A cell ready to run."""

    cell: Cell
    bound: CudaBound


def cells() -> Iterator[Cell]:
    """Fast and slow shapes of both kernels, float and double."""
    for dtype in ("float", "double"):
        for variant, x, y in (
            ("element", 64, 4),
            ("element", 4, 64),
            ("element", 32, 8),
            ("tile32", 32, 8),
            ("tile32", 8, 16),
        ):
            params = (("block_x", x), ("block_y", y))
            yield Cell("copy2d_coalesced", dtype, variant, Problem(16384, 16384), params)
        for blocks in (32, 264, 528, 529):
            params = (("num_partition", blocks),)
            yield Cell("block_eq_partition", dtype, "exact", Problem(8192, 8192), params)


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
            buffers[key] = uploaded | {workload.output: device.upload(workload.reference(inputs))}
        program = device.build(
            folder.path, DTYPES[cell.dtype], workload.defines(cell.dtype, cell.variant)
        )
        bound = device.bind(program, workload.launch(cell), buffers[key])
        bound.run()
        found.append(Subject(cell, bound))
    return found


def ours(subjects: list[Subject]) -> list[list[float]]:
    """Interleaved samples in seconds, one list for each subject."""
    samples: list[list[float]] = [[] for _ in subjects]
    rng = np.random.default_rng(2)
    for _ in range(SAMPLES):
        for i in rng.permutation(len(subjects)):
            samples[i].append(subjects[i].bound.sample(1))
    return samples


def theirs(subjects: list[Subject]) -> list[float]:
    """Mean GPU time in seconds of each subject as nvbench reports it."""

    def bench(state: nvbench.State) -> None:
        subject = subjects[state.get_int64("cell")]

        def launch(go: nvbench.Launch) -> None:
            with cupy.cuda.ExternalStream(go.get_stream().addressof()):
                subject.bound.enqueue()

        state.exec(launch, batched=False)

    nvbench.register(bench).add_int64_axis("cell", range(len(subjects)))
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "nvbench.json"
        nvbench.run_all_benchmarks(["compare", "--json", str(out), "--min-time", "0.1"])
        report = json.loads(out.read_text())
    means = []
    for state in report["benchmarks"][0]["states"]:
        summary = next(s for s in state["summaries"] if s["tag"] == "nv/cold/time/gpu/mean")
        means.append(float(next(d["value"] for d in summary["data"] if d["name"] == "value")))
    return means


def main(out: Path) -> int:
    """Write the comparison to `out`, print it, and say by the exit status whether it holds."""
    device = CudaDevice(0)
    subjects = prepare(device)
    before, reference, after = ours(subjects), theirs(subjects), ours(subjects)
    rows = []
    for subject, first, mean, second in zip(subjects, before, reference, after, strict=True):
        median = median_interval(first + second)
        cell = subject.cell
        rows.append(
            {
                "kernel": cell.kernel,
                "dtype": cell.dtype,
                "variant": cell.variant,
                "params": dict(cell.params),
                "ours_median_s": median.median,
                "ours_low_s": median.low,
                "ours_high_s": median.high,
                "nvbench_mean_s": mean,
                "ratio": median.median / mean,
                "ratio_before": median_interval(first).median / mean,
                "ratio_after": median_interval(second).median / mean,
            }
        )
        print(cell.kernel, cell.dtype, cell.variant, dict(cell.params), f"{rows[-1]['ratio']:.5f}")
    worst = max(abs(r["ratio"] - 1.0) for r in rows)
    out.write_text(
        json.dumps({"device": device.info.name, "worst": worst, "cells": rows}, indent=1)
    )
    print(f"worst difference {100 * worst:.2f} % of {100 * LIMIT:.0f} % allowed")
    return int(worst > LIMIT)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
