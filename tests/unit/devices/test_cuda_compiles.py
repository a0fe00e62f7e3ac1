"""Every CUDA kernel compiles, and its machine code does what is timed; no device needed."""

import dataclasses
import functools
import itertools
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from conftest import KEPT, ROOT, USER_CUDA
from covering import crossed
from gpushmoo.core.dtypes import DTYPES
from gpushmoo.core.errors import BuildError, LaunchFailedError, NoDeviceError
from gpushmoo.core.space import Cell, Problem
from gpushmoo.devices.cuda import buffers
from gpushmoo.devices.machine_code.cubins import (
    Unit,
    build_options,
    compile_cubin,
    disassembled,
    parameter_sizes,
    passed,
)
from gpushmoo.devices.machine_code.sass import complaints
from gpushmoo.devices.memory import Tolerance, check_sizes, limits_source
from gpushmoo.workloads.contract import Argument, BufferRef, Launch, NullRef, Workload
from gpushmoo.workloads.host_fed import HostFedWorkload
from gpushmoo.workloads.loader import KernelFolder, find_kernels, load_kernel
from gpushmoo.workloads.tolerances import Limit

FOLDERS = [load_kernel(p) for p in find_kernels([ROOT / "kernels"]).values()]
OTHER_ARCHS = ("sm_75", "sm_100")
# Kernels whose indices have as many bits as their problem asks for.
WIDE = [f for f in FOLDERS for s in f.path.glob("kernel.cu") if "index_t" in s.read_text()]


def builds() -> Iterator[Any]:
    """All variants for the measured architecture; the first and the last for two others.

    Of these only the first of a kernel is built in every run, the rest in a fuzz.
    """
    for folder in FOLDERS:
        w = folder.workload
        variants = w.default_variants or w.variants
        every = itertools.product(w.dtypes, variants, ("sm_90", *OTHER_ARCHS))
        for dtype, variant, arch in every if w.device_code else ():
            first = (dtype, variant) == (w.dtypes[0], variants[0])
            if arch == "sm_90" or variant in (variants[0], variants[-1]):
                marks = () if arch == "sm_90" or first else pytest.mark.fuzz
                name = f"{folder.name}-{dtype}-{variant}-{arch}"
                yield pytest.param(folder, dtype, variant, arch, id=name, marks=marks)


@functools.cache
def compiled(folder: Path, options: tuple[str, ...], arch: str) -> bytes:
    """Variants that differ in their launches only are the same code."""
    unit = Unit((folder / "kernel.cu").read_text(), folder.name, options)
    return compile_cubin(unit, arch).code


def cell_of(folder: KernelFolder, dtype: str, variant: str) -> Cell:
    none = folder.workload.zero_axes  # 8 is on every other axis
    axes = tuple((axis, 0 if axis in none else 8) for axis in sorted(folder.workload.axes))
    return Cell(folder.name, dtype, variant, Problem(64, 64), axes)


def options_of(folder: KernelFolder, dtype: str, variant: str) -> tuple[str, ...]:
    version = folder.workload.version(cell_of(folder, dtype, variant))
    return build_options(DTYPES[dtype], folder.workload.macros(dtype, version))


@pytest.mark.parametrize(("folder", "dtype", "variant", "arch"), list(builds()))
def test_kernel_compiles(folder: KernelFolder, dtype: str, variant: str, arch: str) -> None:
    code = compiled(folder.path, options_of(folder, dtype, variant), arch)
    assert code.startswith(b"\x7fELF")
    # The entry that the workload launches must be in the binary under its plain name.
    cell = cell_of(folder, dtype, variant)
    sizes = parameter_sizes(code)
    for launch in launches_of(folder, cell):
        check_sizes(launch.entry, passed(launch), sizes[launch.entry])


# Its text of the same code is the same, and most of the time is its start.
KEPT_TEXT = KEPT / f"nvdisasm-{version('nvidia-cuda-nvdisasm')}"
code_of = functools.cache(lambda cubin: disassembled(cubin, KEPT_TEXT))
# A start of nvdisasm takes most of a second. Of a kernel with more variants
# than this those are tried that differ from the first in one part of its name or have another
# number of parts.
MANY_VARIANTS = 4


def tried(workload: Workload) -> tuple[str, ...]:
    def differing(variant: str) -> int:
        pairs = itertools.zip_longest(variants[0].split("-"), variant.split("-"))
        parts = [(a, b) for a, b in pairs if None not in (a, b)]
        return sum(a != b for a, b in parts)

    variants = workload.variants
    if len(variants) <= MANY_VARIANTS:
        return variants
    return tuple(v for v in variants if differing(v) <= 1)


def disassemblies(workload: Workload) -> Iterator[tuple[str, str, Any]]:
    """All variants of the first type, the first variant of the last one; the rest for a fuzz."""
    for dtype, variant, marks in crossed(workload, tried(workload)):
        few = dtype in (workload.dtypes[0], workload.dtypes[-1])
        yield dtype, variant, marks if few else pytest.mark.fuzz


@pytest.mark.parametrize(
    ("folder", "dtype", "variant"),
    [
        pytest.param(folder, dtype, variant, id=f"{folder.name}-{dtype}-{variant}", marks=marks)
        for folder in FOLDERS
        if folder.workload.device_code
        for dtype, variant, marks in disassemblies(folder.workload)
    ],
)
def test_kernels_do_what_is_timed(folder: KernelFolder, dtype: str, variant: str) -> None:
    codes = code_of(compiled(folder.path, options_of(folder, dtype, variant), "sm_90"))
    expected = {entry: folder.workload.accesses(entry, dtype, variant) for entry in codes}
    assert any(expected.values()), "no entry is ever timed"
    assert [c for entry in codes for c in complaints(codes[entry], expected[entry])] == []


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda f: f.name)
def test_a_kernel_has_a_source_for_each_backend(folder: KernelFolder) -> None:
    sources = {(folder.path / f"kernel{suffix}").is_file() for suffix in (".cu", ".cl")}
    assert sources == {folder.workload.device_code}


