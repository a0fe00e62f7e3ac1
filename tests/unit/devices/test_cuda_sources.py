"""What a CUDA source may be: headers, templates, C++ names, constant memory, every element type."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gpushmoo.core.dtypes import DTYPES
from gpushmoo.core.errors import BuildError
from gpushmoo.core.space import Version
from gpushmoo.devices.base import Device, set_constants
from gpushmoo.devices.build_file import EntryFacts
from gpushmoo.devices.cuda.backend import CudaProgram
from gpushmoo.devices.machine_code import cubins
from gpushmoo.devices.machine_code.cubins import (
    Unit,
    by_entry,
    cached_cubin,
    compile_cubin,
    parameter_sizes,
    symbol_sizes,
    unit_of,
)
from gpushmoo.devices.machine_code.sass import listing, parse
from gpushmoo.devices.opencl import backend as opencl

INCLUDES = """
#include <cstdint>
#include <math.h>
#include <type_traits>
#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <mma.h>
#include <cuda/std/array>
#include <cooperative_groups.h>
#include <cub/block/block_reduce.cuh>
#include "parts/own.h"
static_assert(std::is_same_v<uint32_t, std::uint32_t>);
extern "C" __global__ void f(__nv_bfloat16 *d, std::uint64_t n) { d[n] = scaled(M_PI); }
"""
TEMPLATES = """
__constant__ float taps[3];
template <class T, int N> __global__ void sum(T *d, element_t v) { d[N] = taps[N] + v; }
__global__ void plain(float *d, int n) { d[n] = 1; }
__global__ void twice(float *d) { *d = 2; }
__global__ void twice(double *d) { *d = 2; }
extern "C" __global__ void old(float *d) { *d = 3; }
"""


@pytest.fixture
def including(tmp_path: Path) -> Path:
    folder = tmp_path / "mine"
    (folder / "parts").mkdir(parents=True)
    (folder / "kernel.cu").write_text(INCLUDES)
    (folder / "parts/own.h").write_text('#include "scale.h"\n')
    (folder / "parts/scale.h").write_text("__device__ float scaled(float x) { return 2 * x; }\n")
    return folder


@pytest.mark.slow
def test_headers_of_cuda_and_of_the_folder_decide(including: Path, tmp_path: Path) -> None:
    first = cached_cubin(unit_of(including, DTYPES["half"], {}), "sm_90", tmp_path)
    assert first.code.startswith(b"\x7fELF")
    scale = including / "parts/scale.h"
    scale.write_text(scale.read_text().replace("2", "3"))
    again = cached_cubin(unit_of(including, DTYPES["half"], {}), "sm_90", tmp_path)
    assert again.code != first.code
    (including / "parts/own.h").write_text("\n#include <nowhere.h>\n")
    said = r"^own\.h:2 includes 'nowhere\.h', which is neither beside it nor .* brings those$"
    with pytest.raises(BuildError, match=said):
        cached_cubin(unit_of(including, DTYPES["half"], {}), "sm_90", tmp_path)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_element_type_is_one_of_cuda(dtype: str, tmp_path: Path) -> None:
    source = 'extern "C" __global__ void f(element_t v, element_t *d) { *d = v; }'
    (tmp_path / "kernel.cu").write_text(source)
    code = compile_cubin(unit_of(tmp_path, DTYPES[dtype], {}), "sm_90", tmp_path).code
    assert parameter_sizes(code) == {"f": (DTYPES[dtype].itemsize, 8)}


def test_names_of_cpp_are_launched_as_they_are_written(tmp_path: Path) -> None:
    asked = ("sum<element_t, TAP>", "sum<double, 2>")
    unit = Unit(TEMPLATES, "x", ("-Delement_t=signed char", "-DTAP=1"), expressions=asked)
    made = cached_cubin(unit, "sm_90", tmp_path)
    assert made == cached_cubin(unit, "sm_90", tmp_path)
    assert made.facts == {
        "sum<element_t, TAP>": EntryFacts("_Z3sumIaLi1EEvPT_a"),
        "sum<double, 2>": EntryFacts("_Z3sumIdLi2EEvPT_a"),
        "plain": EntryFacts("_Z5plainPfi"),
    }
    assert symbol_sizes(made.code)["taps"] == 12
    codes = by_entry(parse(listing(made.code)), made.facts)
    assert {*asked, "plain", "old"} < {*codes}
    assert codes["plain"].entry == "plain"

    cuda = SimpleNamespace(driver=SimpleNamespace(CUDADriverError=KeyError))
    written: list[Any] = []
    pointer = SimpleNamespace(copy_from_host=lambda *args: written.append(args))
    known = dict.fromkeys(parameter_sizes(made.code), "function")
    module = SimpleNamespace(get_function=known.__getitem__, get_global={"taps": pointer}.get)
    cupy = SimpleNamespace(cuda=cuda, RawModule=lambda path: module)
    program = CudaProgram(cupy, made, "", tmp_path)
    assert [program.function(e) for e in (*asked, "plain", "old")] == ["function"] * 4
    assert program.parameters["sum<double, 2>"] == (8, 1)
    with pytest.raises(BuildError, match=r"no kernel 'twice'; it has: .*_Z5twicePd, _Z5twicePf"):
        program.function("twice")
    taps = np.arange(3, dtype=np.float32)
    program.set_constant("taps", taps)
    assert written == [(taps.ctypes.data, 12)]
    with pytest.raises(BuildError, match="'taps' of 24 bytes; the code has 12 bytes for it"):
        program.set_constant("taps", taps.astype(np.float64))
    with pytest.raises(BuildError, match="the code has no symbol of this name"):
        program.set_constant("tap", taps)


def test_an_older_nvrtc(including: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    headers = tmp_path / "toolkit/include"
    headers.mkdir(parents=True)
    (headers / "own_toolkit.h").write_text("#define SEVEN 7\n")
    (headers / "cuda.h").write_text("#define CUDA_VERSION 12090\n")
    monkeypatch.setenv("CUDA_PATH", str(tmp_path / "toolkit"))
    monkeypatch.setattr(cubins, "bundled", lambda *_: ())
    source = '#include <own_toolkit.h>\nextern "C" __global__ void f(int *d) { *d = SEVEN; }'
    assert cached_cubin(Unit(source, "x"), "sm_90", tmp_path).log == ""
    (key,) = (tmp_path / "cubin").glob("*.json")
    (headers / "cuda.h").write_text("#define CUDA_VERSION 13000\n")
    cached_cubin(Unit(source, "x"), "sm_90", tmp_path)
    assert len([*(tmp_path / "cubin").glob("*.json")]) == 2, key


def test_opencl_says_what_it_has_not(opencl_device: Device, tmp_path: Path) -> None:
    (tmp_path / "kernel.cl").write_text('#include "own.h"\nkernel void f(global element_t *d) {}')
    (tmp_path / "own.h").write_text("#ifndef MORE\n#error no option\n#endif\n")
    opencl_device.build(tmp_path, DTYPES["uint16"], {}, ("-DMORE",))
    with pytest.raises(BuildError, match="no type 'float8_e4m3'; the backend cuda has"):
        opencl_device.build(tmp_path, DTYPES["float8_e4m3"], {})
    with pytest.raises(BuildError, match="no constant memory by the name of a symbol; pass 'taps'"):
        set_constants(opencl_device, None, {"taps": np.zeros(1)})
    workload = SimpleNamespace(name_expressions=lambda _: ("sum<int>",))
    folder: Any = SimpleNamespace(workload=workload)
    request, target = opencl_device.request, opencl_device.target
    with pytest.raises(BuildError, match="no templates, of which 'sum<int>' names an instance"):
        opencl.compile_version(request, folder, "float", Version("a"), target)
