"""Every CUDA kernel compiles to machine code for three generations of GPUs; no device needed."""

from __future__ import annotations

import functools
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import ROOT, USER_CUDA
from gpushmoo.devices.base import BuildError, LaunchFailedError, NoDeviceError, check_sizes
from gpushmoo.devices.nvrtc import build_options, compile_cubin, supported_archs
from gpushmoo.devices.parameters import parameter_sizes
from gpushmoo.dtypes import DTYPES
from gpushmoo.kernels import KernelFolder, find_kernels, load_kernel
from gpushmoo.space import Cell, Problem
from gpushmoo.workload import Argument, BufferRef, HostFedWorkload, Launch, NullRef

FOLDERS = [load_kernel(p) for p in find_kernels([ROOT / "kernels"]).values()]
# All variants for the architecture that was measured, the first and the last for two others.
BUILDS = [
    pytest.param(folder, dtype, variant, arch, id=f"{folder.name}-{dtype}-{variant}-{arch}")
    for folder in FOLDERS
    if folder.workload.device_code
    for variants in [folder.workload.default_variants or folder.workload.variants]
    for dtype in folder.workload.dtypes
    for variant in variants
    for arch in ("sm_75", "sm_90", "sm_100")
    if arch == "sm_90" or variant in (variants[0], variants[-1])
]


@functools.cache
def compiled(source: str, name: str, options: tuple[str, ...], arch: str) -> bytes:
    """Variants that differ in their launches only are the same code."""
    return compile_cubin(source, name, options, arch)


@pytest.mark.parametrize(("folder", "dtype", "variant", "arch"), BUILDS)
def test_kernel_compiles(folder: KernelFolder, dtype: str, variant: str, arch: str) -> None:
    source = folder.source(".cu")
    assert source is not None, f"{folder.name} has no kernel.cu"
    options = build_options(DTYPES[dtype], folder.workload.defines(dtype, variant))
    code = compiled(source.read_text(), folder.name, tuple(options), arch)
    assert code.startswith(b"\x7fELF")
    # The entry that the workload launches must be in the binary under its plain name.
    axes = tuple((axis, 8) for axis in sorted(folder.workload.axes))  # 8 is on every axis
    cell = Cell(folder.name, dtype, variant, Problem(64, 64), axes)
    sizes = parameter_sizes(code)
    for launch in launches_of(folder, cell):
        check_sizes(launch, sizes[launch.entry])


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda f: f.name)
def test_kernel_has_a_source_for_each_backend_or_runs_on_the_host_alone(
    folder: KernelFolder,
) -> None:
    sources = {folder.source(suffix) is not None for suffix in (".cu", ".cl")}
    assert sources == {folder.workload.device_code}


@pytest.mark.parametrize("dtype", ["float2", "unorm8"])
def test_every_mode_of_the_texture_sum_compiles(dtype: str) -> None:
    folder = next(f for f in FOLDERS if f.name == "tex2d_sum")
    source = folder.source(".cu")
    assert source is not None
    modes = [v for v in folder.workload.variants if v.startswith("block-")]
    assert len(modes) == 16  # 2 filters, 4 address modes, sums stored or not
    codes = {
        compile_cubin(
            source.read_text(),
            folder.name,
            build_options(DTYPES[dtype], folder.workload.defines(dtype, mode)),
            "sm_90",
        )
        for mode in modes
    }
    # The texture object holds filter and address mode; OFFSET, SCALE and WRITTEN are in the code.
    assert len(codes) > 3


def launches_of(folder: KernelFolder, cell: Cell) -> list[Launch]:
    """What is really launched of a cell: timed, or to verify it, or piece by piece."""
    workload = folder.workload
    if isinstance(workload, HostFedWorkload):
        return [p.launch for p in workload.pipeline(cell).pieces if p.launch is not None]
    return [workload.launch(cell), workload.proof(cell)]


def test_a_source_that_does_not_compile_leaves_the_compilers_message() -> None:
    options = build_options(DTYPES["float"], {"BROKEN": "1"})
    said = r"^kernel\.cu does not compile: kernel\.cu:\d+: error: "
    with pytest.raises(BuildError, match=said) as caught:
        compile_cubin(USER_CUDA, "mine", options, "sm_90")
    assert "mine/kernel.cu(" in caught.value.log  # file and line
    assert "\0" not in caught.value.log


def test_options_are_the_same_whatever_the_order_of_the_definitions() -> None:
    expected = ("-std=c++17", "-Delement_t=float3", "-DA=1", "-DB=2")
    assert build_options(DTYPES["float3"], {"B": "2", "A": "1"}) == expected


@pytest.mark.parametrize(("arch", "extra"), [("sm_35", "'cuda12'"), ("sm_999", "'cuda13'")])
def test_a_device_that_nvrtc_does_not_know(arch: str, extra: str) -> None:
    with pytest.raises(NoDeviceError, match=rf"7\.5, 8\.0, .*not '{arch}'; .*{extra}\.$"):
        compile_cubin("", "mine", (), arch)
    assert int(arch.removeprefix("sm_")) not in supported_archs()


def no_library() -> None:
    raise RuntimeError("Failed to find libnvrtc.so\nsearched in many places")


@pytest.mark.parametrize("module", [None, SimpleNamespace(nvrtcVersion=no_library)])
def test_missing_nvrtc_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, module: SimpleNamespace | None
) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings.nvrtc", module)
    with pytest.raises(NoDeviceError, match=r"NVRTC is missing \(.*\); install the extra .*\.$"):
        compile_cubin(USER_CUDA, "mine", (), "sm_90")


def test_the_machine_code_tells_what_each_kernel_takes() -> None:
    source = """
    struct three { float x, y, z; };
    extern "C" __global__ void all(float *d, const float *s, unsigned long long n, unsigned m,
                                   three v, unsigned char c) { if (m < n) d[m] = s[n] + v.x + c; }
    extern "C" __global__ void swapped(double a, unsigned m, float *d) { d[m] = a; }
    extern "C" __global__ void nothing() {}
    """
    for arch in ("sm_75", "sm_90", "sm_100"):
        sizes = parameter_sizes(compile_cubin(source, "x", ("-std=c++17",), arch))
        assert sizes == {"all": (8, 8, 8, 4, 12, 1), "swapped": (8, 4, 8), "nothing": ()}
    assert parameter_sizes(b"no machine code") == {}


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ((BufferRef("d"), np.uint64(1)), None),
        ((NullRef(), np.float64(1)), None),
        ((BufferRef("d"),), "'k' takes 2 arguments, the launch has 1"),
        ((BufferRef("d"), np.uint32(1)), r"argument 1 of kernel 'k' is of 8 bytes.* gives 4"),
    ],
)
def test_arguments_are_held_against_what_the_kernel_takes(
    args: tuple[Argument, ...], said: str | None
) -> None:
    launch = Launch("k", (1, 1, 1), (1, 1, 1), args, 1)
    if said is None:
        check_sizes(launch, (8, 8))
        return
    with pytest.raises(LaunchFailedError, match=said):
        check_sizes(launch, (8, 8))
