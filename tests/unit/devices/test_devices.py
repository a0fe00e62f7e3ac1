"""Both backends keep the protocol: the same tests run on OpenCL here and on CUDA where it is."""

import re
import time
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bench import wrong_words
from conftest import ROOT, USER_CUDA, USER_OPENCL, examples
from covering import crossed
from dot_products.workloads import PUBLISHED
from gpushmoo.core.backends import BACKENDS
from gpushmoo.core.dtypes import DTYPES
from gpushmoo.core.errors import (
    BuildError,
    LaunchConfigError,
    NoDeviceError,
    OutOfDeviceMemoryError,
)
from gpushmoo.core.space import CONDITIONS, Cell, Condition, Problem, Residency, expand_axis
from gpushmoo.devices.base import Device, DeviceInfo, Sample, image_refusal
from gpushmoo.devices.memory import OutOfBoundsWrites, zone_bytes
from gpushmoo.devices.select import DeviceChoice, resolve
from gpushmoo.workloads.contract import BufferRef, Launch, ReducingWorkload
from gpushmoo.workloads.loader import find_kernels, load_kernel
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

KERNELS = {n: load_kernel(p) for n, p in find_kernels([ROOT / "kernels"]).items()}


def test_words_are_counted_copied_and_read(device: Device) -> None:
    data = np.random.default_rng(1).random(1000, dtype=np.float32).view(np.uint32)
    buffer, expected = device.upload(data), device.upload(data)
    assert device.mismatches(buffer, expected) == 0
    device.poison(buffer)
    assert device.mismatches(buffer, expected) == 1000
    for place in (0, 1, 998, 999):
        other = data.copy()
        other[place] ^= 1
        assert device.mismatches(expected, device.upload(other)) == 1
    data = np.arange(1001, dtype=np.uint32)
    source, target = device.upload(data), device.upload(np.zeros_like(data))
    device.bind_copy(source, target).run()
    assert device.mismatches(target, source) == 0
    assert device.words(target, 990, 10).tolist() == list(range(990, 1000))
    # A copy that goes on past both ends would else write what stands there already.
    one, other = device.allocate(512), device.allocate(512)
    whole = [getattr(buffer, "whole", None) or buffer.base for buffer in (one, other)]
    words = [device.words(w, 0, 1)[0] for w in whole]
    assert words[0] != words[1]


@pytest.mark.parametrize("words", [1, 127, 128, 129, 65535, 65536, 2**19, 2**21, 2**21 + 1])
def test_buffers_keep_their_alignment_and_no_one_strayed_yet(device: Device, words: int) -> None:
    buffers = [device.allocate(4 * words), device.upload(np.zeros(words, np.uint32))]
    device.poison(buffers[0])
    device.bind_copy(buffers[1], buffers[0]).run()
    assert device.strays(buffers) == [OutOfBoundsWrites(0, 0)] * 2
    zone = zone_bytes(4 * words)
    assert zone % (2**21 if 4 * words >= 2**18 else 512) == 0
    assert min(4 * words, 2**24) <= zone <= 4 * words + 2**21


STRAY = """
KERNEL void stray(GLOBAL unsigned *data, const SIZE at, const SIZE n)
{
    for (SIZE i = 0; i < n; ++i) data[at + i] = 7;
}
"""
STRAYED = [
    (0, 100, OutOfBoundsWrites(0, 0)),
    (0, 101, OutOfBoundsWrites(0, 1)),
    (100, 100, OutOfBoundsWrites(0, 100)),
    (-1, 2, OutOfBoundsWrites(1, 0)),
    (-100, 300, OutOfBoundsWrites(100, 100)),
]


@pytest.mark.parametrize(("at", "n", "found"), STRAYED)
def test_words_written_around_a_buffer_are_counted_and_mended(
    device: Device, tmp_path: Path, at: int, n: int, found: OutOfBoundsWrites
) -> None:
    launch = stray(device, tmp_path)
    buffer, other = device.upload(np.zeros(100, np.uint32)), device.allocate(400)
    launch(buffer, at, n)
    assert device.strays([other, buffer]) == [OutOfBoundsWrites(0, 0), found]
    device.guard(buffer)
    assert device.strays([buffer]) == [OutOfBoundsWrites(0, 0)]


