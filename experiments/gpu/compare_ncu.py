"""Compares our times of ten launches with the duration that Nsight Compute measures.

    export PYTHONPATH=workflow/scripts:kernels:reports/chapters:.
    python experiments/gpu/compare_ncu.py OUT.json

Ours: `gpushmoo.sweep` measures each launch in a row (``batched``, warm) and by itself after a
flush of the L2 cache (``isolated``, flushed). Nsight Compute's ``gpu__time_duration`` is of one
launch, from its begin to its end, with the clocks as they are: after other launches of the kernel,
and after a flush by the profiler. A row also includes the time from the end of a launch to the
begin of the next one. Needs a CUDA device, CuPy and ncu.
"""

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import cupy
import gpushmoo
from bound_cells import bound_cells
from gpushmoo.core.backends import BACKENDS
from gpushmoo.core.paths import KERNELS, ROOT, child_environment
from gpushmoo.core.space import Cell, Problem
from gpushmoo.devices.cuda.backend import CudaDevice
from gpushmoo.extras.studies.counters import count_launches, find_ncu, version_of

METRIC = "gpu__time_duration.sum"
WARMING, RECORDED = 5, 9
# Our cells, by what ncu does with the caches.
OURS = {"none": ("warm", "batched"), "all": ("flushed", "isolated")}


def cells() -> Iterator[Cell]:
    """Ten launches of four kernels, from 2 to 500 µs on an H200."""
    block = (("block_x", 64), ("block_y", 4))
    for side in (512, 1024, 2048, 8192):
        yield Cell("copy2d_coalesced", "float", "element", Problem(side, side), block)
    for side in (2048, 8192):
        yield Cell("copy2d_coalesced", "float4", "element", Problem(side, side), block)
    partition = (("num_partition", 528),)
    yield Cell("block_eq_partition", "double", "exact", Problem(4096, 4096), partition)
    tile = (("PAD", 1), ("ROWS", 4), ("TILE", 32), ("block_x", 32))
    yield Cell("transpose", "float", "tile", Problem(2048, 2048), tile)
    yield Cell("transpose", "double", "tile", Problem(4096, 4096), tile)
    yield Cell("stencil5", "float", "global", Problem(4096, 4096), block)


def launch_all() -> None:
    """Launch every cell under the profiler, which records the last launches of each."""
    device = CudaDevice(0, ROOT / "results" / "compare-ncu")
    for _, bound in bound_cells(device, cells()):
        for _ in range(WARMING):
            bound.run()
        cupy.cuda.runtime.profilerStart()
        for _ in range(RECORDED):
            bound.run()
        cupy.cuda.runtime.profilerStop()


def durations_s(ncu: str, cache: str) -> list[list[float]]:
    """Seconds of the recorded launches of each cell, by Nsight Compute."""
    command = [sys.executable, __file__, "launch"]
    options = ["--cache-control", cache, "--target-processes", "all"]
    path = os.pathsep.join(p for p in sys.path if p)
    env = {**child_environment(), "PYTHONPATH": path}
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.csv"
        launches = count_launches(ncu, command, options, [METRIC], report, env)
    found = [1e-9 * (one.values[METRIC] or float("nan")) for one in launches]
    assert len(found) == RECORDED * len(list(cells())), len(found)
    return [found[i : i + RECORDED] for i in range(0, len(found), RECORDED)]


def ours_s(cell: Cell, cache: str, mode: str) -> float:
    """Seconds of a launch by the whole tool, with its default settings."""
    result = gpushmoo.sweep(
        KERNELS / cell.kernel,
        axes={name: [value] for name, value in cell.params},
        dtypes=cell.dtype,
        sizes=cell.problem.width,
        variants=cell.variant,
        cache=cache,
        timing_modes=mode,
        search={"mode": "all"},
        backend="cuda",
        progress=False,
    )
    (row,) = result.cells.to_dict("records")
    assert row["status"] == "ok", row
    return float(row["median_s"])


def main(out: Path) -> None:
    """Measure, print and write."""
    ncu = find_ncu(BACKENDS["cuda"])
    rows: list[dict[str, Any]] = []
    theirs = {cache: durations_s(ncu, cache) for cache in OURS}
    for place, cell in enumerate(cells()):
        row: dict[str, Any] = {"kernel": cell.kernel, "dtype": cell.dtype, "variant": cell.variant}
        row |= {"side": cell.problem.width, "params": dict(cell.params)}
        for cache, (state, mode) in OURS.items():
            ours, ncu_s = ours_s(cell, state, mode), theirs[cache][place]
            row[f"{state} {mode}"] = {"ours_s": ours, "ncu_s": ncu_s, "ratio": ours / median(ncu_s)}
        rows.append(row)
        print(json.dumps(row), flush=True)
    device = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    out.write_text(json.dumps({"device": device, "ncu": version_of(ncu), "cells": rows}, indent=1))


if __name__ == "__main__":
    if sys.argv[1] == "launch":
        launch_all()
    else:
        main(Path(sys.argv[1]))
