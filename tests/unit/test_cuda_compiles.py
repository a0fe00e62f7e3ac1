"""Every CUDA kernel compiles to machine code for three generations of GPUs; no device needed."""

from __future__ import annotations

import pytest
from conftest import ROOT, USER_CUDA
from cuda.core import Program, ProgramOptions
from gpushmoo.dtypes import DTYPES
from gpushmoo.kernels import KernelFolder, find_kernels, load_kernel
from gpushmoo.space import Cell, Problem

FOLDERS = [load_kernel(p) for p in find_kernels([ROOT / "kernels"]).values()]
BUILDS = [
    pytest.param(folder, dtype, variant, id=f"{folder.name}-{dtype}-{variant}")
    for folder in FOLDERS
    for dtype in folder.workload.dtypes
    for variant in folder.workload.variants
]


def cubin(source: str, arch: str, defines: dict[str, str]) -> bytes:
    options = ProgramOptions(arch=arch, std="c++17", define_macro=list(defines.items()))
    return bytes(Program(source, "c++", options).compile("cubin").code)


@pytest.mark.parametrize("arch", ["sm_75", "sm_90", "sm_100"])
@pytest.mark.parametrize(("folder", "dtype", "variant"), BUILDS)
def test_kernel_compiles(folder: KernelFolder, dtype: str, variant: str, arch: str) -> None:
    source = folder.source(".cu")
    assert source is not None, f"{folder.name} has no kernel.cu"
    defines = folder.workload.defines(dtype, variant) | {"element_t": DTYPES[dtype].name}
    code = cubin(source.read_text(), arch, defines)
    assert code.startswith(b"\x7fELF")
    # The entry that the workload launches must be in the binary under its plain name.
    axes = tuple((axis, 8) for axis in sorted(folder.workload.axes))  # 8 is on every axis
    assert entry_of(folder, dtype, variant, axes).encode() in code


def entry_of(
    folder: KernelFolder, dtype: str, variant: str, axes: tuple[tuple[str, int], ...]
) -> str:
    return folder.workload.launch(Cell(folder.name, dtype, variant, Problem(64, 64), axes)).entry


def test_the_check_can_fail() -> None:
    with pytest.raises(Exception, match=r"(?i)compil"):
        cubin(USER_CUDA, "sm_90", {"BROKEN": "1"})
