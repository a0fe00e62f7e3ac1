"""Kernels that NVRTC does not compile: Triton's, and ready machine code."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from fakes import INFO
from gpushmoo.core.dtypes import triton_type
from gpushmoo.core.errors import BuildError, NoDeviceError
from gpushmoo.core.space import Version
from gpushmoo.devices.base import fitted
from gpushmoo.devices.build_file import BuildRequest, EntryFacts
from gpushmoo.devices.cuda.backend import compile_version
from gpushmoo.devices.machine_code import triton
from gpushmoo.devices.machine_code.cubins import Unit, compile_cubin
from gpushmoo.workloads.contract import BufferRef, Launch, NullRef, SharedMemory
from gpushmoo.workloads.loader import load_kernel

TRITON = """
import triton
import triton.language as tl

@triton.autotune([triton.Config({"BLOCK": 64})], key=["n"])
@triton.jit
def scale(dst, src, n, stride, BLOCK: tl.constexpr, FACTOR: tl.constexpr = 2):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(src + at * stride, mask=at < n)
    tl.store(dst + at * stride, value * FACTOR, mask=at < n)

@triton.jit
def total(dst, src, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(dst, tl.sum(tl.load(src + at, mask=at < n, other=0), 0))
"""
CUDA = 'extern "C" __global__ void scale(float *d, const float *s, int n) { d[n] = 2 * s[n]; }'
WORKLOAD = """
    compile_axes = ("BLOCK", "num_warps")

    def signature(self, dtype, version):
        return ("*fp32:16", "*fp32:16", "i32:16", "1") if self.kernel == "scale" else (
            "*fp32:16", "*fp32:16", "i32")

    def name_expressions(self, version):
        return (self.kernel,) if self.kernel else ()

    kernel = "scale"
"""


@pytest.fixture
def folder(make_kernel: Callable[..., Path]) -> Path:
    path = make_kernel("mine", CUDA, "", ("plain",))
    (path / "kernel.cu").unlink()
    (path / "kernel.cl").unlink()
    workload = path / "workload.py"
    text = workload.read_text()
    at = text.index("    def defines")
    text = text[:at] + WORKLOAD.lstrip("\n") + "\n" + text[at:]
    workload.write_text(text.replace("axes = {", 'axes = {"BLOCK": [64], "num_warps": [4], '))
    return path


def built(folder: Path, cache: Path, target: str = "sm_90", **values: int) -> Any:
    request = BuildRequest("cuda", "0", "auto", target, cache)
    version = Version("plain", tuple(values.items()))
    return compile_version(request, load_kernel(folder), "float", version, target)


def test_a_triton_kernel_is_compiled_for_its_arguments(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("triton")
    (folder / "kernel.triton.py").write_text(TRITON)
    made = built(folder, tmp_path, BLOCK=1024, num_warps=8)
    assert made.failure is None
    assert made.compiler.startswith("Triton 3.")
    assert made.facts == {"scale": EntryFacts("scale", (256, 1, 1), 0, 2, (3,))}
    ((entry,), loaded) = made.entries, [("load", 16), ("store", 16)]
    assert [(a["kind"], a["width"]) for a in entry["accesses"]] == loaded
    narrow = built(folder, tmp_path, BLOCK=1024, num_warps=4)
    assert narrow.facts["scale"].block == (128, 1, 1)
    workload = folder / "workload.py"
    workload.write_text(workload.read_text().replace('kernel = "scale"', 'kernel = "total"'))
    total = built(folder, tmp_path, BLOCK=1024, num_warps=4).facts["total"]
    assert total.shared_bytes > 0
    assert total.left_out == ()
    with pytest.raises(BuildError, match="no axis gives the constant 'BLOCK'"):
        built(folder, tmp_path, num_warps=4)
    workload.write_text(workload.read_text().replace('kernel = "total"', 'kernel = ""'))
    with pytest.raises(BuildError, match=r"has not one kernel, .*: scale, total"):
        built(folder, tmp_path, BLOCK=1024)
    (folder / "kernel.triton.py").write_text(TRITON.replace("tl.sum", "tl.summe"))
    workload.write_text(workload.read_text().replace('kernel = ""', 'kernel = "total"'))
    with pytest.raises(BuildError, match=r"kernel\.triton\.py does not compile: .*summe"):
        built(folder, tmp_path, BLOCK=1024)
    (folder / "kernel.triton.py").write_text("import nowhere\n")
    with pytest.raises(BuildError, match="ModuleNotFoundError: No module named 'nowhere'"):
        built(folder, tmp_path, BLOCK=1024)


def test_without_triton(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "triton", None)
    (folder / "kernel.triton.py").write_text(TRITON)
    with pytest.raises(NoDeviceError, match=r"Triton is missing .* install the extra 'triton'\."):
        built(folder, tmp_path, BLOCK=64, num_warps=4)


def test_arguments_are_specialised_as_tritons_launcher_does() -> None:
    def param(name: str, constant: bool = False, **default: Any) -> Any:
        return SimpleNamespace(
            name=name, is_constexpr=constant, has_default=bool(default), **default
        )

    params = [param("d"), param("n"), param("one"), param("B", True), param("C", True, default=7)]
    kernel = SimpleNamespace(params=params, __name__="k")
    types = [triton_type(v) for v in (np.zeros(3, np.float16), np.int32(32), np.int64(1))]
    assert types == ["*fp16:16", "i32:16", "1"]
    assert triton.specialised(kernel, {"B": "64"}, types) == (
        {"one": 1, "B": 64, "C": 7},
        {"d": "*fp16", "n": "i32", "one": "constexpr", "B": "constexpr", "C": "constexpr"},
        {(0,): [["tt.divisibility", 16]], (1,): [["tt.divisibility", 16]]},
        (2,),
    )
    assert triton.specialised(kernel, {"B": "relu"}, types)[0]["B"] == "relu"
    with pytest.raises(BuildError, match="'k' takes d, n, one, the workload's signature has 1 ty"):
        triton.specialised(kernel, {}, types[:1])
    assert [triton_type(v) for v in (np.uint32(17), np.float64(1), np.bool_(True))] == [
        "u32",
        "fp64",
        "i1",
    ]
    assert triton_type(np.dtype(ml_dtypes.bfloat16)) == "*bf16:16"
    with pytest.raises(ValueError, match="no type 'complex64'"):
        triton_type(np.complex64(1))


def test_a_launch_is_completed_from_what_the_compiler_chose() -> None:
    asked: list[Any] = []
    facts = {"k": EntryFacts("k_0d1d", (256, 1, 1), 1024, 2, (1,))}
    program: Any = SimpleNamespace(
        facts=facts, resident_blocks=lambda *args: asked.append(args) or 2
    )
    args = (BufferRef("d"), np.int32(1), np.int32(7))
    launch = Launch("k", (4096, 1, 1), (1, 1, 1), args, tiles=4096, waves=1)
    done = fitted(launch, program, INFO)
    assert [(launch.entry, launch.threads, launch.shared_bytes) for (launch,) in asked] == [
        ("k", 256, 1024)
    ]
    assert (done.block, done.shared_bytes) == ((256, 1, 1), 1024)
    assert done.args == (BufferRef("d"), np.int32(7), NullRef(), NullRef(), SharedMemory(1024))
    assert done.blocks <= 2 * INFO.multiprocessors
    assert fitted(done, program, INFO) == done
    plain: Any = SimpleNamespace(facts={})
    own = Launch("k", (1, 1, 1), (32, 1, 1), args, tiles=1)
    assert fitted(own, plain, INFO) is own


def test_ready_machine_code_is_taken_as_it_is(folder: Path, tmp_path: Path) -> None:
    code = compile_cubin(Unit(CUDA.replace('extern "C" ', ""), "x"), "sm_90").code
    (folder / "kernel.cubin").write_bytes(code)
    before = load_kernel(folder).digest(".cu")
    made = built(folder, tmp_path, BLOCK=1, num_warps=1)
    assert (made.code, made.compiler, made.status) == (code, "kernel.cubin", None)
    assert made.facts == {"scale": EntryFacts("_Z5scalePfPKfi")}
    assert [entry["entry"] for entry in made.entries] == ["scale"]
    with pytest.raises(BuildError, match="holds code for sm_90, this device runs 'sm_100'"):
        built(folder, tmp_path, "sm_100")
    (folder / "kernel.cubin").write_bytes(code + b"//x\n")
    assert load_kernel(folder).digest(".cu") != before
    (folder / "kernel.cubin").write_bytes(b"text")
    with pytest.raises(BuildError, match=r"kernel\.cubin is not CUDA machine code"):
        built(folder, tmp_path)
