"""Reads the hardware counters of the cells in ``counted_cells.yaml``: counted_cells.py OUT.parquet.

docs/model.md says what they decide. Needs an NVIDIA GPU with CuPy, and Nsight Compute.
"""

import sys
import tempfile
from itertools import product
from pathlib import Path

import yaml
from gpushmoo.core.paths import KERNELS
from gpushmoo.core.space import Cell, ChosenCell, Problem
from gpushmoo.core.study_job import JobDevice
from gpushmoo.extras.studies.counters import CounterStudy
from gpushmoo.workloads.loader import load_kernel


def designed_sample() -> list[ChosenCell]:
    """All cells, those of one kernel and its data next to each other."""
    series = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
    found = []
    for s in series:
        states = s.get("states", ["warm"])
        for dtype, n, state, variant, point in product(
            s["dtypes"], s["sizes"], states, s["variants"], s["points"]
        ):
            params = tuple(sorted(zip(s["axes"], point, strict=True)))
            cell = Cell(s["kernel"], dtype, variant, Problem(n, n), params, state)
            found.append(ChosenCell(cell, s["asks"]))
    return found


if __name__ == "__main__":
    chosen = designed_sample()
    folders = {n: load_kernel(KERNELS / n) for n in {one.cell.kernel for one in chosen}}
    device = JobDevice(backend="cuda", device=0, opencl_runtime="auto", seed=20091017)
    with tempfile.TemporaryDirectory() as work:
        study = CounterStudy(chosen, folders, device, Path(work, "cache"), Path(work))
        study.count(Path(sys.argv[1]), print)
