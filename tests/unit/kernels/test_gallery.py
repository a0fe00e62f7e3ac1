"""Kernels that belong to no chapter: every path of theirs is right, and their bytes are."""

from itertools import product

import pytest
from conftest import ROOT
from gpushmoo.core.schema import Status
from gpushmoo.core.space import Cell, Problem, Version, enumerate_cells
from gpushmoo.devices.base import Device
from gpushmoo.measuring.cell_memory import Verdict, open_space
from gpushmoo.measuring.events import planned
from gpushmoo.measuring.programs import programs_for
from gpushmoo.workloads.loader import load_kernel

# Several whole blocks and a part of one, in rows that no block divides.
PROBLEM = Problem(37, 131)
AXES = {
    "stream": {"threads": [33, 128], "unroll": [1, 2, 4, 8]},
    "stream_dot": {"threads": [33], "grid": [3, 700], "unroll": [1, 8]},
    "reduce_sum": {"threads": [33], "grid": [3, 700], "unroll": [1, 8]},
    "stencil5": {"block_x": [1, 16, 50], "block_y": [1, 7, 20]},
    "gather_stride": {"stride": [1, 3, 32, 5000], "threads": [33, 128]},
    "store_columns": {"block_x": [1, 8, 50], "block_y": [1, 7, 20], "passes": [1, 4]},
    # Shorter and longer than the chain, which is of 151 places.
    "chase": {"chains": [1, 7], "hops": [1, 100, 1000]},
    "dispatch": {"grid": [1, 700], "block_x": [1, 33, 128]},
    "issue": {"grid": [1, 5], "block_x": [1, 33, 128], "steps": [1, 7]},
}
FOLDERS = {name: load_kernel(ROOT / "kernels" / name) for name in AXES}


@pytest.mark.parametrize(
    ("kernel", "variant"), [(k, v) for k in AXES for v in FOLDERS[k].workload.variants]
)
def test_every_cell_is_right(device: Device, kernel: str, variant: str) -> None:
    folder, dtype = FOLDERS[kernel], "float"
    space = open_space(device, folder.workload, PROBLEM, dtype, variant, seed=1)
    program = programs_for(device, folder, dtype, [Version(variant)]).programs[variant]
    for cell in enumerate_cells(kernel, dtype, [variant], [PROBLEM], AXES[kernel]):
        proof = space.bind_proof(program, cell) or space.bind(program, cell)
        space.poison()
        proof.run()
        assert space.verdict(cell, proof) == Verdict(0, None), cell


@pytest.mark.parametrize(("height", "width", "work"), [(1, 7, None), (2, 9, None), (4, 5, 24.0)])
def test_a_stencil_without_an_inside_has_no_work(
    height: int, width: int, work: float | None
) -> None:
    cell = Cell("stencil5", "float", "global", Problem(height, width), (("block_x", 8),))
    assert FOLDERS["stencil5"].workload.work(cell) == work


def test_a_refused_launch_ends_its_cell_and_a_stream_counts_its_operands() -> None:
    axes = (("block_x", 100), ("block_y", 100))
    cell = Cell("stencil5", "float", "tiled", PROBLEM, axes)
    run = planned(FOLDERS["stencil5"].workload, cell)
    assert run.status == Status.OUT_OF_RESOURCES
    assert run.message == "10000 threads a block; a tile holds 4096."
    workload, axes = FOLDERS["stream"].workload, (("threads", 128), ("unroll", 1))
    moved = {
        (variant, dtype): workload.bytes_moved(
            Cell("stream", dtype, variant, workload.problem(1000), axes)
        )
        for variant, dtype in product(workload.variants, workload.dtypes)
    }
    assert moved["copy", "float"] == moved["mul", "float"] == (4000, 4000)
    assert moved["add", "double"] == moved["triad", "double"] == (16_000, 8000)
