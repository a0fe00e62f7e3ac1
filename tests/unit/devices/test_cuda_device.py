"""The CUDA backend on a CuPy that computes nothing: all that it calls is there."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
from dot_products.in_turn import bind_in_turn
from fake_cupy import FACTS, fake_cupy
from gpushmoo.core.dtypes import DTYPES
from gpushmoo.core.space import TIMING_MODES, USUAL, Condition, Problem
from gpushmoo.devices.base import Sample, TimedInterval, bind_library, set_constants
from gpushmoo.devices.cuda import backend, library
from gpushmoo.devices.memory import Deviation, Output, ProofBuffers, Tolerance
from gpushmoo.workloads.contract import BufferRef, Launch, LibraryCall
from gpushmoo.workloads.host_fed import FedInTurn, Piece
from gpushmoo.workloads.tolerances import Limit

SOURCE = """
__constant__ float taps[2];
extern "C" __global__ void k(float *x, unsigned long long n) { x[0] = taps[0]; }
"""
LAUNCH = Launch("k", (8, 1, 1), (64, 1, 1), (BufferRef("x"), np.uint64(3)), tiles=8)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Keeps what NVRTC has compiled."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def device(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setitem(sys.modules, "cupy", fake_cupy(is_hip=False))
    return backend.open_device(0, "auto", cache)


@pytest.fixture
def program(device: Any, tmp_path: Path) -> Any:
    (tmp_path / "kernel.cu").write_text(SOURCE)
    return device.build(tmp_path, DTYPES["float"], {})


def test_a_device_has_what_cuda_has(device: Any) -> None:
    assert (device.target, device.info.uuid) == ("sm_90", f"GPU-{FACTS['uuid'].hex()}")
    lacking = {"power"}  # without NVML
    has = ("batches", "constants", "counters", "images", "library", "limits", "power", "streams")
    assert {name for name in has if getattr(device, name) is None} <= lacking


def test_buffers_and_images_are_written_read_and_checked(device: Any) -> None:
    x, y = device.upload(np.zeros(64, np.float32)), device.allocate(256)
    device.guard(x)
    assert device.words(x, 1, 3).tolist() == [0, 0, 0]
    assert not any(device.strays([x, y]))
    assert (device.checksums([x]), device.mismatches(x, y)) == ([0], 0)
    within = Tolerance(Limit(ulp=1), 64, np.dtype(np.float32), y)
    assert device.compare(Output(x, y, within)) == Deviation(0, 0.0)
    image = device.images.upload(np.zeros((8, 8), np.float32), DTYPES["float"])
    assert device.mismatches(image, x) == 0
    device.bind_copy(image, y).run()
    assert device.images.refusal(Problem(2**16, 1), DTYPES["float"]).startswith("an image of 65536")
    for output in (Output(x, y), Output(image, y), Output(x, y, content=y)):
        device.prepare(output, 0xA5)


@pytest.mark.parametrize("mode", TIMING_MODES)
@pytest.mark.parametrize("cache_state", ["warm", "flushed"])
def test_launches_are_timed(device: Any, program: Any, mode: str, cache_state: str) -> None:
    bound = device.bind(program, LAUNCH, {"x": device.allocate(256)})
    met = Condition(cache_state, mode)
    bound.run()
    each = bound.interval(met) is TimedInterval.EACH
    assert each == (mode == "isolated" or cache_state == "flushed")
    expected = 6e-3 if each else 2e-3
    assert bound.sample(3, met) == pytest.approx(expected)
    assert device.sample_all([Sample(bound, 3, met)] * 2) == [pytest.approx(expected)] * 2


def test_proofs_are_queued_together(device: Any, program: Any) -> None:
    x, y = device.allocate(256), device.allocate(256)
    bound = device.bind(program, LAUNCH, {"x": x})
    one, other = device.prove_all([bound, bound], ProofBuffers([Output(x, y)], [x, y], [y]))
    assert one == other
    assert (one.seconds, one.deviations, one.sums) == (6e-3, [Deviation(0)], [0])


def test_launches_with_attributes_and_constants(
    device: Any, program: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver: Any = pytest.importorskip("cuda.bindings.driver")
    done, given = driver.CUresult(0), []
    monkeypatch.setattr(driver, "cuOccupancyMaxActiveClusters", lambda *_: (done, 66))
    monkeypatch.setattr(driver, "cuLaunchKernelEx", lambda *args: given.append(args) or (done,))
    launch = replace(LAUNCH, cluster=(2, 1, 1), carveout=50)
    bound = device.bind(program, launch, {"x": device.allocate(256)})
    bound.run()
    assert bound.sample(3, Condition("warm", "stream")) == pytest.approx(2e-3)
    # One of a run, one before the sample, three within.
    assert len(given) == 5
    assert (program.resident_blocks(launch), program.resident_blocks(LAUNCH)) == (1, 4)
    set_constants(device, program, {"taps": np.zeros(2, np.float32)})


def test_streams_counters_and_the_library(
    device: Any, program: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = device.streams.host_array(np.arange(8, dtype=np.float32), True)
    with device.streams.open() as stream:
        buffer, before = stream.allocate(32), stream.mark()
        stream.copy_in(buffer, data)
        stream.launch(program, LAUNCH, {"x": buffer})
        stream.copy_out(data, buffer)
        assert stream.mark().seconds_since(before) == 6e-3
    with device.counters.recorded():
        pass
    cublas = MagicMock(**{f"cublas{name}_v2.return_value": 0 for name in ("Create", "SetStream")})
    cublas.cublasSetPointerMode_v2.return_value = cublas.cublasSdot_v2_64.return_value = 0
    monkeypatch.setattr(library, "loaded_library", lambda _: cublas)
    x = device.allocate(256)
    dot = bind_library(
        device, LibraryCall("dot", ("x", "y"), "o", "float"), {**dict.fromkeys("xyo", x)}
    )
    assert dot.sample(3, USUAL) == pytest.approx(2e-3)


def test_the_printed_dot_product_is_bound(
    device: Any, program: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dot_products.driver_in_turn.calls_here", lambda: np.zeros(11, np.uint64))
    fed = FedInTurn(program, [Piece(0, 0, 8, LAUNCH)], {"x": np.zeros(8)}, np.zeros(4), False)
    assert type(bind_in_turn(device, fed)).__name__ == "DriverInTurn"
