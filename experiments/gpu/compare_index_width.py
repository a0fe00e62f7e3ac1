"""What indices of 64 bits cost beside those of 32, and beside the kernel that a user writes.

    export PYTHONPATH=workflow/scripts:kernels:reports/chapters
    python experiments/gpu/compare_index_width.py OUT.json

Three builds of a kernel on the same buffers of one process: indices of 32 bits, as the project
takes them where the problem allows, of 64 bits, and a copy with `int` indices written out plainly
here. Every launch is sampled in each of ROUNDS rounds by all builds in turn, so that a drift would
show in none of the ratios. `copy2d_coalesced` over block shapes of a 12288² array,
`block_eq_partition` over numbers of blocks of an 8192² one. Outputs are compared bit by bit first.
Needs a CUDA device.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from gpushmoo.core.dtypes import DTYPES
from gpushmoo.core.paths import ROOT
from gpushmoo.core.space import INDEX_BITS, Cell, Problem
from gpushmoo.devices.base import Sample
from gpushmoo.devices.cuda.device import CudaDevice
from gpushmoo.devices.cuda.timing import CudaBound
from gpushmoo.workloads.contract import Argument, Launch
from gpushmoo.workloads.loader import load_kernel
from scipy.stats import spearmanr

ROUNDS = 9
SHAPES = range(4, 65, 4)
BLOCKS = (1, 2, 4, 8, 16, 32, 66, 132, 264, 528, 529, 1056)
# What somebody writes who needs a copy: no guard, since the arrays are whole blocks and tiles.
PLAIN = """
extern "C" __global__ void copy_element(element_t *__restrict__ dst,
                                        const element_t *__restrict__ src, int width, int height)
{
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < width && y < height)
        dst[y * width + x] = src[y * width + x];
}
extern "C" __global__ void copy_exact(element_t *__restrict__ dst,
                                      const element_t *__restrict__ src, int width, int height,
                                      int tiles_x, int tiles)
{
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const int x = tile % tiles_x * TILE_X + threadIdx.x;
        const int y = tile / tiles_x * TILE_Y + threadIdx.y;
        dst[y * width + x] = src[y * width + x];
    }
}
"""


@dataclass(frozen=True)
class Subject:
    """A launch of one build."""

    cell: Cell
    build: str
    bound: CudaBound


def main() -> None:
    """Measure both kernels and write one JSON file."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    device = CudaDevice(0, ROOT / ".cache")
    found = {
        "device": device.info.name,
        "driver": device.info.driver,
        "written_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "rounds": ROUNDS,
        "shapes": [compared(device, shapes(dtype)) for dtype in ("float", "double")],
        "blocks": [compared(device, blocks(dtype)) for dtype in ("float", "double")],
    }
    args.out.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))


def shapes(dtype: str) -> list[Cell]:
    """Valid block shapes of the plain copy."""
    problem = Problem(12288, 12288)
    return [
        Cell("copy2d_coalesced", dtype, "element", problem, (("block_x", x), ("block_y", y)))
        for x in SHAPES
        for y in SHAPES
        if x * y <= 1024
    ]


def blocks(dtype: str) -> list[Cell]:
    """Numbers of blocks of the persistent copy."""
    problem = Problem(8192, 8192)
    axis = "num_partition"
    return [Cell("block_eq_partition", dtype, "exact", problem, ((axis, n),)) for n in BLOCKS]


