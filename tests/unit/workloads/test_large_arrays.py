"""Large arrays in `tune`: passed in memory, compared to their last element, and not left behind."""

import gc
import math
import os
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import gpushmoo
import ml_dtypes
import numpy as np
import pytest
from calls import grouped
from conftest import environment
from fakes import FakeDevice
from gpushmoo.core.paths import KERNELS
from gpushmoo.core.space import Problem
from gpushmoo.devices.memory import Deviation, Output, Tolerance, deviation, words_of
from gpushmoo.measuring.cell_memory import open_space
from gpushmoo.workloads import call, tolerances, unnamed
from gpushmoo.workloads.loader import load_kernel, source_files
from gpushmoo.workloads.tolerances import Limit
from gpushmoo.workloads.unnamed import (
    UnnamedFile,
    available_bytes,
    file_of,
    is_unnamed,
    unnamed_file,
)

N = 4099
# A KIND but 0 is wrong at the last element alone, or leaves out what follows an index of 8 bits.
SOURCE = """
__kernel void twice(__global uchar *y, __global const uchar *x, const ulong n)
{
    const ulong i = get_global_id(0);
    if (i >= n)
        return;
    if (KIND == 2)
        y[(uchar)i] = 2 * x[(uchar)i];
    else
        y[i] = 2 * x[i] + (KIND == 1 && i == n - 1);
}
"""
X = np.random.default_rng(5).integers(0, 100, N, np.uint8)
# A call of arrays in memory. The measuring process writes the files that it finds, and kills its
# caller, or, once, itself.
CALL = """
import os, signal, sys
from pathlib import Path
import numpy as np
import gpushmoo
from gpushmoo.workloads import call

call.LARGE = 0
main, note, whom = os.getpid(), Path(sys.argv[1]), sys.argv[2]

def block(values):
    if os.getpid() != main and not note.exists():
        links = [os.readlink(f"/proc/{main}/fd/{n}") for n in os.listdir(f"/proc/{main}/fd")]
        note.write_text(f"{os.getpid()} {sum('memfd:gpushmoo' in link for link in links)}")
        os.kill(main if whom == "caller" else os.getpid(), signal.SIGKILL)
    return values["block_x"]

text = "__kernel void f(__global int *x) { x[get_global_id(0)] = 1; }"
x, y = np.zeros(64, np.int32), np.ones(64, np.int32)
made = gpushmoo.tune(text, "f", [x], 64, {"block_x": [8]},
                     launch=gpushmoo.LaunchConfig(block=block), check=gpushmoo.Check([y]),
                     backend="opencl", progress=False)
print(made.statuses)
"""


def tuned(**asked: Any) -> gpushmoo.Tuned:
    asked = {"expect": {"y": 2 * X}, "max_samples": 6, "min_samples": 6, "kind": [0], **asked}
    axes = {"block_x": [64], "KIND": asked.pop("kind")}
    usual = {"y": np.zeros(N, np.uint8), "x": X, "n": np.uint64(N)}
    arguments = asked.pop("arguments", usual)
    return gpushmoo.tune(
        SOURCE, "twice", arguments, N, axes, backend="opencl", progress=False, **grouped(**asked)
    )


@pytest.fixture
def passed(monkeypatch: pytest.MonkeyPatch) -> list[UnnamedFile | None]:
    """All arrays are passed as large ones; the files that were made for them."""
    made: list[UnnamedFile | None] = []

    def noted(nbytes: int) -> UnnamedFile | None:
        made.append(unnamed_file(nbytes))
        return made[-1]

    monkeypatch.setattr(call, "LARGE", 0)
    monkeypatch.setattr(call, "unnamed_file", noted)
    return made


def closed(files: list[UnnamedFile | None]) -> bool:
    return all(file is None or not file.close.alive for file in files)


def test_a_call_passes_arrays_in_memory_which_go_with_its_result(
    passed: list[UnnamedFile | None],
) -> None:
    result = tuned()
    assert set(result.statuses) == {"ok"}
    # The input and what is expected.
    assert len(passed) == 2
    assert all(file is not None and "memfd" in os.readlink(file.path) for file in passed)
    ends = [file.close for file in passed if file is not None]
    passed.clear()
    del result
    gc.collect()
    assert not any(end.alive for end in ends)


