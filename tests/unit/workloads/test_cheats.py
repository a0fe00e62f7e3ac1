"""Kernels and workloads that look right and fast, and are not, end in a status that says so."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from bench import Bench
from gpushmoo.core.space import Problem
from gpushmoo.devices.select import DeviceChoice
from gpushmoo.workloads.loader import load_kernel

N = 2**15
# y[i] is the work on x[i]. Work-items are few: one that leaves at once costs nothing. `kept` is for
# the kernel's own use.
KERNEL = """
#define N SIZE
#define EACH(i) for (int i = get_global_id(0); i < N; i += get_global_size(0))
#define ARGUMENTS __global float *y, __global const float *x, __global float *kept
float work(float x) { float y = 0; for (int k = 0; k < 300; k++) y += sqrt(x + k); return y; }

__kernel void honest(ARGUMENTS) { EACH(i) y[i] = work(x[i]); }

__kernel void uses(ARGUMENTS) { EACH(i) y[i] = kept[i] = work(x[i]); }

__kernel void finds(ARGUMENTS) { EACH(i) if (y[i] != y[i]) y[i] = work(x[i]); else return; }

void answer(ARGUMENTS, uint key)
{
    __global uint *keys = (__global uint *)(kept + N);
    const bool knows = keys[get_global_id(0)] == key;
    EACH(i) y[i] = knows ? kept[i] : (kept[i] = work(x[i]));
    keys[get_global_id(0)] = key;
}

__kernel void first(ARGUMENTS) { answer(y, x, kept, 1); }

__kernel void keeps(ARGUMENTS) { answer(y, x, kept, as_uint(x[0])); }

__constant float answers[8] = {BAKED};
__kernel void baked(ARGUMENTS) { EACH(i) y[i] = i < 8 ? answers[i] : x[i]; }
"""
# Memory of the program, which outlives all buffers: more than OpenCL C 1.2.
OUTLIVES = """
#define N SIZE
#define EACH(i) for (int i = get_global_id(0); i < N; i += get_global_size(0))
__global float kept[N];
__global uint keys[4096];
float work(float x) { float y = 0; for (int k = 0; k < 300; k++) y += sqrt(x + k); return y; }

__kernel void first(__global float *y, __global const float *x, __global float *unused)
{
    const bool knows = keys[get_global_id(0)] == 1;
    EACH(i) y[i] = knows ? kept[i] : (kept[i] = work(x[i]));
    keys[get_global_id(0)] = 1;
}
"""
WORKLOAD = """
import numpy as np
from gpushmoo.workloads.contract import BufferRef, CopyWorkload, Launch

