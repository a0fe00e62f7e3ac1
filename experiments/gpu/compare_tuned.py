"""Compares times of the same launches by `gpushmoo.tune` and Kernel Tuner's `tune_kernel`.

    python experiments/gpu/compare_tuned.py OUT.json

Three kernels, each with a few block sizes: a sum of two vectors, a copy of rows and a sum of each
row. Both tools get the same source and arrays. Kernel Tuner runs as a user would call it: seven
launches, each timed by a pair of CUDA events, of which it reports the mean. Needs a CUDA device,
CuPy and kernel_tuner.
"""

import json
import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import gpushmoo
import numpy as np
from kernel_tuner_sweep import kernel_tuner

THREADS = [64, 128, 256, 512, 1024]
N, ROWS, WIDTH = 2**24, 2**14, 2**12
SOURCES = {
    "add": """
extern "C" __global__ void add(float *c, const float *a, const float *b, const int n)
{
    const int i = blockIdx.x * block_size_x + threadIdx.x;
    if (i < n)
        c[i] = a[i] + b[i];
}
""",
    "copy_rows": """
extern "C" __global__ void copy_rows(float *c, const float *a, const float *b, const int n)
{
    for (int i = threadIdx.x; i < WIDTH; i += block_size_x)
        c[(size_t)blockIdx.x * WIDTH + i] = a[(size_t)blockIdx.x * WIDTH + i];
}
""",
    "sum_rows": """
extern "C" __global__ void sum_rows(float *c, const float *a, const float *b, const int n)
{
    __shared__ float sums[block_size_x];
    float sum = 0.0f;
    for (int i = threadIdx.x; i < WIDTH; i += block_size_x)
        sum += a[(size_t)blockIdx.x * WIDTH + i];
    sums[threadIdx.x] = sum;
    for (int half = block_size_x / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    if (threadIdx.x == 0)
        c[blockIdx.x] = sums[0];
}
""",
}


@dataclass(frozen=True)
class Subject:
    """A kernel's call: `size` is a number of elements or of rows, one block each."""

    arguments: list[Any]
    size: int
    expected: Any
    grid: str
    bytes_moved: str
    grid_divisors: tuple[str, ...] = ()


def subjects() -> dict[str, Subject]:
    """Return the calls by kernel."""
    rng = np.random.default_rng(1)
    a, b = rng.random((2, N), np.float32)
    # Whole numbers, so that any order of summation is exact.
    rows = rng.integers(0, 8, (ROWS, WIDTH)).astype(np.float32)
    small = np.zeros(1, np.float32)
    n = np.int32(N)
    sums = rows.sum(axis=1)
    return {
        "add": Subject(
            [np.empty_like(a), a, b, n],
            N,
            a + b,
            "ceil(n / block_size_x)",
            "12 * n",
            grid_divisors=("block_size_x",),
        ),
        "copy_rows": Subject(
            [np.empty_like(rows), rows, small, n], ROWS, rows, "n", f"8 * n * {WIDTH}"
        ),
        "sum_rows": Subject(
            [np.empty_like(sums), rows, small, n], ROWS, sums, "n", f"4 * n * {WIDTH}"
        ),
    }


def ours_s(name: str) -> dict[int, float]:
    """Seconds of a launch by the number of threads, by `gpushmoo.tune`."""
    one = subjects()[name]
    found = gpushmoo.tune(
        f"#define WIDTH {WIDTH}\n{SOURCES[name]}",
        name,
        one.arguments,
        one.size,
        {"block_size_x": THREADS},
        launch=gpushmoo.LaunchConfig(
            grid=one.grid, block="block_size_x", bytes_moved=one.bytes_moved
        ),
        check=gpushmoo.Check([one.expected, None, None, None]),
        search={"mode": "all"},
        backend="cuda",
        progress=False,
    )
    cells = found.cells
    assert set(cells["status"]) == {"ok"}, cells[["status", "message"]]
    return dict(zip(cells["block_size_x"].astype(int), cells["median_s"], strict=True))


def theirs_s(name: str) -> dict[int, list[float]]:
    """Seconds of each timed launch by the number of threads, by `tune_kernel`."""
    one = subjects()[name]
    results, _ = kernel_tuner.tune_kernel(
        name,
        f"#define WIDTH {WIDTH}\n{SOURCES[name]}",
        one.size,
        one.arguments,
        {"block_size_x": THREADS},
        grid_div_x=list(one.grid_divisors),
        answer=[one.expected, None, None, None],
        lang="CUPY",
        quiet=True,
    )
    return {found["block_size_x"]: [1e-3 * t for t in found["times"]] for found in results}


def main(out: Path) -> None:
    """Measure, print and write."""
    rows = []
    for name in SOURCES:
        before, theirs, after = ours_s(name), theirs_s(name), ours_s(name)
        for threads in THREADS:
            ours = [before[threads], after[threads]]
            times = theirs[threads]
            row = {"kernel": name, "threads": threads, "ours_s": ours, "kernel_tuner_s": times}
            # Kernel Tuner's own figure is the mean.
            row["ratio"] = median(ours) / float(np.mean(times))
            rows.append(row)
            print(json.dumps(row), flush=True)
    told = {"kernel_tuner": version("kernel_tuner"), "gpushmoo": gpushmoo.__version__}
    out.write_text(json.dumps({**told, "cells": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
