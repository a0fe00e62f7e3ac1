"""A kernel that can be held in the middle of its shard, for faults that strike there.

Its cells of 64² elements are measured; before those of 128² the measuring process leaves a mark
with its process id and waits until the gate is opened. So a fault strikes a shard that has measured
half of its cells, always, and no test sleeps for luck.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd
from gpushmoo.dataset import read_cells
from projects import DEADLINE_S, Project

KERNEL = """
typedef struct { float x, y, z; } packed_float3;
__kernel void gated(__global element_t *restrict dst, __global const element_t *restrict src,
                    const ulong n)
{
    const ulong i = get_global_id(0);
    if (i < n)
        dst[i] = src[i];
}
"""
WORKLOAD = """
import os, time
from pathlib import Path
import numpy as np
from gpushmoo.workload import BufferRef, CopyWorkload, Curve, Launch, ceil_div

GATE = Path(__file__).resolve().parents[2] / "gate"


class Gated(CopyWorkload):
    name = "gated"
    title = "Held in the middle"
    pattern = "one element per thread"
    dtypes = ("float", "double", "float2", "float3", "float4", "unorm8x4")
    variants = ("plain",)
    sizes = (64, 128)
    axes = {"block_x": [32, 64, 128, 256]}
    views = (Curve("block_x", unit="threads"),)

    def defines(self, dtype, variant):
        return {}

    def inputs(self, problem, dtype, rng):
        if problem.height == 128:
            (GATE / f"{dtype}-{os.getpid()}").touch()
            deadline = time.monotonic() + 240
            while not (GATE / "open").exists() and not (GATE / f"open-{dtype}").exists():
                if time.monotonic() > deadline:
                    raise RuntimeError("the gate was not opened")
                time.sleep(0.02)
        return super().inputs(problem, dtype, rng)

    def launch(self, cell):
        n = cell.problem.height * cell.problem.width
        block = cell["block_x"]
        grid = (ceil_div(n, block), 1, 1)
        args = (BufferRef("dst"), BufferRef("src"), np.uint64(n))
        return Launch("gated", grid, (block, 1, 1), args, grid[0])


WORKLOAD = Gated()
"""
CONFIG: dict[str, Any] = {
    "run": "gated",
    "backend": "opencl",
    "only": ["gated"],
    "measure": {"repeats": 1, "min_samples": 6, "max_samples": 7},
}
CELLS_PER_SHARD = 8
DATASET = "results/gated/dataset"


def wait_until(condition: Callable[[], bool], what: str, seconds: float = DEADLINE_S) -> None:
    """Poll `condition`; fails, saying `what` did not happen, after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"in {seconds:g} s this did not happen: {what}"
        time.sleep(0.02)


class Gate:
    """The gate of a project's kernel ``gated``."""

    def __init__(self, project: Project, dtypes: Sequence[str] = ("float", "double")) -> None:
        """Writes the kernel and ``gated.yaml`` into the project; the gate is closed."""
        self.dtypes = dtypes
        folder = project.root / "kernels/gated"
        folder.mkdir()
        (folder / "kernel.cl").write_text(KERNEL)
        (folder / "workload.py").write_text(WORKLOAD)
        self._project = project
        self.set_axis([32, 64, 128, 256])
        self._folder = project.root / "gate"
        self._folder.mkdir()

    def set_axis(self, block_x: Sequence[int]) -> None:
        """Write the configuration, with these values of the one axis."""
        sweep = {"dtypes": list(self.dtypes), "axes": {"block_x": list(block_x)}}
        config = CONFIG | {"kernels": {"gated": sweep}}
        self.config = (self._project.write_config("gated.yaml", config),)

    def workers(self, dtype: str) -> set[int]:
        """Process ids of those that ever came to the gate with the shard of `dtype`."""
        return {int(p.name.split("-")[1]) for p in self._folder.glob(f"{dtype}-*")}

    def wait_for(self, dtype: str) -> int:
        """Wait until one is in the middle of the shard of `dtype`; its process id."""
        wait_until(lambda: bool(self.workers(dtype)), f"{dtype} in the middle of its shard")
        return min(self.workers(dtype))

    def wait_for_any(self) -> str:
        """Wait until one is in the middle of a shard; its dtype."""
        wait_until(lambda: any(map(self.workers, self.dtypes)), "a shard in its middle")
        return next(d for d in self.dtypes if self.workers(d))

    def open(self, dtype: str | None = None) -> None:
        """Let all pass, or those of `dtype`."""
        (self._folder / ("open" if dtype is None else f"open-{dtype}")).touch()

    def cells(self) -> pd.DataFrame:
        """The dataset's rows, after the check that it holds every cell, each once, all ok."""
        cells = read_cells(self._project.root / DATASET)
        assert len(cells) == CELLS_PER_SHARD * len(self.dtypes)
        assert cells["cell_key"].is_unique
        assert set(cells["status"]) == {"ok"}, cells[["status", "message"]]
        return cells