@pytest.mark.parametrize("words", [2**16, 2**20])
def test_a_whole_array_past_the_end_is_counted(device: Device, tmp_path: Path, words: int) -> None:
    buffer = device.upload(np.zeros(words, np.uint32))
    stray(device, tmp_path)(buffer, words, words)
    assert device.strays([buffer]) == [OutOfBoundsWrites(0, words)]


def stray(device: Device, folder: Path) -> Callable[[Any, int, int], None]:
    """Writes so many words from a place in or near a buffer on."""
    cuda = '#define KERNEL extern "C" __global__\n#define GLOBAL\n#define SIZE long long\n'
    opencl = "#define KERNEL __kernel\n#define GLOBAL __global\n#define SIZE long\n"
    (folder / "kernel.cu").write_text(cuda + STRAY)
    (folder / "kernel.cl").write_text(opencl + STRAY)
    program = device.build(folder, DTYPES["float"], {})

    def run(buffer: Any, at: int, n: int) -> None:
        args = (BufferRef("data"), np.int64(at), np.int64(n))
        launch = Launch("stray", (1, 1, 1), (1, 1, 1), args, 1)
        device.bind(program, launch, {"data": buffer}).run()

    return run


@settings(max_examples=examples(20), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), n=st.integers(1, 3000))
def test_any_changed_word_changes_the_checksum(device: Device, data: st.DataObject, n: int) -> None:
    words = np.random.default_rng(n).integers(0, 2**32, n, dtype=np.uint32)
    other = words.copy()
    other[data.draw(st.integers(0, n - 1))] ^= data.draw(st.integers(1, 2**32 - 1))
    one, same, changed = device.checksums([device.upload(a) for a in (words, words, other)])
    assert one == same != changed


@settings(max_examples=examples(24))
@given(
    dtype=st.sampled_from(["float", "double", "float3", "float4"]),
    variant=st.sampled_from(["element", "tile32"]),
    height=st.integers(1, 150),
    width=st.integers(1, 150),
    block_x=st.integers(1, 64),
    block_y=st.integers(1, 16),
)
def test_copy2d_is_right_for_any_shape(
    device: Device, dtype: str, variant: str, height: int, width: int, block_x: int, block_y: int
) -> None:
    params = (("block_x", block_x), ("block_y", block_y))
    cell = Cell("copy2d_coalesced", dtype, variant, Problem(height, width), params)
    assert wrong_words(device, KERNELS[cell.kernel], cell) == 0


@settings(max_examples=examples(24))
@given(
    dtype=st.sampled_from(["float", "double", "float3", "float4"]),
    variant=st.sampled_from(["exact", "reciprocal"]),
    height=st.integers(1, 200),
    width=st.integers(1, 300),
    blocks=st.integers(1, 40),
)
def test_block_eq_partition_is_right_for_any_size(
    device: Device, dtype: str, variant: str, height: int, width: int, blocks: int
) -> None:
    params = (("num_partition", blocks),)
    cell = Cell("block_eq_partition", dtype, variant, Problem(height, width), params)
    assert wrong_words(device, KERNELS[cell.kernel], cell) == 0


# test_gallery, test_dot_products and test_images try every variant of their first type.
ELSEWHERE = {
    "stream",
    "stream_dot",
    "reduce_sum",
    "stencil5",
    "gather_stride",
    "store_columns",
    "chase",
    "dispatch",
    "issue",
    "dot_resident",
    "dot_square",
    "dot_streamed",
    "surf2d_memset",
    "tex2d_sum",
}


def every_build() -> Iterator[Any]:
    """The first build of a kernel at both ends of its axes and with a single element, too.

    All others at the far end: a CPU's runtime compiles again for each further size of a block.
    """
    for name, w in ((name, folder.workload) for name, folder in KERNELS.items()):
        variants = w.default_variants or w.variants
        for dtype, variant, marks in crossed(w, variants):
            first = (dtype, variant) == (w.dtypes[0], variants[0])
            if name in ELSEWHERE and dtype == w.dtypes[0] and not marks:
                marks = pytest.mark.fuzz
            for problem in (Problem(61, 130), Problem(1, 1)) if first else (Problem(61, 130),):
                yield pytest.param(
                    name,
                    dtype,
                    variant,
                    problem,
                    (1, -1) if first else (-1,),
                    id=f"{name}-{dtype}-{variant}-{problem.width}",
                    marks=marks,
                )


