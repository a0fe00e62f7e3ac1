"""Every CUDA kernel compiles to machine code for three generations of GPUs; no device needed."""

from __future__ import annotations

import functools
import sys
from types import SimpleNamespace

import pytest
from conftest import ROOT, USER_CUDA
from gpushmoo.devices.base import BuildError, NoDeviceError
from gpushmoo.devices.nvrtc import build_options, compile_cubin, supported_archs
from gpushmoo.dtypes import DTYPES
from gpushmoo.kernels import KernelFolder, find_kernels, load_kernel
from gpushmoo.space import Cell, Problem

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
    assert entry_of(folder, dtype, variant, axes).encode() in code


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


def entry_of(
    folder: KernelFolder, dtype: str, variant: str, axes: tuple[tuple[str, int], ...]
) -> str:
    return folder.workload.launch(Cell(folder.name, dtype, variant, Problem(64, 64), axes)).entry


def test_a_source_that_does_not_compile_leaves_the_compilers_message() -> None:
    options = build_options(DTYPES["float"], {"BROKEN": "1"})
    with pytest.raises(BuildError, match=r"^kernel\.cu of 'mine' does not compile\.$") as caught:
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