def test_a_call_that_fails_or_is_interrupted_keeps_no_memory(
    passed: list[UnnamedFile | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("gpushmoo.interactive.measure._measure", interrupted)
    with pytest.raises(KeyboardInterrupt) as kept:
        tuned()
    assert kept.value is not None
    assert passed
    assert closed(passed)


@pytest.mark.parametrize("lacking", ["memory", "memfd", "processes"])
def test_without_memory_to_pass_arrays_in_files_are_used(
    lacking: str, passed: list[UnnamedFile | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    if lacking == "memory":
        monkeypatch.setattr(unnamed, "available_bytes", lambda: 0)
    elif lacking == "memfd":
        monkeypatch.delattr(os, "memfd_create")
    else:
        monkeypatch.setattr(unnamed, "_PROCESSES", "/none")
    result = tuned(kind=[0, 1])
    assert sorted(result.cells["status"]) == ["ok", "wrong_result"]
    has_files = lacking != "processes"
    assert all((file is not None) == has_files for file in passed)
    assert all("memfd" not in os.readlink(file.path) for file in passed if file is not None)


def test_a_wrong_last_element_and_an_index_that_overflows_are_found(
    passed: list[UnnamedFile | None],
) -> None:
    cells = tuned(kind=[0, 1, 2]).cells.set_index("KIND")
    assert cells["status"].to_dict() == {0: "ok", 1: "wrong_result", 2: "wrong_result"}
    assert f"[{N - 1}]" in cells["message"][1]
    assert "[256]" in cells["message"][2]
    assert "never written" in cells["message"][2]


def test_a_folder_of_a_call_has_the_arrays_and_its_digest_counts_them(
    passed: list[UnnamedFile | None], tmp_path: Path
) -> None:
    result = tuned()
    folder = result.to_folder(tmp_path / "kernels")
    files = [folder / "arrays" / "x.npy", folder / "expected" / "y.npy"]
    assert not any(map(is_unnamed, files))
    assert np.array_equal(np.load(files[0]), X)
    assert np.array_equal(np.load(files[1]), 2 * X)
    before = load_kernel(folder).digest(".cl")
    np.save(files[0], X + np.uint8(1))
    assert load_kernel(folder).digest(".cl") != before
    # While the call runs, nobody reads all of its arrays for a digest.
    held = result._swept.folder.path
    assert (held / "arrays" / "x.npy").is_file()
    assert not any(path.suffix == ".npy" for path in source_files(held))


def test_no_array_is_searched_for_includes(tmp_path: Path) -> None:
    folder = tuned().to_folder(tmp_path / "kernels")
    (folder / "kernel.cu").write_text("// of another backend\n", encoding="utf-8")
    before = load_kernel(folder).digest(".cl")
    named = np.frombuffer(b'\n#include "kernel.cu"\n'.ljust(N, b"\n"), np.uint8)
    np.save(folder / "arrays" / "x.npy", named)
    with_text = load_kernel(folder).digest(".cl")
    assert with_text != before
    (folder / "kernel.cu").write_text("__global__ void f() {}\n", encoding="utf-8")
    assert load_kernel(folder).digest(".cl") == with_text


@pytest.mark.slow
@pytest.mark.parametrize("whom", ["caller", "measuring process"])
def test_after_a_kill_no_memory_is_left(whom: str, tmp_path: Path) -> None:
    note = tmp_path / "note"
    done = subprocess.run(
        [sys.executable, "-c", CALL, str(note), whom],
        env=environment(TMPDIR=str(tmp_path)),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    process, count = map(int, note.read_text(encoding="utf-8").split())
    assert count == 1
    if whom == "caller":
        assert done.returncode == -signal.SIGKILL
    else:
        # Another process has measured the same arrays.
        assert "ok" in done.stdout, done.stderr
    # Memory without a name is gone with the last of its processes.
    while os.path.exists(f"/proc/{process}"):
        time.sleep(0.05)
    assert not [name for name in os.listdir("/dev/shm") if "gpushmoo" in name]


@pytest.mark.parametrize(
    ("grid", "said"),
    [
        (2**31, f"grid x has {2**31} blocks, a launch at most {2**31 - 1}"),
        ((1, 2**31, 1), "grid y has"),
        ((2**31 - 1,) * 3, "blocks"),
    ],
)
def test_more_blocks_than_a_launch_has_are_refused_before_anything_runs(
    grid: Any, said: str
) -> None:
    with pytest.warns(UserWarning, match="blocks"):
        cells = tuned(grid=grid).cells
    assert cells["status"].tolist() == ["out_of_resources"]
    assert said in cells["message"][0]
    assert "larger blocks" in cells["message"][0]


@pytest.mark.parametrize("size", [*range(1, 10), 4096])
def test_words_of_an_array_are_padded_and_not_copied(size: int) -> None:
    array = np.arange(size, dtype=np.uint8)
    words, last = words_of(array)
    assert words.size == 0 or np.shares_memory(words, array)
    held = np.concatenate([words, last]).view(np.uint8)
    assert held.size % 4 == 0
    assert held[:size].tolist() == array.tolist()
    assert set(held[size:].tolist()) <= {255}


def test_a_count_of_wrong_elements_that_overflows_is_not_zero() -> None:
    within = Tolerance(Limit(atol=1.0), 2**32, np.dtype(np.float32), None)
    output = Output(None, None, within)
    words = np.array([0, np.float32(7).view(np.uint32)], np.uint32)
    assert deviation(output, words).wrong
    assert deviation(output, np.zeros(2, np.uint32)) == Deviation(0, 0.0)


def test_an_expected_value_that_does_not_fit_is_named_in_a_later_part(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tolerances, "_PART", 64)
    expect = X.astype(np.int64)
    expect[-2] = 256
    with pytest.raises(gpushmoo.ConfigError, match=rf"256 at \[{N - 2}\]"):
        tuned(expect={"y": expect})


def test_the_memory_that_is_available_is_known_here() -> None:
    assert 2**20 < available_bytes() < os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def test_bounds_of_each_element_are_passed_as_arrays_are(
    passed: list[UnnamedFile | None], tmp_path: Path
) -> None:
    bounds = np.zeros(N)
    bounds[-1] = 1
    result = tuned(kind=[0, 1], atol=bounds)
    assert set(result.statuses) == {"ok"}
    assert len(passed) == 3
    folder = result.to_folder(tmp_path / "kernels")
    assert np.array_equal(np.load(folder / "bounds" / "y.npy"), bounds)
    # None is in the pickle.
    assert (folder / "workload.pickle").stat().st_size < bounds.nbytes
    again = gpushmoo.sweep(folder, backend="opencl", min_samples=6, max_samples=6, progress=False)
    assert set(again.statuses) == {"ok"}


def test_memory_of_a_problem_is_free_before_that_of_the_next_is_taken() -> None:
    workload = load_kernel(KERNELS / "copy2d_coalesced").workload
    live = weakref.WeakSet[Any]()
    # Python's own collection comes at any time.
    gc.disable()
    try:
        for _ in range(3):
            space = open_space(
                FakeDevice(), workload, Problem(8, 8), "float", workload.variants[0], 1
            )
            live.add(space)
            del space
        assert len(live) == 1
    finally:
        gc.enable()


class OnGpu:
    """An array as CuPy's: `get` copies it to the host, into `out` if that has its form."""

    def __init__(self, held: Any, takes_out: bool = True) -> None:
        self._held, self._takes_out = held, takes_out
        self.shape, self.dtype, self.nbytes = held.shape, held.dtype, held.nbytes
        self.copies: list[Any] = []

    def get(self, *asked: Any, **named: Any) -> Any:
        """As `cupy.ndarray.get`, or without `out` as PyOpenCL's arrays."""
        out = named.pop("out", None)
        if asked or named or (out is not None and not self._takes_out):
            raise TypeError("get() got an unexpected keyword argument")
        if out is None:
            out = np.empty(self.shape, self.dtype)
        assert type(out) is np.ndarray
        assert (out.shape, out.dtype, out.flags.c_contiguous) == (self.shape, self.dtype, True)
        out[...] = self._held
        self.copies.append(out)
        return out


def on_gpu(takes_out: bool = True) -> dict[str, OnGpu]:
    made = {"y": np.zeros(N, np.uint8), "x": X, "expected": 2 * X}
    return {name: OnGpu(array, takes_out) for name, array in made.items()}


def tuned_on_gpu(arrays: Mapping[str, OnGpu], **asked: Any) -> gpushmoo.Tuned:
    given = {"y": arrays["y"], "x": arrays["x"], "n": np.uint64(N)}
    return tuned(arguments=given, expect={"y": arrays["expected"]}, **asked)


def test_arrays_of_a_gpu_are_copied_once_into_the_memory_that_is_passed_on(
    passed: list[UnnamedFile | None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    arrays = on_gpu()
    monkeypatch.setattr(np, "save", Mock(side_effect=AssertionError))
    result = tuned_on_gpu(arrays, kind=[0, 1])
    assert sorted(result.cells["status"]) == ["ok", "wrong_result"]
    assert all(len(one.copies) == 1 and file_of(one.copies[0]) for one in arrays.values())
    folder = result.to_folder(tmp_path / "kernels")
    assert np.array_equal(np.load(folder / "arrays" / "x.npy"), X)
    assert np.array_equal(np.load(folder / "expected" / "y.npy"), 2 * X)


def test_their_memory_goes_with_the_result(passed: list[UnnamedFile | None]) -> None:
    arrays = on_gpu()
    result = tuned_on_gpu(arrays)
    ends = [getattr(file_of(one.copies[0]), "close", None) for one in arrays.values()]
    arrays.clear()
    gc.collect()
    # Of `y` nobody reads the content.
    assert [end and end.alive for end in ends] == [False, True, True]
    del result
    gc.collect()
    assert not any(end and end.alive for end in ends)


@pytest.mark.parametrize("lacking", ["out", "size", "memory", "room"])
def test_arrays_of_a_gpu_are_copied_as_they_can(
    lacking: str, passed: list[UnnamedFile | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    if lacking == "size":
        monkeypatch.setattr(call, "LARGE", 2**24)
    elif lacking == "memory":
        monkeypatch.setattr(unnamed, "_PROCESSES", "/none")
    elif lacking == "room":
        monkeypatch.setattr(os, "posix_fallocate", Mock(side_effect=OSError("no space")))
    arrays = on_gpu(takes_out=lacking != "out")
    assert set(tuned_on_gpu(arrays).statuses) == {"ok"}
    assert not any(file_of(copy) for one in arrays.values() for copy in one.copies)


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16, np.int64, np.bool_])
@pytest.mark.parametrize("shape", [(6,), (2, 3), ()])
def test_an_array_to_pass_on_is_read_from_its_file(
    kind: Any, shape: tuple[int, ...], passed: list[UnnamedFile | None]
) -> None:
    array = call.array_to_pass(shape, np.dtype(kind))
    assert array is not None
    array[...] = np.ones(shape, kind)
    file = file_of(array.reshape(-1))
    assert file is not None
    # As the measuring process does.
    read = np.load(file.path, mmap_mode="r").view(kind)
    assert read.shape == shape
    assert np.array_equal(read.astype(float), np.ones(shape))
    # Of a part the file is another one's.
    assert math.prod(shape) == 1 or file_of(array.reshape(-1)[1:]) is None
    assert file_of(np.ones(3)) is None
    assert call.array_to_pass((4,), np.dtype([("a", "i4"), ("b", "i4")])) is None


COPY = """
#if KIND
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif
__kernel void same(__global E *y, __global const E *x, const ulong n)
{
    const ulong i = get_global_id(0);
    if (i < n)
        y[i] = x[i];
}
"""
ELEMENTS = {"uint8": "uchar", "int32": "int", "float16": "ushort", "float32": "float"}


@pytest.mark.parametrize("kind", [*ELEMENTS, "float64"])
@pytest.mark.parametrize("off", [2, 8])
def test_the_worst_error_of_each_kind_of_element_is_that_of_its_values(kind: str, off: int) -> None:
    x = (np.arange(300) % 100).astype(kind)
    expected = x + x.dtype.type(2)
    expected[-1] = x[-1] + off
    if x.dtype.kind == "f":
        # A value without a power of its own, and an infinity.
        x[0], expected[0] = np.finfo(kind).smallest_subnormal, 0
        x[1] = expected[1] = np.inf
    cells = gpushmoo.tune(
        COPY.replace("E *", f"{ELEMENTS.get(kind, 'double')} *"),
        "same",
        {"y": np.zeros_like(x), "x": x, "n": np.uint64(x.size)},
        x.size,
        {"block_x": [50], "KIND": [int(kind == "float64")]},
        check=gpushmoo.Check({"y": expected}, atol=2),
        backend="opencl",
        min_samples=6,
        max_samples=6,
        progress=False,
    ).cells
    assert cells["status"].tolist() == ["ok" if off == 2 else "wrong_result"]
    assert cells["worst_error"].tolist() == pytest.approx([off / 2], rel=1e-3)