@pytest.mark.parametrize(("kernel", "dtype", "variant", "problem", "ends"), [*every_build()])
def test_every_kernel_is_right_at_the_ends_of_its_axes(
    device: Device, kernel: str, dtype: str, variant: str, problem: Problem, ends: tuple[int, ...]
) -> None:
    # PoCL has no images of two channels.
    if dtype == "float2" and image_refusal(device, problem, DTYPES[dtype]) is not None:
        pytest.skip("this runtime has no images of two channels")
    axes = {
        name: expand_axis(spec, Residency(device.info.multiprocessors, 1))
        for name, spec in KERNELS[kernel].workload.axes.items()
    }
    workload = KERNELS[kernel].workload
    for step in ends:
        points = product(*(axes[name][::step] for name in sorted(axes)))
        every = (tuple(zip(sorted(axes), point, strict=True)) for point in points)
        cells = (Cell(kernel, dtype, variant, problem, params) for params in every)
        cell = next((c for c in cells if workload.valid(c) is None), None)
        if cell is None:
            pytest.skip("none of its launches fits so small a problem")
        called = isinstance(workload, ReducingWorkload) and workload.library(cell) is not None
        if called and device.info.backend != "cuda":
            pytest.skip("the library is CUDA's")
        if variant == PUBLISHED and problem.height * problem.width < 4:
            pytest.skip("the printed loop launches nothing for fewer than 4 elements")
        if workload.launch(cell).threads <= device.info.max_threads_per_block:
            assert wrong_words(device, KERNELS[cell.kernel], cell) == 0


def index_test(device: Device, variant: str, tiles_x: int, tiles_y: int) -> int:
    """Words that block_eq_partition misses when its tiles are one element: a grid without memory.

    Tiles of 1 × 1 exercise the index arithmetic of a grid that would else take gigabytes.
    """
    folder = KERNELS["block_eq_partition"]
    program = device.build(folder.path, DTYPES["float"], {"TILE_X": "1", "TILE_Y": "1"})
    data = np.random.default_rng(4).random((tiles_y, tiles_x), dtype=np.float32)
    buffers = {"src": device.upload(data), "dst": device.upload(data)}
    device.poison(buffers["dst"])
    args = (
        BufferRef("dst"),
        BufferRef("src"),
        np.uint32(tiles_x),
        np.uint32(tiles_y),
        np.uint32(tiles_x),
        np.uint32(tiles_x * tiles_y),
    )
    if variant == "reciprocal":
        args += (np.float32((1.0 + np.float64(np.float32(1e-6))) / tiles_x),)
    launch = Launch(f"copy_{variant}", (64, 1, 1), (1, 1, 1), args, tiles_x * tiles_y)
    device.bind(program, launch, buffers).run()
    return device.mismatches(buffers["dst"], device.upload(data))


