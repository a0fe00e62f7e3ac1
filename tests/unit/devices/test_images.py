"""Images on both backends: held texel by texel, fetched in every mode, refused in one sentence."""

import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from bench import ended, wrong_words
from conftest import ROOT, examples
from gpushmoo.core.dtypes import DTYPES
from gpushmoo.core.errors import LaunchConfigError, OutOfDeviceMemoryError
from gpushmoo.core.schema import Status
from gpushmoo.core.space import Cell, Problem, enumerate_cells
from gpushmoo.devices.base import Device, image_refusal
from gpushmoo.devices.opencl.backend import OpenCLDevice
from gpushmoo.workloads.contract import HeatMap, Launch
from gpushmoo.workloads.loader import KernelFolder, find_kernels, load_kernel
from gpushmoo.workloads.views import FigureData
from hypothesis import given, settings
from hypothesis import strategies as st

KERNELS = {n: load_kernel(p) for n, p in find_kernels([ROOT / "kernels"]).items()}
TEX, SURF = KERNELS["tex2d_sum"], KERNELS["surf2d_memset"]
WHOLE_WORDS = ["float", "float2", "float4", "unorm8x4"]


def needs_format(device: Device, dtype: str) -> None:
    """Skip where the runtime has no such images: PoCL has none of two channels."""
    if dtype == "float2" and image_refusal(device, Problem(8, 8), DTYPES[dtype]) is not None:
        pytest.skip("this runtime has no images of two channels")


def texels(dtype: str, problem: Problem) -> np.ndarray[Any, Any]:
    kind = DTYPES[dtype]
    shape = kind.shape(problem.height, problem.width)
    return np.random.default_rng(7).integers(0, 256, shape, dtype=np.uint8).astype(kind.scalar)


@pytest.mark.parametrize("dtype", WHOLE_WORDS)
@settings(max_examples=examples(10))
@given(height=st.integers(1, 70), width=st.integers(1, 70))
def test_an_image_holds_its_texels(device: Device, dtype: str, height: int, width: int) -> None:
    needs_format(device, dtype)
    data = texels(dtype, Problem(height, width))
    image, buffer = device.images.upload(data, DTYPES[dtype]), device.upload(data)
    assert device.mismatches(image, buffer) == 0
    other = device.upload(np.zeros_like(data))
    device.bind_copy(image, other).run()
    assert device.mismatches(other, buffer) == 0


@pytest.mark.parametrize("dtype", WHOLE_WORDS)
def test_every_poisoned_texel_differs_until_it_is_written(device: Device, dtype: str) -> None:
    needs_format(device, dtype)
    problem = Problem(37, 29)
    data = np.minimum(texels(dtype, problem), 254)  # a byte of 255 is the poison's, too
    words = data.nbytes // 4
    image, buffer = device.images.allocate(problem, DTYPES[dtype]), device.upload(data)
    device.poison(image)
    assert device.mismatches(image, buffer) == words
    device.bind_copy(buffer, image).run()
    assert device.mismatches(image, buffer) == 0
    data.reshape(-1)[-1] += 1
    assert device.mismatches(image, device.upload(data)) == 1


FUZZ = pytest.mark.fuzz
FETCHED = [
    *(
        v
        for v in TEX.workload.variants
        if v.startswith("block-") and v not in TEX.workload.controls
    ),
    "morton-linear-mirror-written",
    "block-point-clamp-reduced",
]


def mappings_of(kernel: KernelFolder) -> Sequence[str]:
    """The first variant of each way to hand texels to threads."""
    return kernel.workload.default_variants[:4]


