"""Clusters, cooperative launches and carve-outs: what the driver is given, and who refuses them."""

import ctypes
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cuda.bindings import driver
from gpushmoo.core.errors import LaunchConfigError
from gpushmoo.core.space import TIMING_MODES, Cell, Condition, Problem, Version
from gpushmoo.devices.base import set_constants
from gpushmoo.devices.build_file import VersionBuild
from gpushmoo.devices.cuda.runtime import Translate
from gpushmoo.devices.cuda.timing import blocks_in_clusters, extended
from gpushmoo.devices.machine_code.cubins import Unit, compile_cubin
from gpushmoo.workloads.call import ArrayArgument, Call, called
from gpushmoo.workloads.contract import BufferRef, Launch, SharedMemory

LAUNCH = Launch("k", (8, 2, 1), (128, 1, 1), (SharedMemory(64),), tiles=16)


class Driver:
    """NVIDIA's bindings, but that calls of the driver keep the bytes that it would be given."""

    def __init__(self, code: int = 0) -> None:
        self.code, self.calls = driver.CUresult(code), list[tuple[Any, ...]]()

    def __getattr__(self, name: str) -> Any:
        """Structures and constants."""
        return getattr(driver, name)

    def cuFuncSetAttribute(self, function: Any, *args: Any) -> tuple[Any]:  # noqa: N802
        self.calls.append(("attribute", int(function), *map(int, args)))
        return (driver.CUresult(0),)

    def cuLaunchKernelEx(self, config: Any, function: Any, args: int, extra: int) -> tuple[Any]:  # noqa: N802
        at = config.getPtr()
        words = np.frombuffer(ctypes.string_at(at, 28), np.uint32)
        stream, attributes = np.frombuffer(ctypes.string_at(at + 32, 16), np.uint64).tolist()
        # An attribute has its number in a word, and after another word 64 bytes for its value.
        held = ctypes.string_at(attributes, 72 * config.numAttrs)
        rows = np.frombuffer(held, np.uint32).reshape(-1, 18)
        each = [(int(row[0]), row[2:5].tolist()) for row in rows]
        places = np.frombuffer(ctypes.string_at(args, 24), np.uint64).tolist()
        values = [ctypes.string_at(p, n) for p, n in zip(places, (8, 4, 8), strict=True)]
        self.calls.append((words.tolist(), stream, each, int(function), values, extra))
        return (self.code,)

    def cuOccupancyMaxActiveClusters(self, function: Any, config: Any) -> tuple[Any, int]:  # noqa: N802
        return self.code, 3 * config.numAttrs


def raised(code: int) -> None:
    if code:
        raise ValueError(code)


def test_the_driver_is_given_the_attributes_and_arguments() -> None:
    fake, streams = Driver(), iter((7, 9))
    buffer = SimpleNamespace(data=SimpleNamespace(ptr=0x1000))
    texture = SimpleNamespace(ptr=0x22)
    launch = replace(LAUNCH, cluster=(8, 2, 1), cooperative=True, carveout=75)
    args = (buffer, np.float32(2), texture)
    enqueue = extended(fake, 0xF0, launch, args, lambda: next(streams), raised)
    enqueue()
    enqueue()
    larger, first, second = fake.calls
    assert larger == ("attribute", 0xF0, 14, 1)
    attributes = [(2, [1, 0, 0]), (4, [8, 2, 1]), (14, [75, 0, 0])]
    values = [np.uint64(0x1000).tobytes(), np.float32(2).tobytes(), np.uint64(0x22).tobytes()]
    assert first == ([8, 2, 1, 128, 1, 1, 64], 7, attributes, 0xF0, values, 0)
    assert second == (first[0], 9, *first[2:])
    assert blocks_in_clusters(Driver(), 0xF0, launch, raised) == 3 * 3 * 16
    failing = extended(Driver(720), 1, launch, args, lambda: 0, raised)
    with pytest.raises(ValueError, match="720"):
        failing()