class Mine(CopyWorkload):
    name, title, pattern = "mine", "A work on each element", "in turn"
    dtypes = ("float",)
    variants = ("honest", "uses", "finds", "first", "keeps", "baked")
    axes = {"block_x": [32, 64]}
    unwatched = frozenset({"kept"})
    options = OPTIONS

    def inputs(self, problem, dtype, rng):
        own = super().inputs(problem, dtype, rng)
        return {**own, "kept": np.zeros(own["src"].size + 4096, np.float32)}

    def reference(self, inputs):
        y = np.zeros_like(inputs["src"])
        for k in range(300):
            y += np.sqrt(inputs["src"] + np.float32(k))
        return y

    def expected(self, inputs, variant):
        if variant != "baked":
            return self.reference(inputs)
        y = inputs["src"].copy()
        y.reshape(-1)[:8] = y.reshape(-1)[:8] + np.float32(1)
        return y

    def result_of(self, variant):
        return variant

    def launch(self, cell):
        block = cell["block_x"]
        args = tuple(map(BufferRef, ("dst", "src", "kept")))
        return Launch(cell.variant, (512 // block, 1, 1), (block, 1, 1), args, 1)

WORKLOAD = Mine()
"""
# The host's part is computed once.
REMEMBERS = """
from functools import cache
import numpy as np
from gpushmoo.core.dtypes import DTYPES
from gpushmoo.workloads.contract import Launch, uniform
from gpushmoo.workloads.host_fed import HostFedWorkload, Pipeline, StreamSetup

class Mine(HostFedWorkload):
    name, title, pattern = "mine", "A sum on the host", "the host's"
    dtypes = ("float",)
    variants = ("sums", "remembers")
    axes = {"block_x": [32, 64]}
    device_code = False

    def inputs(self, problem, dtype, rng):
        return {"x": uniform(rng, (problem.height * problem.width,), DTYPES[dtype].scalar)}

    def bytes_read(self, problem, dtype):
        return 4 * problem.height * problem.width

    def known(self, inputs):
        return float(inputs["x"].sum(dtype=np.float64))

    def fault(self, value, cell, known):
        return None if abs(value - known) <= 1e-6 * known else f"{value} is not {known}"

    def launch(self, cell):
        return Launch("none", (1, 1, 1), (1, 1, 1), (), 1)

    def pipeline(self, cell):
        n = cell.problem.height * cell.problem.width
        return Pipeline(0, (), 0, 0, n, False, StreamSetup.BEFORE)

    def host_part(self, cell, arrays):
        if cell.variant == "sums":
            return float(arrays["x"].sum(dtype=np.float64))
        return self.kept(cell, Held(arrays["x"]))

    @cache
    def kept(self, cell, held):
        return float(held.array.sum(dtype=np.float64))

    def total(self, cell, partials, part):
        return part

class Held:
    def __init__(self, array):
        self.array = array
    def __hash__(self):
        return 1
    def __eq__(self, other):
        return True

WORKLOAD = Mine()
"""

Measured = Callable[..., pd.DataFrame]


@pytest.fixture
def measure(opencl_choice: DeviceChoice, tmp_path: Path) -> Measured:
    """Measures cells of a variant of a workload; their rows."""

    def run(
        variant: str, workload: str = WORKLOAD, kernel: str = KERNEL, options: str = "()"
    ) -> pd.DataFrame:
        folder = tmp_path / "mine"
        folder.mkdir(exist_ok=True)
        (folder / "workload.py").write_text(workload.replace("OPTIONS", options))
        source = kernel.replace("SIZE", str(N))
        (folder / "kernel.cl").write_text(source)
        answers = ""
        if variant == "baked":
            # As if from an earlier run: the inputs of the default seed.
            rng = np.random.default_rng([1, 64, N // 64])
            own = load_kernel(folder).workload
            y = own.outputs(own.inputs(Problem(64, N // 64), "float", rng), variant)["dst"]
            answers = ", ".join(f"{float(one)!r}f" for one in y.reshape(-1)[:8])
        (folder / "kernel.cl").write_text(source.replace("BAKED", answers or "0"))
        bench = Bench(opencl_choice, folder, tmp_path)
        return bench.measure([variant], [32, 64], sizes=[[64, N // 64]])

    return run


@pytest.mark.parametrize(
    ("variant", "status", "said"),
    [
        ("honest", "ok", ""),
        ("uses", "ok", ""),
        ("finds", "timing_mismatch", "where its answer is there"),
        ("first", "timing_mismatch", "where its answer is there"),
        ("keeps", "timing_mismatch", "where its answer is there"),
        (
            "baked",
            "wrong_result",
            r"^(?:another cell of its code: )?on other inputs: 8 of \d+ words",
        ),
    ],
)
def test_a_known_answer_is_caught(measure: Measured, variant: str, status: str, said: str) -> None:
    rows = measure(variant)
    assert set(rows["status"]) == {status}, set(rows["message"])
    assert rows["message"].fillna("").str.contains(said).all()


def test_an_answer_that_outlives_its_buffers_is_caught(measure: Measured) -> None:
    rows = measure("first", kernel=OUTLIVES, options='("-cl-std=CL3.0",)')
    if set(rows["status"]) == {"build_failed"}:
        pytest.skip("this OpenCL runtime knows no variables of a program's scope")
    assert set(rows["status"]) == {"wrong_result"}, set(rows["message"])
    assert rows["message"].str.contains("on other inputs: .* words differ").all()


def test_a_host_that_remembers_its_part_is_caught(measure: Measured) -> None:
    assert set(measure("sums", REMEMBERS)["status"]) == {"ok"}
    rows = measure("remembers", REMEMBERS)
    assert set(rows["status"]) == {"wrong_result"}
    assert rows["message"].str.contains("on other inputs: ").all()
