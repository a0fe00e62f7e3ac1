"""Without a device, a fitting driver, CuPy or a compiler that knows the device: one sentence."""

import ctypes
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from gpushmoo.core.backends import BACKENDS
from gpushmoo.core.errors import (
    DeviceLostError,
    LaunchConfigError,
    LaunchFailedError,
    NoDeviceError,
    OutOfDeviceMemoryError,
)
from gpushmoo.devices.cuda import backend
from gpushmoo.devices.cuda.runtime import Translate, list_devices, load_cupy, uuid_of
from gpushmoo.devices.machine_code.cubins import Unit, compile_cubin
from gpushmoo.planning.inside_snakemake import Inside
from gpushmoo.planning.start import limit_gpus


class CUDARuntimeError(RuntimeError):
    """Stand in for CuPy's error of the same name."""


class CUDADriverError(RuntimeError):
    """Stand in for CuPy's error of the same name."""


class OutOfMemoryError(MemoryError):
    """Stand in for CuPy's error of the same name."""


def fake_cupy(devices: int | str, driver: int = 13000, toolkit: int = 13020) -> Any:
    """What of CuPy is used before a device is opened; counting fails with a text."""
    failure = CUDARuntimeError(devices)
    runtime = SimpleNamespace(
        CUDARuntimeError=CUDARuntimeError,
        getDeviceCount=Mock(side_effect=failure if isinstance(devices, str) else [devices] * 9),
        driverGetVersion=lambda: driver,
        runtimeGetVersion=lambda: toolkit,
        getDeviceProperties=lambda i: {"uuid": bytes([i]) * 16},
    )
    driver_module = SimpleNamespace(CUDADriverError=CUDADriverError)
    memory = SimpleNamespace(OutOfMemoryError=OutOfMemoryError)
    return SimpleNamespace(
        cuda=SimpleNamespace(runtime=runtime, driver=driver_module, memory=memory)
    )


def test_visible_devices_are_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = SimpleNamespace(
        getDeviceProperties=lambda i: {"uuid": b"" if i < 2 else bytes(range(1, 20))},
        deviceGetPCIBusId=lambda i: f"0000:0{i}:00.0",
    )
    assert [uuid_of(runtime, i) for i in range(3)] == [
        "GPU--0000:00:00.0",
        "GPU--0000:01:00.0",
        "GPU-0102030405060708090a0b0c0d0e0f10",
    ]
    monkeypatch.setitem(sys.modules, "cupy", fake_cupy(2))
    assert list_devices(None) == ((0, "GPU-" + "00" * 16), (1, "GPU-" + "01" * 16))
    assert list_devices(1) == ((1, "GPU-" + "01" * 16),)
    with pytest.raises(NoDeviceError, match=r"^There are 2 CUDA devices, so .* no device 2\.$"):
        list_devices(2)