def compared(device: CudaDevice, cells: Sequence[Cell]) -> dict[str, Any]:
    """Ratios of the builds' medians over the cells."""
    kernel, dtype, problem = cells[0].kernel, cells[0].dtype, cells[0].problem
    src = np.random.default_rng(1).random(
        DTYPES[dtype].shape(problem.height, problem.width), dtype=DTYPES[dtype].scalar
    )
    buffers = {"src": device.upload(src), "dst": device.allocate(src.nbytes)}
    subjects = list(subjects_of(device, cells, buffers))
    for subject in subjects:
        device.poison(buffers["dst"])
        subject.bound.run()
        wrong = device.mismatches(buffers["dst"], buffers["src"])
        if wrong:
            raise SystemExit(f"{subject.build}, {subject.cell.params}: {wrong} words differ")
    times = sampled(device, subjects)
    rows = [{"params": dict(c.params), **{b: times[c.key, b] for b in BUILDS}} for c in cells]
    wide, narrow, plain = (np.array([row[b] for row in rows]) for b in BUILDS)
    return {
        "kernel": kernel,
        "dtype": dtype,
        "side": problem.width,
        "cells": len(cells),
        "wide_over_narrow": spread(wide / narrow),
        "narrow_over_plain": spread(narrow / plain),
        "wide_over_plain": spread(wide / plain),
        "spearman_narrow_plain": float(spearmanr(narrow, plain).statistic),
        "best_narrow_over_plain": float(narrow.min() / plain.min()),
        "times_s": rows if len(rows) <= len(BLOCKS) else None,
    }


BUILDS = ("wide", "narrow", "plain")


def subjects_of(
    device: CudaDevice, cells: Sequence[Cell], buffers: Mapping[str, Any]
) -> list[Subject]:
    """Every launch by every build."""
    folder = load_kernel(ROOT / "kernels" / cells[0].kernel)
    kind = DTYPES[cells[0].dtype]
    macros = folder.workload.macros(kind.name, folder.workload.version(cells[0]))
    with tempfile.TemporaryDirectory() as name:
        plain = Path(name)
        (plain / "kernel.cu").write_text(PLAIN)
        # The plain source has both kernels; each wants its own definitions alone.
        tiles = {"TILE_X": "1", "TILE_Y": "1"} | macros
        programs = {
            "wide": device.build(folder.path, kind, macros | {INDEX_BITS: "64"}),
            "narrow": device.build(folder.path, kind, macros),
            "plain": device.build(plain, kind, tiles),
        }
    found = []
    for cell in cells:
        launch = folder.workload.launch(cell)
        for build in BUILDS:
            bound = device.bind(programs[build], typed(launch, build), buffers)
            found.append(Subject(cell, build, bound))
    return found


def typed(launch: Launch, build: str) -> Launch:
    """The launch with arguments of the types that the build takes."""
    if build == "narrow":
        return launch
    numbers = [i for i, a in enumerate(launch.args) if isinstance(a, np.generic)][:2]
    kind = np.uint64 if build == "wide" else np.int32
    args: list[Argument] = [
        kind(a) if i in numbers and isinstance(a, np.generic) else a
        for i, a in enumerate(launch.args)
    ]
    return replace(launch, args=tuple(args))


def sampled(device: CudaDevice, subjects: Sequence[Subject]) -> dict[tuple[str, str], float]:
    """Median seconds by cell and build, the order of each round drawn anew."""
    rng = np.random.default_rng(2)
    taken: dict[tuple[str, str], list[float]] = {}
    for _ in range(1 + ROUNDS):
        order = rng.permutation(len(subjects))
        for begin in range(0, len(order), 32):
            some = [subjects[i] for i in order[begin : begin + 32]]
            outcomes = device.sample_all([Sample(s.bound, 1) for s in some])
            for subject, seconds in zip(some, outcomes, strict=True):
                if isinstance(seconds, Exception):
                    raise seconds
                taken.setdefault((subject.cell.key, subject.build), []).append(seconds)
    # The first round warms up.
    return {key: float(np.median(seconds[1:])) for key, seconds in taken.items()}


def spread(ratios: Any) -> dict[str, float]:
    """Least, median, 95th percentile and greatest of ratios."""
    least, median, p95, greatest = np.quantile(ratios, [0.0, 0.5, 0.95, 1.0]).tolist()
    return {"least": least, "median": median, "p95": p95, "greatest": greatest}


if __name__ == "__main__":
    main()