@pytest.mark.parametrize("dtype", ["float2", "unorm8"])
def test_every_mode_of_the_texture_sum_compiles(dtype: str) -> None:
    folder = next(f for f in FOLDERS if f.name == "tex2d_sum")
    modes = [v for v in folder.workload.variants if v.startswith("block-")]
    assert len(modes) == 18  # 2 filters, 4 address modes, stored or not; a reducing one, a twin
    codes = {compiled(folder.path, options_of(folder, dtype, mode), "sm_90") for mode in modes}
    # The texture object holds filter and address mode; OFFSET, SCALE and WRITTEN are in the code.
    assert len(codes) > 3


def launches_of(folder: KernelFolder, cell: Cell) -> list[Launch]:
    """What is really launched of a cell: timed, or to verify it, or piece by piece."""
    workload = folder.workload
    if isinstance(workload, HostFedWorkload):
        return [p.launch for p in workload.pipeline(cell).pieces if p.launch is not None]
    return [workload.launch(cell), workload.proof(cell)]


def test_messages_are_the_compilers_or_nothing() -> None:
    options = build_options(DTYPES["float"], {"BROKEN": "1"})
    said = r"^kernel\.cu does not compile: kernel\.cu:\d+: error: "
    with pytest.raises(BuildError, match=said) as caught:
        compile_cubin(Unit(USER_CUDA, "mine", options), "sm_90")
    assert "mine/kernel.cu(" in caught.value.log  # file and line
    assert "\0" not in caught.value.log
    # All bytes of one blank are one object, and the log of a sound kernel is one character.
    blanks = b"  "
    made = compile_cubin(Unit('extern "C" __global__ void f() {}', "quiet"), "sm_90")
    assert made.log == ""
    assert ord(blanks[:1]) == 32


def test_options_have_an_order_and_the_code_tells_what_kernels_take() -> None:
    expected = ("-std=c++17", "-Delement_t=float3", "-Dindex_t=unsigned", "-DA=1", "-DB=2")
    assert build_options(DTYPES["float3"], {"B": "2", "A": "1"}) == expected
    source = """
    struct three { float x, y, z; };
    extern "C" __global__ void all(float *d, const float *s, unsigned long long n, unsigned m,
                                   three v, unsigned char c) { if (m < n) d[m] = s[n] + v.x + c; }
    extern "C" __global__ void swapped(double a, unsigned m, float *d) { d[m] = a; }
    extern "C" __global__ void nothing() {}
    """
    for arch in ("sm_75", "sm_90", "sm_100"):
        sizes = parameter_sizes(compile_cubin(Unit(source, "x"), arch).code)
        assert sizes == {"all": (8, 8, 8, 4, 12, 1), "swapped": (8, 4, 8), "nothing": ()}
    assert parameter_sizes(b"no machine code") == {}


@pytest.mark.parametrize("there", [True, False])
def test_missing_nvrtc_says_what_to_install(monkeypatch: pytest.MonkeyPatch, there: bool) -> None:
    absent = RuntimeError("Failed to find libnvrtc.so\nsearched in many places")
    module = SimpleNamespace(nvrtcVersion=Mock(side_effect=absent)) if there else None
    monkeypatch.setitem(sys.modules, "cuda.bindings.nvrtc", module)
    with pytest.raises(NoDeviceError, match=r"NVRTC is missing \(.*\); install the extra .*\.$"):
        compile_cubin(Unit(USER_CUDA, "mine"), "sm_90")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ((BufferRef("d"),), "'k' takes 2 arguments, the launch has 1"),
        ((BufferRef("d"), np.uint32(1)), r"argument 1 of kernel 'k' is of 8 bytes.* gives 4"),
    ],
)
def test_arguments_are_those_the_kernel_takes(args: tuple[Argument, ...], said: str) -> None:
    for right in ((BufferRef("d"), np.uint64(1)), (NullRef(), np.float64(1))):
        check_sizes("k", right, (8, 8))
    with pytest.raises(LaunchFailedError, match=said):
        check_sizes("k", args, (8, 8))


@pytest.mark.parametrize("folder", WIDE, ids=lambda folder: folder.name)
def test_kernels_compile_with_wide_indices_as_well(folder: KernelFolder) -> None:
    workload, dtype = folder.workload, folder.workload.dtypes[0]
    cell = cell_of(folder, dtype, workload.variants[0])
    wide = dataclasses.replace(cell, problem=Problem(2**16, 2**16))
    macros = workload.macros(dtype, workload.version(wide))
    sizes = parameter_sizes(compiled(folder.path, build_options(DTYPES[dtype], macros), "sm_90"))
    for launch in launches_of(folder, wide):
        check_sizes(launch.entry, passed(launch), sizes[launch.entry])


@pytest.mark.parametrize(("width", "in_values"), itertools.product([1, 2, 4, 8], [False, True]))
def test_the_comparison_within_a_limit_compiles_for_each_width(width: int, in_values: bool) -> None:
    source = buffers._WORDS + buffers._LIMITS + limits_source(width, in_values)
    code = compile_cubin(Unit(source, "limits"), "sm_90").code
    limit = Limit(atol=1.0) if in_values else Limit(ulp=1)
    numbers = Tolerance(limit, 1, np.dtype(f"uint{8 * width}"), None).numbers
    taken = (8, 8, 8, *(number.nbytes for number in numbers), 8)
    assert parameter_sizes(code)["limits"] == taken