@pytest.mark.parametrize(
    ("module", "sentence"),
    [
        pytest.param(None, r"^CuPy is missing .*'cuda13'.*: make cuda13\.$", id="no CuPy"),
        pytest.param(
            fake_cupy("cudaErrorNoDevice: no CUDA-capable device is detected"),
            r"^No CUDA device answers .*needs an NVIDIA GPU and its driver\.$",
            id="no device",
        ),
        pytest.param(
            fake_cupy("cudaErrorInsufficientDriver: driver is too old", driver=12040),
            r"^The NVIDIA driver supports CUDA 12\.4, but .*for CUDA 13\.2; .*: make cuda12\.$",
            id="old driver",
        ),
        pytest.param(
            fake_cupy("cudaErrorInsufficientDriver: driver is too old", driver=0),
            r"^No NVIDIA driver answers; this needs an NVIDIA GPU and its driver\.$",
            id="no driver",
        ),
        pytest.param(
            fake_cupy(0), r"^No CUDA device is visible; see CUDA_VISIBLE_DEVICES\.$", id="0"
        ),
    ],
)
def test_what_is_missing(module: Any, sentence: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctypes.CDLL", lambda name: name)
    monkeypatch.setitem(sys.modules, "cupy", module)
    with pytest.raises(NoDeviceError, match=sentence):
        load_cupy()


def test_without_a_driver_no_package_is_the_first_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr("ctypes.CDLL", missing)
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(NoDeviceError, match=r"^CUDA needs an NVIDIA GPU and its driver, .*cuda13"):
        load_cupy()


@pytest.mark.parametrize(("arch", "extra"), [("sm_35", "cuda12"), ("sm_999", "cuda13")])
def test_a_device_that_the_compiler_does_not_know_is_named(arch: str, extra: str) -> None:
    with pytest.raises(NoDeviceError, match=rf"7\.5, 8\.0, .*9\.0.*not '{arch}'; .*'{extra}'\.$"):
        compile_cubin(Unit("", "x"), arch)


@pytest.mark.parametrize(
    ("error", "meaning"),
    [
        (CUDARuntimeError("cudaErrorIllegalAddress: an illegal memory access"), DeviceLostError),
        (CUDADriverError("CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access"), DeviceLostError),
        (CUDADriverError("CUDA_ERROR_LAUNCH_FAILED: unspecified"), DeviceLostError),
        (CUDARuntimeError("cudaErrorMisalignedAddress: misaligned"), DeviceLostError),
        (CUDARuntimeError("cudaErrorECCUncorrectable: uncorrectable"), DeviceLostError),
        (CUDADriverError("CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES: too many"), LaunchConfigError),
        (CUDARuntimeError("cudaErrorLaunchOutOfResources: too many"), LaunchConfigError),
        (CUDADriverError("CUDA_ERROR_INVALID_VALUE: invalid argument"), LaunchConfigError),
        (CUDARuntimeError("cudaErrorMemoryAllocation: out of memory"), OutOfDeviceMemoryError),
        (OutOfMemoryError("Out of memory allocating 8 bytes"), OutOfDeviceMemoryError),
        (CUDADriverError("CUDA_ERROR_NOT_SUPPORTED: not supported"), LaunchFailedError),
        (ValueError("a bug"), ValueError),
    ],
)
def test_errors_of_the_runtime_get_their_type(error: Exception, meaning: type[Exception]) -> None:
    with pytest.raises(meaning), Translate(fake_cupy(1)):
        raise error


class FakeWorkflow:
    """What Snakemake's workflow object is asked for."""

    def __init__(self, given: int | None, nodes: int | None = None, main: bool = True) -> None:
        self.is_main_process, self.modifier = main, None
        self.resource_settings = SimpleNamespace(nodes=nodes)
        self.global_resources = {} if given is None else {"gpu": given}

    def register_resource(self, name: str, value: int) -> None:
        self.global_resources[name] = value


@pytest.mark.parametrize(
    ("workflow", "device", "limit"),
    [
        pytest.param(FakeWorkflow(None), "all", 4, id="both devices, and one that waits for each"),
        pytest.param(FakeWorkflow(None), 1, 2, id="one device and one that waits"),
        pytest.param(FakeWorkflow(1), "all", 1, id="the user's word stays"),
        pytest.param(FakeWorkflow(None, nodes=10), "all", None, id="a cluster has its own"),
        pytest.param(FakeWorkflow(None, main=False), "all", None, id="a job sets nothing"),
    ],
)
def test_two_jobs_for_each_device_run_on_this_host(
    workflow: FakeWorkflow, device: Any, limit: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpushmoo.devices.cuda.backend.count_devices", lambda: 2)
    config = SimpleNamespace(settings=SimpleNamespace(device=device))
    flow: Any = SimpleNamespace(gpu_backend=BACKENDS["cuda"], config=config)
    limit_gpus(flow, Inside(workflow))
    assert workflow.global_resources.get("gpu") == limit


def test_the_driver_tells_devices(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(backend, "_DRIVER_LISTS", tmp_path / "none")
    monkeypatch.setattr(backend, "find_spec", lambda name: name)
    monkeypatch.setattr(backend, "_driver", lambda: None)
    assert (backend.count_devices(), backend._visible_archs()) == (0, [])
    monkeypatch.setattr(backend, "_driver", lambda: "a library")
    assert backend.count_devices() == 1
    monkeypatch.setattr(backend, "find_spec", lambda name: None)
    assert backend.count_devices() == 0
    (tmp_path / "driver.c").write_text(FAKE_DRIVER)
    library = tmp_path / "libcuda.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, tmp_path / "driver.c"], check=True)
    monkeypatch.setattr(backend, "_driver", lambda: ctypes.CDLL(str(library)))
    assert backend._visible_archs() == ["sm_90", "sm_100"]


@pytest.mark.parametrize(
    ("named", "seen"),
    [
        (None, 3),
        ("0", 1),
        ("0,2", 2),
        ("0,1,2,3", 3),
        ("", 0),
        ("-1", 0),
        ("0,-1,1", 1),
        ("3,0", 0),
        ("0,,1", 1),
        ("0, 1,", 2),
        ("0,0", 0),
        ("1,0,1", 0),
        ("NoDevFiles", 0),
        ("0,none,1", 1),
        ("GPU-8932f937,GPU-1", 2),
        ("GPU-8932f937,1", 1),
        ("0,GPU-1", 1),
        ("GPU-1,GPU-1", 0),
        ("MIG-1,MIG-2", 1),
    ],
)
def test_devices_are_counted_without_the_driver(
    named: str | None, seen: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(backend, "_DRIVER_LISTS", tmp_path)
    monkeypatch.setattr(backend, "find_spec", lambda name: name)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if named is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)
    assert backend.count_devices() == seen


FAKE_DRIVER = """
int cuInit(unsigned flags) { return 0; }
int cuDeviceGetCount(int *count) { *count = 2; return 0; }
int cuDeviceGet(int *device, int index) { *device = index; return 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    *value = attribute == 75 ? 9 + device : 0;
    return 0;
}
"""