def test_float_reciprocal_breaks_in_large_grids_and_exact_does_not(device: Device) -> None:
    # 1.2 million tiles: past 10⁶ the surplus of a millionth is a whole tile row.
    assert index_test(device, "exact", 3000, 400) == 0
    assert index_test(device, "reciprocal", 3000, 400) > 0
    assert index_test(device, "reciprocal", 3000, 200) == 0


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A folder with the kernels of a user."""
    (tmp_path / "kernel.cu").write_text(USER_CUDA)
    (tmp_path / "kernel.cl").write_text(USER_OPENCL)
    return tmp_path


def test_what_does_not_build_or_fit_is_refused(device: Device, sources: Path) -> None:
    with pytest.raises(BuildError) as caught:
        device.build(sources, DTYPES["float"], {"BROKEN": "1"})
    assert "does not compile" in str(caught.value)
    assert re.search(r"\bthis\b|unknown type", caught.value.log)
    (sources / "empty").mkdir()
    with pytest.raises(BuildError, match=r"has no kernel\.c"):
        device.build(sources / "empty", DTYPES["float"], {})
    program = device.build(sources, DTYPES["float"], {})
    buffer = device.upload(np.zeros(4, dtype=np.float32))
    launch = Launch("absent", (1, 1, 1), (1, 1, 1), (BufferRef("dst"),), 1)
    with pytest.raises(BuildError, match="absent"):
        device.bind(program, launch, {"dst": buffer})
    threads = device.info.max_threads_per_block + 1
    launch = Launch("copy_good", (1, 1, 1), (threads, 1, 1), (), 1)
    with pytest.raises(LaunchConfigError, match=str(device.info.max_threads_per_block)):
        device.bind(program, launch, {})


@pytest.mark.parametrize("pinned", [True, False])
@pytest.mark.parametrize("shape", [(0,), (1,), (1021,), (7, 11)])
def test_host_array_is_a_flat_copy(device: Device, shape: tuple[int, ...], pinned: bool) -> None:
    data = np.random.default_rng(6).random(shape)
    held = device.streams.host_array(data, pinned)
    assert held.dtype == data.dtype
    assert held.tolist() == data.reshape(-1).tolist()
    held += 1
    assert not np.any(held == data.reshape(-1))


@pytest.mark.parametrize("pinned", [True, False])
def test_stream_takes_a_part_of_a_host_array_there_and_back(device: Device, pinned: bool) -> None:
    data = device.streams.host_array(np.arange(1000, dtype=np.float32), pinned)
    back = np.zeros(101, np.float32)
    with device.streams.open() as stream:
        buffer = stream.allocate(4 * 200)
        stream.copy_in(buffer, data[400:501])
        stream.copy_out(back, buffer)
        stream.wait()
    assert back.tolist() == list(range(400, 501))


def test_streams_run_beside_each_other_and_each_in_its_order(device: Device, sources: Path) -> None:
    program = device.build(sources, DTYPES["float"], {})
    args = (BufferRef("dst"), BufferRef("src"), np.uint64(2000))
    launch = Launch("copy_good", (40, 1, 1), (50, 1, 1), args, 2000)
    streams = [device.streams.open() for _ in range(5)]
    data = np.arange(1, 6, dtype=np.float32).repeat(2000).reshape(5, 2000)
    back = np.zeros_like(data)
    for i, stream in enumerate(streams):
        buffers = {"src": stream.allocate(8000), "dst": stream.allocate(8000)}
        stream.copy_in(buffers["src"], data[i])
        stream.launch(program, launch, buffers)
        stream.copy_out(back[i], buffers["dst"])
    for stream in streams:
        stream.__exit__()
    assert np.array_equal(back, data)


def test_stream_refuses_what_does_not_fit_and_goes_on(device: Device) -> None:
    with device.streams.open() as stream:
        with pytest.raises(OutOfDeviceMemoryError):
            stream.allocate(2**45)
        buffer, back = stream.allocate(8), np.zeros(1)
        stream.copy_in(buffer, np.ones(1))
        stream.copy_out(back, buffer)
        stream.wait()
        assert back[0] == 1


@pytest.mark.parametrize("launches", [1, 10])
def test_sample_is_the_time_of_one_launch(device: Device, launches: int) -> None:
    """However busy the machine is, the launches cannot have taken longer than the call did."""
    data = np.random.default_rng(5).random(2**22, dtype=np.float32)
    source, target = device.upload(data), device.upload(data)
    bound = device.bind_copy(source, target)
    bound.sample(launches)  # captures the graph
    before = time.perf_counter()
    seconds = bound.sample(launches)
    assert 0.0 < seconds * launches <= time.perf_counter() - before


@pytest.mark.parametrize("met", CONDITIONS, ids="-".join)
@pytest.mark.parametrize("launches", [1, 3])
def test_every_timing_mode_takes_time(device: Device, launches: int, met: Condition) -> None:
    if met.timing_mode not in BACKENDS[device.info.backend].timing_modes:
        pytest.skip(f"{device.info.backend} has no such launches")
    data = np.random.default_rng(5).random(2**16, dtype=np.float32)
    source, target = device.upload(data), device.allocate(data.nbytes)
    bound = device.bind_copy(source, target)
    alone = bound.sample(launches, met)
    together = device.sample_all([Sample(bound, 2, met)] * 3)
    assert all(isinstance(s, float) and s > 0.0 for s in (alone, *together))
    assert device.mismatches(target, source) == 0


@pytest.mark.parametrize(("gpus", "tried"), [(0, "opencl"), (1, "cuda")])
def test_auto_probes_a_backend_that_seems_to_have_no_device_after_the_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, gpus: int, tried: str
) -> None:
    def answers_none(choice: DeviceChoice) -> DeviceInfo:
        probed.append(choice.backend)
        raise NoDeviceError("none")

    probed: list[str] = []
    monkeypatch.setattr("gpushmoo.devices.cuda.backend.count_devices", lambda: gpus)
    with pytest.raises(NoDeviceError):
        resolve(DeviceChoice("auto", 0, "auto", tmp_path), answers_none)
    assert probed[0] == tried
    assert {"cuda", "opencl"} == set(probed)