def test_what_makes_no_clusters_is_refused(opencl_device: Any) -> None:
    with pytest.raises(LaunchConfigError, match=r"the grid \(8, 2, 1\) is not of whole clusters"):
        extended(Driver(), 1, replace(LAUNCH, cluster=(3, 1, 1)), (), lambda: 0, raised)
    with pytest.raises(LaunchConfigError, match="OpenCL has no clusters"):
        opencl_device.bind(None, replace(LAUNCH, carveout=0), {})
    assert not LAUNCH.has_attributes


RANKS = """
__constant__ float taps[2];
template <int N> __global__ void fill(float *d, int n)
{
    const int at = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned rank = 0;
#if __CUDA_ARCH__ >= 900
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
#endif
    if (at < n)
        d[at] = taps[N] + rank;
}
"""


@pytest.mark.gpu
@pytest.mark.parametrize("cooperative", [False, True])
def test_a_device_runs_templates_in_clusters(cuda_device: Any, cooperative: bool) -> None:
    unit = Unit(RANKS, "ranks", expressions=("fill<1>",))
    made = compile_cubin(unit, cuda_device.target)
    program = cuda_device.load(VersionBuild(code=made.code, facts=made.facts))
    set_constants(cuda_device, program, {"taps": np.array([3, 5], np.float32)})
    has_clusters = int(cuda_device.target[3:]) >= 90
    launch = Launch("fill<1>", (4, 1, 1), (64, 1, 1), (BufferRef("d"), np.int32(256)), tiles=4)
    cluster = (2, 1, 1) if has_clusters else None
    launch = replace(launch, cluster=cluster, cooperative=cooperative, carveout=50)
    buffer = cuda_device.allocate(4 * 256)
    bound = cuda_device.bind(program, launch, {"d": buffer})
    bound.run()
    found = cuda_device.words(buffer, 0, 256).view(np.float32).reshape(4, 64)
    assert np.unique(found[0]) == 5
    assert np.unique(found[1]) == (6 if has_clusters else 5)
    assert np.array_equal(found[:2], found[2:])
    assert all(bound.sample(4, Condition("warm", mode)) > 0 for mode in TIMING_MODES)
    large = replace(launch, grid=(2**20, 1, 1), cooperative=True)
    refused = cuda_device.bind(program, large, {"d": buffer})
    with pytest.raises(LaunchConfigError):
        refused.run()
    bound.run()


def test_axes_of_a_call_are_attributes_of_its_launches() -> None:
    array = ArrayArgument("d", np.dtype(np.float16), (1024,), True)
    call = Call("k", (array, np.int32(48), SharedMemory(8)), (1024,), {}, ())
    axes = {"block_x": [64], "cluster_x": [2], "cooperative": [0], "carveout": [0]}
    workload = called("mine", call, axes, "half", "FLOP")
    params = (("block_x", 64), ("carveout", 0), ("cluster_x", 2), ("cooperative", 0))
    cell = Cell("mine", "half", "k", Problem(1, 1024), params)
    launch = workload.launch(cell)
    assert (launch.cluster, launch.cooperative, launch.carveout) == ((2, 1, 1), False, 0)
    assert launch.grid == (16, 1, 1)
    assert workload.signature("half", Version("k")) == ("*fp16:16", "i32:16")
    plain = workload.launch(replace(cell, params=params[:1]))
    assert not plain.has_attributes


@pytest.mark.parametrize("name", ["COOPERATIVE_LAUNCH_TOO_LARGE", "INVALID_CLUSTER_SIZE"])
def test_a_cluster_or_grid_that_is_too_large_costs_its_cell_alone(name: str) -> None:
    class CUDADriverError(Exception):
        pass

    cuda = SimpleNamespace(
        driver=SimpleNamespace(CUDADriverError=CUDADriverError),
        runtime=SimpleNamespace(CUDARuntimeError=CUDADriverError),
        memory=SimpleNamespace(OutOfMemoryError=MemoryError),
    )
    with pytest.raises(LaunchConfigError), Translate(SimpleNamespace(cuda=cuda)):
        raise CUDADriverError(f"CUDA_ERROR_{name}: no")
