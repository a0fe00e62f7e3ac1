"""Dot products on the device, the library's, and sums of squares: right, or called wrong."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from conftest import ROOT
from covering import CHOSEN, Choice, edited, integers
from gpushmoo.core.errors import LaunchRefusedError
from gpushmoo.core.space import Cell, Problem, enumerate_cells
from gpushmoo.devices.base import Device
from gpushmoo.measuring.buffers import FedSpace, ReducedSpace, Verdict
from gpushmoo.measuring.builds import build_variants
from gpushmoo.workloads.contract import LibraryCall
from gpushmoo.workloads.loader import KernelFolder, load_kernel

Array = npt.NDArray[Any]

FOLDERS = {
    name: load_kernel(ROOT / "kernels" / name)
    for name in ("dot_resident", "dot_cublas", "dot_square")
}
AXES: dict[str, dict[str, list[int]]] = {
    "dot_resident": {"threads": [1, 33, 256, 1000], "grid": [1, 3, 700], "unroll": [1, 2, 4, 8]},
    "dot_cublas": {},
    "dot_square": {
        "streams": [1, 3],
        "min_per_stream": [1],
        "blocks_per_stream": [3],
        "threads": [33, 1000],
        # All at once; for `cells` to add: in about 40 pieces.
        "chunk": [0],
        "host_percent": [0, 37],
    },
}
SIZES = [1, 3, 5, 1000, 65537]


def cells(name: str, n: int, dtype: str) -> list[Cell]:
    variants, axes = FOLDERS[name].workload.variants[:1], AXES[name]
    if "chunk" in axes:
        # None of which is a whole number of groups of four, but for the shortest vectors.
        axes = axes | {"chunk": [*axes["chunk"], max(27, n // 40 // 4 * 4 + 3)]}
    return enumerate_cells(name, dtype, variants, [Problem(1, n)], axes)


def space(
    device: Device, folder: KernelFolder, dtype: str, data: dict[str, Array]
) -> FedSpace | ReducedSpace:
    """Holds `data` instead of the workload's own."""
    mine = {name: data[name] for name in folder.workload.operands}
    if folder.name == "dot_square":
        return FedSpace(device, folder.workload, mine)
    problem = Problem(1, len(mine["x"]))
    own = folder.workload.inputs(problem, dtype, np.random.default_rng(1))
    return ReducedSpace(device, folder.workload, problem, dtype, lambda: own | mine)


def verdicts(
    device: Device, folder: KernelFolder, mine: list[Cell], data: dict[str, Array]
) -> list[Verdict]:
    """Of every cell, each on poisoned memory."""
    dtype = mine[0].dtype
    builds = build_variants(device, folder, dtype, [mine[0].variant])
    assert not builds.failures
    here, found = space(device, folder, dtype, data), []
    for cell in mine:
        program = builds.programs[cell.variant]
        proof = here.bind_proof(program, cell) or here.bind(program, cell)
        here.poison()
        proof.run()
        found.append(here.verdict(cell, proof))
    return found


def skip_without_library(device: Device, name: str) -> None:
    if name == "dot_cublas" and device.info.backend != "cuda":
        pytest.skip("cuBLAS is CUDA's")


@pytest.mark.parametrize("name", FOLDERS)
@pytest.mark.parametrize("dtype", ["float", "double"])
@pytest.mark.parametrize("n", SIZES)
@CHOSEN
def test_every_cell_is_right(device: Device, chosen: Choice, name: str, n: int, dtype: str) -> None:
    skip_without_library(device, name)
    mine = chosen(cells(name, n, dtype))
    problem, rng = Problem(1, n), np.random.default_rng(n)
    scalar = np.float32 if dtype == "float" else np.float64
    everything = [
        integers(n, dtype),
        {v: rng.standard_normal(n).astype(scalar) for v in ("x", "y")},
        FOLDERS["dot_resident"].workload.inputs(problem, dtype, rng),
    ]
    for data in everything:
        assert verdicts(device, FOLDERS[name], mine, data) == [Verdict(0, None)] * len(mine)


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("name", ["dot_resident", "dot_square"])
@pytest.mark.parametrize(("place", "special"), [(0, math.nan), (500, math.inf), (1002, -math.inf)])
def test_special_values_come_through(device: Device, name: str, place: int, special: float) -> None:
    data = integers(1003, "float")
    data["x"][place] = special
    mine = cells(name, 1003, "float")
    assert verdicts(device, FOLDERS[name], mine, data) == [Verdict(0, None)] * len(mine)


EDITS = {
    "an element": [("i < n;", "i < n - 1;")],
    "a block's sum": [
        (
            "partials[get_group_id(0)] = total;",
            "if (get_group_id(0)) partials[get_group_id(0)] = total;",
        ),
        ("partials[blockIdx.x] = total;", "if (blockIdx.x) partials[blockIdx.x] = total;"),
    ],
    "the last blocks": [
        ("k < get_num_groups(0);", "k + 1 < get_num_groups(0);"),
        ("i < gridDim.x;", "i + 1 < gridDim.x;"),
    ],
    "the result": [("*dst = total;", ""), ("*dst = rest;", "")],
}


@pytest.mark.parametrize("what", EDITS)
def test_kernel_that_leaves_something_out_is_called_wrong(
    device: Device, tmp_path: Path, what: str
) -> None:
    folder = edited(FOLDERS["dot_resident"], tmp_path, EDITS[what])
    # Each of these blocks has something to add.
    mine = [c for c in cells("dot_resident", 1003, "float") if (c["grid"], c["threads"]) == (3, 33)]
    # Entries that are not launched here take a compiler seconds each.
    for unroll in {1, 2, 4, 8} - {c["unroll"] for c in mine}:
        for source in folder.path.glob("kernel.c*"):
            source.write_text(source.read_text().replace(f"\nDOT({unroll})\n", "\n"))
    found = verdicts(device, folder, mine, integers(1003, "float"))
    assert {v.wrong_words for v in found} == {1}
    assert all("the bound of this order of summation" in str(v.message) for v in found)


def test_library_is_refused_where_there_is_none(device: Device) -> None:
    call = LibraryCall("sort", ("x", "y"), "dst", "float")
    with pytest.raises(LaunchRefusedError, match="'sort'"):
        device.bind_library(call, {})


def test_library_takes_samples_of_several_calls(device: Device) -> None:
    """No graph may hold them; see CudaLibraryBound."""
    skip_without_library(device, "dot_cublas")
    n = 2**20
    data = FOLDERS["dot_cublas"].workload.inputs(Problem(1, n), "float", np.random.default_rng(1))
    here = space(device, FOLDERS["dot_cublas"], "float", data)
    (cell,) = cells("dot_cublas", n, "float")
    bound = here.bind(
        build_variants(device, FOLDERS["dot_cublas"], "float", ["library"]).programs["library"],
        cell,
    )
    assert 1e-7 < bound.sample(10) < 1e-3
