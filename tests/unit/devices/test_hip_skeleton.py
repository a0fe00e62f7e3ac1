"""The skeleton of a HIP backend: all of a device's methods, by names that CuPy for ROCm has."""

import sys
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
from fake_cupy import fake_cupy
from gpushmoo.core.dtypes import DTYPES
from gpushmoo.core.errors import BuildError, LaunchConfigError, OutOfDeviceMemoryError
from gpushmoo.workloads.contract import BufferRef, Launch

# Of cupy-rocm-7-0 14.2, as far as the skeleton calls them; `nvrtc` is hipRTC there.
NAMES = {
    "RawModule",
    "cuda.Device",
    "cuda.Event",
    "cuda.Stream",
    "cuda.get_elapsed_time",
    "cuda.alloc",
    "cuda.set_allocator",
    "empty",
    "ndarray",
    "zeros",
    "cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor",
    *(f"cuda.nvrtc.{name}Program" for name in ("create", "compile", "destroy")),
    *(f"cuda.nvrtc.get{name}" for name in ("PTX", "ProgramLog")),
    *(f"cuda.runtime.get{name}" for name in ("DeviceCount", "DeviceProperties")),
    "cuda.runtime.deviceGetPCIBusId",
    "cuda.runtime.driverGetVersion",
    "cuda.runtime.runtimeGetVersion",
}


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Any:
    """CuPy for ROCm."""
    found = fake_cupy(is_hip=True)
    monkeypatch.setitem(sys.modules, "cupy", found)
    return found


def test_a_device_is_opened_and_times_its_launches(cupy: Any, tmp_path: Path) -> None:
    from backends.hip import backend

    device: Any = backend.open_device(0, "auto", tmp_path)
    assert (device.target, device.info.core_clock_mhz) == ("gfx942", 2100)
    assert (device.images, device.streams, device.power) == (None, None, None)
    (tmp_path / "kernel.hip").write_text("")
    program = device.build(tmp_path, DTYPES["float"], {"N": "3"})
    buffer = device.allocate(256)
    launch = Launch("k", (8, 1, 1), (64, 1, 1), (BufferRef("x"), np.uint64(64)), tiles=8)
    bound = device.bind(program, launch, {"x": buffer})
    assert bound.sample(3) == pytest.approx(2e-3)
    function = cupy.RawModule.return_value.get_function.return_value
    assert function.mock_calls[-1].args[:2] == ((8, 1, 1), (64, 1, 1))
    assert program.resident_blocks(launch) == 4
    device.guard(buffer)
    device.close()
    # A name of the module alone, not of what its calls return.
    called = {str(call[0]) for call in cupy.mock_calls}
    assert {name for name in called if "()" not in name and "__" not in name} <= NAMES


def test_errors_are_those_of_the_protocol(cupy: Any, tmp_path: Path) -> None:
    from backends.hip import backend

    device: Any = backend.open_device(1, "auto", tmp_path)
    cupy.cuda.alloc.side_effect = cupy.cuda.runtime.CUDARuntimeError("hipErrorOutOfMemory: no")
    with pytest.raises(OutOfDeviceMemoryError, match="does not fit"):
        device.allocate(256)
    cupy.cuda.nvrtc.compileProgram.side_effect = cupy.cuda.nvrtc.NVRTCError
    cupy.cuda.nvrtc.getProgramLog.return_value = "kernel.hip:3:1: error: no such thing\n"
    (tmp_path / "kernel.hip").write_text("wrong")
    with pytest.raises(BuildError, match=r"kernel.hip:3: error: no such thing"):
        device.build(tmp_path, DTYPES["float"], {})
    wide = Launch("k", (8, 1, 1), (2048, 1, 1), (), tiles=8)
    with pytest.raises(LaunchConfigError, match="2048 threads"):
        device.bind(MagicMock(), wide, {})


def test_devices_are_counted_and_listed(
    cupy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from backends.hip import backend

    for node, units in enumerate((0, 1216, 1216)):
        (tmp_path / str(node)).mkdir()
        (tmp_path / str(node) / "properties").write_text(f"cpu_cores_count 0\nsimd_count {units}\n")
    monkeypatch.setattr(backend, "_NODES", tmp_path)
    assert backend.count_devices() == 2
    assert backend.list_devices(None) == [(0, "0000:01:00.0"), (1, "0000:01:00.0")]