@pytest.mark.parametrize(
    ("kernel", "dtype", "variant"),
    [
        *((TEX, "float", v) for v in FETCHED),
        # Of the others a fuzz tries the modes in between.
        *(
            pytest.param(TEX, d, v, marks=() if v in FETCHED[:2] + FETCHED[-2:] else FUZZ)
            for d in ("float4", "unorm8")
            for v in FETCHED
        ),
        # What is written by place shows a texel in the wrong one.
        *((k, "float", m.replace("-one", "-place")) for k in (TEX, SURF) for m in mappings_of(k)),
        *((TEX, d, "row-plain") for d in ("float", "unorm8x4")),
        *((SURF, d, "block-one-plain") for d in ("float", "float4", "unorm8x4")),
    ],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
@settings(max_examples=examples(5))
@given(
    problem=st.builds(Problem, st.integers(1, 130), st.integers(1, 130)),
    block=st.tuples(st.integers(1, 64), st.integers(1, 16)),
    waves=st.integers(0, 3),
)
def test_every_texel_is_right_in_every_mode_and_mapping(
    device: Device,
    kernel: KernelFolder,
    dtype: str,
    variant: str,
    problem: Problem,
    block: tuple[int, int],
    waves: int,
) -> None:
    needs_format(device, dtype)
    params = (("block_x", block[0]), ("block_y", block[1]), ("waves", waves))
    cell = Cell(kernel.name, dtype, variant, problem, params)
    if kernel.workload.valid(cell) is not None:
        cell = replace(cell, params=params[:2])
    assert wrong_words(device, kernel, cell) == 0


REDUCED = Cell(
    TEX.name,
    "unorm8x4",
    "block-point-clamp-reduced",
    Problem(37, 29),
    (("block_x", 7), ("block_y", 5)),
)


def test_a_block_stores_what_its_texels_sum_up_to(device: Device) -> None:
    workload, problem = TEX.workload, REDUCED.problem
    launch = workload.launch(REDUCED)
    assert workload.bytes_moved(REDUCED) == (37 * 29 * 4, 4 * 5 * 8)
    rng = np.random.default_rng([3, 37, 29])
    src = workload.inputs(problem, REDUCED.dtype, rng)["src"]
    texels = np.zeros((8 * 5, 5 * 7), dtype=np.float32)
    texels[:37, :29] = workload.reference({"src": src})
    expected = texels.reshape(8, 5, 5, 7).sum(axis=(1, 3), dtype=np.float32)
    out = device.upload(np.zeros_like(expected))
    buffers = {"src": device.images.upload(src, DTYPES[REDUCED.dtype]), "dst": out}
    defines = workload.defines(REDUCED.dtype, REDUCED.variant)
    program = device.build(TEX.path, DTYPES[REDUCED.dtype], defines)
    device.bind(program, launch, buffers).run()
    assert device.mismatches(out, device.upload(expected)) == 0


def test_a_block_without_room_for_its_sums_is_refused() -> None:
    largest = replace(REDUCED, params=(("block_x", 64), ("block_y", 64)))
    assert TEX.workload.launch(largest).threads == 4096
    with pytest.raises(LaunchConfigError, match="4160 threads a block"):
        TEX.workload.launch(replace(largest, params=(("block_x", 64), ("block_y", 65))))


@pytest.mark.parametrize("wrong", ["< left - 1", "* 2 < left"])
def test_a_sum_that_is_left_out_is_found(device: Device, tmp_path: Path, wrong: str) -> None:
    shutil.copytree(TEX.path, tmp_path / TEX.name)
    for source in ("kernel.cl", "kernel.cu"):
        path = tmp_path / TEX.name / source
        text = path.read_text()
        assert text.count(" < left)") == 1
        path.write_text(text.replace(" < left)", f" {wrong})"))
    # One word for each of the 5 x 8 blocks: that of its first thread.
    assert wrong_words(device, load_kernel(tmp_path / TEX.name), REDUCED) == 40


@given(
    columns=st.integers(1, 300),
    rows=st.integers(1, 300),
    held=st.integers(1, 200),
    n=st.integers(1, 4),
)
def test_waves_have_blocks_of_even_work(columns: int, rows: int, held: int, n: int) -> None:
    covering = Launch("k", (columns, rows, 1), (8, 8, 1), (), columns * rows, n)
    bound = covering.in_waves(held)
    turns = -(-columns // bound.grid[0]) * -(-rows // bound.grid[1])
    assert bound.blocks <= min(columns * rows, n * held)
    assert turns <= 2 * -(-columns * rows // (n * held)) + 1
    assert replace(covering, waves=0).in_waves(held).grid == covering.grid


@pytest.mark.parametrize(("swept", "shown"), [([0, 1, 0], [0, 0]), ([1, 2], [1, 2])])
def test_the_map_of_shapes_is_of_grids_that_cover_the_image_where_there_are_any(
    monkeypatch: pytest.MonkeyPatch, swept: list[int], shown: list[int]
) -> None:
    drawn: list[int] = []
    monkeypatch.setattr(HeatMap, "draw", lambda _, data, svg: drawn.extend(data.cells["waves"]))
    cells = pd.DataFrame({"waves": pd.array(swept, dtype="Int64")})
    TEX.workload.views[0].draw(FigureData(TEX.name, ("float",), (), (), cells, ()), Path("x.svg"))
    assert drawn == shown


def test_a_row_counts_the_blocks_that_were_launched(device: Device) -> None:
    axes = {"block_x": [8], "block_y": [8], "waves": [0, 1]}
    runs = ended(device, SURF, few(SURF, ["block-one", "block-one-plain"], 800, 800, axes))
    units = device.info.multiprocessors
    found = {(r.cell["waves"], r.launch.blocks <= (r.resident_blocks or 1) * units) for r in runs}
    assert {r.status for r in runs} == {Status.OK}
    assert found == {(0, False), (1, True)}


def test_a_timed_loop_that_leaves_turns_out_is_found(device: Device, tmp_path: Path) -> None:
    """The proof's own loop is whole: it takes every texel, but the sums differ."""
    shutil.copytree(TEX.path, tmp_path / TEX.name)
    for source in ("kernel.cl", "kernel.cu"):
        path = tmp_path / TEX.name / source
        before, timed = path.read_text().split(" sum_texels(")
        timed = timed.replace("row += STEP_ROWS", "row += 2 * STEP_ROWS", 1)
        path.write_text(f"{before} sum_texels({timed}")
    axes = (("block_x", 16), ("block_y", 4), ("waves", 1))
    # More rows than the blocks of one wave take in one turn.
    height = 4096 if device.info.kind == "cpu" else 32768
    cell = Cell(TEX.name, "float", "block-point-clamp", Problem(height, 16), axes)
    assert wrong_words(device, TEX, cell) == 0
    assert wrong_words(device, load_kernel(tmp_path / TEX.name), cell) > 0


@pytest.mark.parametrize(("dtype", "words"), [("double", "double"), ("float3", "float3")])
def test_a_type_without_a_format_is_refused_by_name(device: Device, dtype: str, words: str) -> None:
    refusal = image_refusal(device, Problem(8, 8), DTYPES[dtype])
    assert refusal is not None
    assert words in refusal
    with pytest.raises(LaunchConfigError, match=words):
        device.images.allocate(Problem(8, 8), DTYPES[dtype])


SHAPES = {"block_x": [8, 64], "block_y": [4, 64]}


def few(
    kernel: KernelFolder,
    variants: Sequence[str],
    height: int = 16,
    width: int = 16,
    axes: Mapping[str, Sequence[int]] = SHAPES,
) -> list[Cell]:
    """The cells of a small sweep."""
    return enumerate_cells(kernel.name, "float", variants, [Problem(height, width)], axes)


@pytest.mark.parametrize("kernel", [TEX, SURF], ids=lambda f: f.name)
def test_too_large_an_image_costs_its_cells(device: Device, kernel: KernelFolder) -> None:
    assert device.info.max_image is not None
    variants, most = mappings_of(kernel)[:2], device.info.max_image[0]
    runs = ended(device, kernel, few(kernel, variants) + few(kernel, variants, 1, most + 1))
    found = Counter((r.cell.problem.height, r.status) for r in runs)
    assert found == {
        (16, Status.OK): 6,
        (16, Status.TOO_MANY_THREADS): 2,
        (1, Status.OUT_OF_RESOURCES): 6,
        (1, Status.TOO_MANY_THREADS): 2,
    }
    for run in runs:
        if run.status is Status.OUT_OF_RESOURCES:
            assert run.message is not None
            assert "too large; the device takes" in run.message


def test_without_images(opencl_device: OpenCLDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opencl_device, "images", None)
    runs = ended(opencl_device, TEX, few(TEX, mappings_of(TEX)[:1]))
    refused = [r for r in runs if r.status is Status.OUT_OF_RESOURCES]
    assert [r.message for r in refused] == ["the device has no images"] * 3
    copy = KERNELS["copy2d_coalesced"]
    runs = ended(opencl_device, copy, few(copy, ["element"]))
    assert Counter(r.status for r in runs) == {Status.OK: 3, Status.TOO_MANY_THREADS: 1}


@pytest.mark.gpu
def test_an_image_that_does_not_fit_the_memory_is_said(cuda_device: Device) -> None:
    """65,536 x 131,072 float4 are 128 GiB: within the limits of images, not of four in a memory."""
    largest = Problem(65536, 131072)
    with pytest.raises(OutOfDeviceMemoryError):
        [cuda_device.images.allocate(largest, DTYPES["float4"]) for _ in range(4)]
