"""Kernel Tuner's functions by gpushmoo, beside Kernel Tuner's own where these need no device."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import gpushmoo
import jsonschema
import numpy as np
import pytest
from conftest import environment
from gpushmoo.extras.compat import kernel_tuner as shim
from kernel_tuner import util

N = 1003
X = np.random.default_rng(5).uniform(1, 2, N).astype(np.float32)
ARGUMENTS = [np.zeros(N, np.float32), X, X[::-1].copy(), np.int32(N)]
ADD = """
__kernel void add(__global float *c, __global const float *a, __global float *b, int n)
{
    int i = get_group_id(0) * block_size_x + get_local_id(0);
    if (i < n)
        c[i] = a[i] + (wrong ? 2 : 1) * b[i];
}
"""


def tuned(**changed: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    asked: dict[str, Any] = {
        "kernel_name": "add",
        "kernel_source": ADD,
        "problem_size": N,
        "arguments": ARGUMENTS,
        "tune_params": {"block_size_x": [32, 64], "wrong": [0]},
        "quiet": True,
        **changed,
    }
    results, env = shim.tune_kernel(**asked)
    return results, env


def kernel(**changed: Any) -> Any:
    asked = {"kernel_name": "add", "kernel_source": ADD, "problem_size": N, "arguments": []}
    given = shim._given(shim._OF_TUNE.split(), (), {"tune_params": {}, **asked, **changed})
    return shim._Kernel(given, changed.get("tune_params", {}))


def test_results_are_of_kernel_tuners_shape_and_a_wrong_one_costs_itself_alone() -> None:
    metrics = {"GB/s": f"{12 * N} / (time / 1e3) / 1e9", "twice": lambda p: 2 * p["GB/s"]}
    with pytest.warns(UserWarning, match="1 of 2 configurations: WrongResultConfig, 1003 of 1003"):
        results, env = tuned(
            tune_params={"block_size_x": [32, 2**20], "wrong": [0, 1]},
            answer=[X + X[::-1], None, None, None],
            metrics=metrics,
        )
    # None has more threads than the device allows.
    assert [(r["block_size_x"], r["wrong"]) for r in results] == [(32, 0), (32, 1)]
    right, wrong = results
    assert right["time"] == pytest.approx(np.median(right["times"]), rel=0.2)
    assert right["GB/s"] == pytest.approx(12e-6 * N / right["time"])
    assert right["twice"] == 2 * right["GB/s"]
    assert "time" not in wrong
    assert isinstance(wrong["__error__"], shim.ErrorConfig)
    assert str(wrong["__error__"]) == "WrongResultConfig"
    assert wrong["__error__"][:].startswith("1003 of 1003 elements are off")
    assert env["best_config"] == right
    assert env["tied_configs"] == [{"block_size_x": 32, "wrong": 0}]
    assert env["device_name"]


def test_the_best_configuration_is_by_the_objective() -> None:
    """A rate is better if it is higher, unless the script says otherwise; all else if lower."""
    metrics = {"GB/s": "block_size_x", "cost": "block_size_x"}
    for objective, higher, best in (
        ("GB/s", None, 64),
        ("GB/s", False, 32),
        ("cost", None, 32),
        ("cost", True, 64),
    ):
        _, env = tuned(metrics=metrics, objective=objective, objective_higher_is_better=higher)
        assert env["best_config"]["block_size_x"] == best, (objective, higher)


def test_a_configuration_that_does_not_compile_or_run_has_kernel_tuners_error() -> None:
    with pytest.warns(UserWarning, match="1 of 2 configurations: CompilationFailedConfig"):
        results, env = tuned(tune_params={"block_size_x": [32], "wrong": ["missing", "0"]})
    assert [str(r.get("__error__")) for r in results] == ["CompilationFailedConfig", "None"]
    # Without an answer nothing is compared.
    assert env["best_config"]["wrong"] == "0"


@pytest.mark.parametrize(
    ("restrictions", "kept"),
    [
        ("block_size_x > wrong * 32", [(32, 0), (64, 0), (64, 1)]),
        (["block_size_x == 64", "wrong == 0"], [(64, 0)]),
        (lambda p: p["block_size_x"] + p["wrong"] == 33, [(32, 1)]),
        ([lambda wrong, block_size_x: wrong == 1, "block_size_x == 32"], [(32, 1)]),
    ],
)
def test_restrictions_are_expressions_and_functions(restrictions: Any, kept: Any) -> None:
    params = {"block_size_x": [32, 64], "wrong": [0, 1]}
    given = {"restrictions": restrictions, "strategy": None, "strategy_options": None}
    found = shim._configurations(params, given)
    assert [tuple(one.values()) for one in found] == kept


SIZES = [100, (100, 37), ("n_blocks", 5), "n_blocks * 3", lambda p: (p["n_blocks"], 1, 9)]
DIVISORS: list[Any] = [
    {},
    {"grid_div_x": [], "grid_div_y": ["block_size_y", "tile"]},
    {"grid_div_x": ["block_size_x/tile", "tile * 2"], "grid_div_z": "tile"},
    {"grid_div_x": lambda p: p["block_size_x"] / 3, "grid_div_y": 7},
]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("divisors", DIVISORS)
@pytest.mark.parametrize("names", [None, ["tile", "block_size_x"]])
def test_blocks_and_grids_are_kernel_tuners(size: Any, divisors: Any, names: Any) -> None:
    params = {"block_size_x": 32, "block_size_y": 3, "tile": 4, "n_blocks": 51}
    ours = kernel(problem_size=size, block_size_names=names, **divisors).instance(params)
    theirs = [*(names or []), *util.default_block_size_names[len(names or []) :]]
    by = tuple(divisors.get(f"grid_div_{side}") for side in "xyz")
    assert ours[1:3] == util.setup_block_and_grid(size, by, params, theirs)


@pytest.mark.parametrize("lang", ["CUDA", "OpenCL"])
@pytest.mark.parametrize("defines", [None, {}, {"WIDTH": "2 * tile", "T": lambda p: p["kind"]}])
def test_macros_and_texts_are_kernel_tuners(lang: str, defines: Any) -> None:
    """A factor of 0 takes the pragma out; else CUDA needs a constant."""
    text = "\n#pragma unroll loop_unroll_factor_a\n#pragma unroll loop_unroll_factor_b\n"
    params = {"loop_unroll_factor_a": 0, "loop_unroll_factor_b": 4, "tile": 8, "kind": "float"}
    own = kernel(kernel_source=lambda p: text, lang=lang, defines=defines)
    _, block, grid, _, macros, made = own.instance(params)
    _, theirs = util.prepare_kernel_string(
        "add", text, params, grid, block, [*util.default_block_size_names], lang, defines
    )
    told = {f"#define {k} {v}" for k, v in macros.items() if not k.startswith("GPUSHMOO_")}
    lines = theirs.splitlines()
    assert told == {line for line in lines if line.startswith("#define")}
    kept = [line for line in lines if not line.startswith(("#define", "#line"))]
    assert [line for line in made.splitlines() if not line.startswith("#line")] == kept


def generated(params: dict[str, Any]) -> str:
    return ADD.replace("block_size_x", str(params["threads"])).replace("wrong", "0")


def test_generated_code_block_names_and_a_function_that_verifies() -> None:
    def verify(answer: Any, result: Any, atol: float) -> Any:
        assert result[1:] == [None, None, None]
        return np.isclose(answer[0], result[0].sum(), rtol=1e-5, atol=atol)

    answer = [np.float64(2 * X.sum(dtype=np.float64)), None, None, None]
    asked = {"kernel_source": generated, "lang": "OpenCL", "block_size_names": ["threads"]}
    asked |= {"tune_params": {"threads": [16, 32]}, "verify": verify}
    results, _ = tuned(**asked, answer=answer)
    assert all("time" in result for result in results)
    with pytest.warns(UserWarning, match="its caller's check fails"):
        results, _ = tuned(**asked, answer=[answer[0] + 10, None, None, None])
    assert {str(result["__error__"]) for result in results} == {"WrongResultConfig"}


def test_run_kernel_gives_what_a_launch_leaves(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    Path("add.cl").write_text(ADD)
    params = {"block_size_x": 64, "wrong": 0}
    found = shim.run_kernel("add", "add.cl", (N, 1), ARGUMENTS, params)
    assert np.array_equal(found[0], X + X[::-1])
    assert np.array_equal(found[1], X)
    assert found[3] == N
    assert not ARGUMENTS[0].any()
    with pytest.raises(RuntimeError, match=r"add: .*does not compile"):
        shim.run_kernel("add", ADD, N, ARGUMENTS, {"block_size_x": 64})


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"observers": [1]}, "observers: nothing but time is observed here; leave them out"),
        ({"texmem_args": {"t": X}}, "texmem_args: CUDA has no texture references"),
        ({"simulation_mode": True}, "simulation_mode: nothing is simulated"),
        ({"cache": "kept.json"}, "cache: cache files are not read here"),
        ({"lang": "HIP"}, "lang: 'HIP' is not tuned here; it must be CUDA or OpenCL"),
        ({"kernel_source": "void f(int *x) {}"}, "lang: 'C' is not tuned here"),
        ({"kernel_source": [ADD, "b.cl"]}, "kernel_source: one text, file or function"),
        ({"kernel_source": generated}, "lang: a function as kernel_source needs"),
        ({"restrictions": "wrong > 5"}, "restrictions: no configuration meets them"),
        ({"restrictions": [3]}, "restrictions: 3 is neither an expression nor a function"),
        ({"answer": [X]}, "answer: it has 1 entries for 4 arguments"),
    ],
)
def test_what_is_not_taken_over_is_one_sentence(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(gpushmoo.ConfigError, match=said):
        tuned(**changed)


def test_a_strategy_is_a_random_sample() -> None:
    params = {"block_size_x": [16, 32, 64, 128], "wrong": [0]}
    given = {"restrictions": None, "strategy": "pso", "seed": 3}
    for options, n in (({"max_fevals": 2}, 2), ({}, 4), ({"max_fevals": 9}, 4)):
        with pytest.warns(UserWarning, match=f"strategy: {n} of 4 configurations"):
            found = shim._configurations(params, {**given, "strategy_options": options})
        assert len({one["block_size_x"] for one in found}) == n


def test_unknown_and_missing_arguments_are_named() -> None:
    with pytest.raises(TypeError, match=r"arguments: parallel_runner$"):
        tuned(parallel_runner=3)
    with pytest.raises(TypeError, match=r"arguments: params, problem_size$"):
        shim.run_kernel("add", ADD, arguments=[])


SCRIPT = f'''
import sys
import numpy
import kernel_tuner
from kernel_tuner.file_utils import store_metadata_file, store_output_file
from kernel_tuner.util import get_best_config, get_config_string

def tune():
    x = numpy.ones({N}).astype(numpy.float32)
    params = dict(block_size_x=[32, 64], wrong=[0])
    arguments = [x, x, x, numpy.int32({N})]
    results, env = kernel_tuner.tune_kernel(
        "add", """{ADD}""", {N}, arguments, params, verbose=True,
        strategy=kernel_tuner.strategies.brute_force)
    store_output_file("told.json", results, params)
    store_metadata_file("where.json")
    print(get_config_string(get_best_config(results, "time"), ["wrong"]), sys.argv[1:])

if __name__ == "__main__":
    tune()
'''


def test_a_script_runs_as_it_is_and_its_files_are_t4(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "gpushmoo.extras.compat.kernel_tuner", "script.py", "--more"]
    made = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    assert "\nBest:\nblock_size_x=" in made.stdout
    assert made.stdout.endswith("\nwrong=0 ['--more']\n")
    told = json.loads((tmp_path / "told.json").read_text())
    spec = importlib.util.find_spec("kernel_tuner")
    assert spec
    assert spec.origin
    schemas = Path(spec.origin).parent / "schema/T4/1.0.0"
    jsonschema.validate(told, json.loads((schemas / "results-schema.json").read_text()))
    where = json.loads((tmp_path / "where.json").read_text())
    jsonschema.validate(where, json.loads((schemas / "metadata-schema.json").read_text()))
    (tmp_path / "script.py").write_text("from kernel_tuner.observers.nvml import NVMLObserver")
    made = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True)
    assert made.returncode == 1
    said = "gpushmoo: 'kernel_tuner.observers' is not supported; there are kernel_tuner, "
    assert made.stderr.startswith(said)
