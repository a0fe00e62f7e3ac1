"""`gpushmoo.tune`: any kernel by one call, and wrong ones named. OpenCL on the CPU."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gpushmoo
import ml_dtypes
import numpy as np
import pytest
from calls import grouped
from gpushmoo.interactive import measure
from gpushmoo.interactive.shell import main
from gpushmoo.workloads.tolerances import key_format, sum_bound

N = 1003
RNG = np.random.default_rng(38)
X = RNG.uniform(1, 2, N).astype(np.float32)
X[7] = 0

# Each KIND but the first is wrong in its own way; F is the element's type.
FLOATS = """
__kernel void twice(__global float *y, __global float *x, const int n, __global int *count)
{
    const int i = get_global_id(0);
    if (i == 0)
        count[0] = KIND == 12 ? n - 1 : n;
    if (i >= n)
        return;
    float v = 2 * x[i];
    const int two = 5;
    if (KIND == 1 && i == two) v = as_float(as_int(v) + 3);
    if (KIND == 2 && i == two) v = as_float(as_int(v) - 3);
    if (KIND == 3 && i == two) v = NAN;
    if (KIND == 4 && i == two) v = INFINITY;
    if (KIND == 5 && i == two) v = -v;
    if (KIND == 6 && i == two) return;
    if (KIND == 7 && i == n - 1) return;
    if (KIND == 8 && i == n - 1) y[n] = 1;
    if (KIND == 9 && i == 0) y[-1] = 1;
    if (KIND == 10 && i == two) x[two] = 0;
    if (KIND == 11 && i == 7) v = 1e-40f;
    if (KIND == 13 && i == two) count[1] = 3;
    y[i] = KIND == 14 && i == two ? as_float(as_int(v) + 2) : v;
}
"""
SAID = {
    1: r"^1 of 1003 elements of 'y' are off by more than 2 ulp, the worst by 3 ulp, the first at",
    2: "the worst by 3 ulp",
    3: r"off by more than 2 ulp, the first at \[5\]: expected .*, found nan$",
    4: r"off by more than 2 ulp, the worst|found inf$",
    5: r"the first at \[5\]: expected (.*), found -\1",
    6: r"the first at \[5\]: .*never written",
    7: r"the first at \[1002\]: .*never written",
    8: "wrote 1 word past the end of 'y'",
    9: "wrote 1 word before the beginning of 'y'",
    10: "changed its input 'x'",
    11: r"the first at \[7\]: expected 0.0, found 1e-40",
    12: r"1 of 1 words of 'count' differ, the first at \[0\]: expected 1003, found 1002",
    13: "wrote 1 word past the end of 'count'",
}


def tuned(source: str, name: str, arguments: Any, **asked: Any) -> gpushmoo.Tuned:
    asked = {"backend": "opencl", "progress": False, "max_samples": 6, "min_samples": 6, **asked}
    return gpushmoo.tune(source, name, arguments, N, **grouped(**asked))


def messages(result: gpushmoo.Tuned, axis: str) -> dict[Any, str | None]:
    """By the values of an axis the message of a wrong result, None of a right one."""
    cells = result.cells
    assert set(cells["status"]) <= {"ok", "wrong_result"}, set(cells["message"].dropna())
    told = zip(cells[axis], cells["status"], cells["message"], strict=True)
    return {value: None if status == "ok" else said for value, status, said in told}


def test_wrong_floats_and_writes_beside_are_named_and_right_ones_within_the_limit_are_not() -> None:
    """Two outputs, one an integer that must be exact in spite of the limit."""
    arguments = {"y": X, "x": X, "n": np.int32(N), "count": np.zeros(1, np.int32)}
    result = tuned(
        FLOATS,
        "twice",
        arguments,
        axes={"KIND": range(15), "block_x": [64]},
        expect={"y": 2 * X, "count": np.array([N], np.int32)},
        ulp=2,
    )
    said = messages(result, "KIND")
    assert [kind for kind, text in said.items() if text is None] == [0, 14]
    for kind, pattern in SAID.items():
        assert re.search(pattern, str(said[kind])), (kind, said[kind])
    errors = result.cells.set_index("KIND")["worst_error"]
    assert (errors[0], errors[14], errors[1]) == (0, 1, 1.5)


PARTS = """
__kernel void parts(__global T *y, __global const T *x, const int n)
{
    const int i = get_global_id(0);
    if (i >= n)
        return;
    if (KIND == 1 && i == 4 || KIND == 2 && i == n - 1)
        return;
    if (KIND == 3 && i == n - 1) y[n] = 77;
    y[i] = KIND == 4 && i == n - 1 ? x[i] + 1 : x[i];
}
"""


@pytest.mark.parametrize("scalar", ["uint8", "int8", "int16", "uint64"])
def test_unwritten_integers_that_equal_the_poison_and_partial_strays(scalar: str) -> None:
    """Element 4 and the last are all ones, as the poison is."""
    x = RNG.integers(0, 100, N).astype(scalar)
    x[[4, N - 1]] = np.array(-1).astype(scalar)
    words = {"uint8": "uchar", "int8": "char", "int16": "short", "uint64": "ulong"}
    source = f"#define T {words[scalar]}\n{PARTS}"
    axes = {"KIND": range(5), "block_x": [64]}
    said = messages(tuned(source, "parts", [x, x, np.int32(N)], axes=axes, expect=x), "KIND")
    assert said[0] is None
    assert "[4]" in str(said[1])
    assert f"[{N - 1}]" in str(said[2])
    # The rest of the last word; of uint64 there is none.
    assert re.search("differ|past the end of 'y'", str(said[3]))
    assert f"[{N - 1}]" in str(said[4])


HISTOGRAM = """
__kernel void count(__global int *bins, __global const uchar *x, const int n)
{
    for (int i = get_global_id(0) + (KIND == 1); i < n; i += get_global_size(0))
        atomic_add(&bins[x[i]], 1);
    if (KIND == 2 && get_global_id(0) == 0)
        atomic_add(&bins[9], 1);
}
"""


@pytest.mark.parametrize("resets", [True, False])
def test_an_output_that_is_read_has_its_content_at_each_verification(resets: bool) -> None:
    x = RNG.integers(0, 16, N).astype(np.uint8)
    arguments = [np.full(16, 5, np.int32), x, np.int32(N)]
    asked: Mapping[str, Any] = {
        "axes": {"KIND": [0, 1, 2], "block_x": [16], "groups": [1, 4]},
        "grid": "groups",
        "expect": [5 + np.bincount(x, minlength=16), None, None],
        "resets": resets,
    }
    said = messages(tuned(HISTOGRAM, "count", arguments, in_place=[0], **asked), "KIND")
    assert said[0] is None
    assert "differ" in str(said[1])
    assert "[9]" in str(said[2])
    cleared = {**asked, "expect": [np.bincount(x, minlength=16), None, None]}
    poisoned = messages(tuned(HISTOGRAM, "count", arguments, **cleared), "KIND")
    assert "in_place" in str(poisoned[0])


def test_an_in_place_kernel_that_does_nothing_is_told_so() -> None:
    source = """
__kernel void negate(__global float *x, const int n)
{
    const int i = get_global_id(0);
    if (i < n && (KIND == 0 || i != 3))
        x[i] = -x[i];
}
"""
    asked: Mapping[str, Any] = {"axes": {"KIND": [0, 1], "block_x": [64]}, "in_place": ["x"]}
    said = messages(tuned(source, "negate", [X, np.int32(N)], expect=[-X, None], **asked), "KIND")
    assert said[0] is None
    assert re.search(r"the first at \[3\]: .*\(not changed\)$", str(said[1]))
    with pytest.raises(gpushmoo.ConfigError, match="already holds what is expected"):
        tuned(source, "negate", [X, np.int32(N)], expect=[X, None], **asked)


def test_axes_may_be_texts_and_floats_and_numbers_of_a_launch_expressions_or_functions() -> None:
    source = """
__kernel void scale(__global float *y, __global const float *x, const int n)
{
    for (int i = get_global_id(0); i < n; i += STEP)
        y[i] = BY * x[i];
}
"""
    asked: Mapping[str, Any] = {
        "axes": {"BY": [0.5, -2.0], "STEP": ["get_global_size(0)", "1"], "block_x": [32, 64]},
        "valid": ["BY < 0 or STEP != '1'", lambda cell: cell["STEP"] != "1"],
        "expect": X / 2,
    }
    result = tuned(source, "scale", [X, X, np.int32(N)], grid="min(4, ceil(n / block_x))", **asked)
    assert result.statuses == {"ok": 2, "wrong_result": 2, "invalid": 4}
    assert result.winner["BY"] == 0.5
    assert result.winner["STEP"] == "get_global_size(0)"
    assert set(result.best["BY"]) == {0.5}
    assert "no GB/s, since `bytes_moved` is not given" in repr(result)
    assert all(f"{axis}={value}" in repr(result) for axis, value in result.winner.items())
    again = tuned(
        source,
        "scale",
        {"y": X, "x": X, "n": np.int32(N)},
        block=lambda cell: (cell["block_x"],),
        grid=lambda cell: (-(-cell["n"] // cell["block_x"]), 1),
        **asked,
    )
    assert again.statuses == result.statuses


def test_a_call_becomes_a_folder_that_is_swept_as_any_other(tmp_path: Path) -> None:
    axes = {"KIND": [0], "block_x": [32, 64]}
    source = f"#define T uchar\n{PARTS}"
    x = RNG.integers(0, 100, N).astype(np.uint8)
    made = tuned(source, "parts", [x, x, np.int32(N)], axes=axes, expect=x).to_folder(tmp_path)
    assert made == tmp_path / "parts"
    # What the pickle holds, for a reader.
    page = (made / "README.md").read_text()
    for words in (
        "axis block_x`: `[32, 64]`",
        "axis KIND`: `[0]`, a macro",
        "int32 1003",
        "uint8, shape",
    ):
        assert words in page
    assert gpushmoo.sweep(made, progress=False).statuses == {"ok": 2}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"arguments": [X, X, N]}, r"arguments: 'n' is 1003; .* such as np.int32\(1003\)\.$"),
        ({"expect": X[:5]}, r"expect: no argument fits its shape \(5,\); there are y \(1003,\)"),
        ({"expect": [X]}, "expect: 1 entries for 3 arguments"),
        ({"expect": {"z": X}}, "expect: there is no argument 'z'; there are: y, x, n"),
        ({"in_place": ["n"]}, "'n' is not an array"),
        ({"axes": {"a b": [1]}}, "axes: axis 'a b' must be called"),
        ({"axes": {"blockx": [32]}}, "block: it is not given, nor is an axis block_x"),
        ({"axes": {"KIND": []}}, "axes: 'KIND' has no values"),
        ({"grid": "ceil(n / "}, r"grid: 'ceil\(n / ' is not an expression"),
        ({"grid": "ceil(m / 64)"}, "grid: there is no 'm'; there are: size, n, width, KIND"),
        ({"valid": ["n > 0", lambda cell: cell["KINDD"]]}, "valid: there is no 'KINDD'"),
        ({"name": "prats"}, "name: the source has no kernel 'prats'; it has: parts"),
        ({"arguments": [X, X]}, r"'parts' takes 3 \(y, x, n\), not 2"),
        ({"source": "kernel.txt"}, "source: 'kernel.txt' ends in none of"),
        ({"source": "kernel.cl"}, "source: 'kernel.cl' cannot be read"),
    ],
)
def test_a_mistake_in_a_call_is_one_sentence(changed: Mapping[str, Any], said: str) -> None:
    asked = {"source": f"#define T float\n{PARTS}", "arguments": [X, X, np.int32(N)]}
    asked |= {"axes": {"KIND": [0]}, "expect": X, **changed}
    with pytest.raises(gpushmoo.ConfigError, match=said):
        tuned(asked.pop("source"), asked.pop("name", "parts"), asked.pop("arguments"), **asked)


def test_an_error_in_an_expression_names_the_callers_argument() -> None:
    x, axes = X, {"KIND": [0], "block_x": [64]}
    source = f"#define T float\n{PARTS}"
    with pytest.warns(UserWarning, match="Tuned of parts: 1 workload_failed: grid: ZeroDivision"):
        result = tuned(source, "parts", [x, x, np.int32(N)], axes=axes, grid="n // KIND", expect=x)
    assert set(result.cells["message"]) == {
        "grid: ZeroDivisionError: integer division or modulo by zero"
    }


@pytest.mark.parametrize(
    "wrong",
    [
        "--grid=-1",
        "--grid=0",
        "--grid=n / 0",
        "--grid=1.5",
        "--block=-block_x",
        "--block=block_x/0",
        "--bytes_moved=-8",
        "--bytes_moved=n / 0",
        "--work=-1",
        "--work=n / 0",
    ],
)
def test_an_impossible_expression_is_a_wrong_request(wrong: str, tmp_path: Path) -> None:
    source = tmp_path / "twice.cl"
    source.write_text(
        "__kernel void twice(__global float *y, __global const float *x) {"
        "    y[get_global_id(0)] = 2.0f * x[get_global_id(0)];"
        "}"
    )
    words = ["tune", str(source), "twice", "--size", "64", "--axes", "block_x=8", "--expect=y=2*x"]
    words += ["--arguments", "y=empty(n, float32)", "x=random(n, float32)", "--backend", "opencl"]
    assert main([*words, wrong]) == 2


def test_a_source_that_is_not_utf_8_is_a_wrong_request(tmp_path: Path) -> None:
    (tmp_path / "odd.cl").write_bytes(b"// \n// \xff\n__kernel void fill(__global float *y) {}")
    with pytest.raises(gpushmoo.ConfigError, match="line 2: not UTF-8"):
        tuned(tmp_path / "odd.cl", "fill", [X], axes={"block_x": [8]})


@pytest.mark.parametrize(
    "scalar", [np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2]
)
def test_keys_of_all_values_of_small_floats(scalar: Any) -> None:
    form = key_format(np.dtype(scalar))
    values = np.arange(2 ** (8 * form.width)).astype(form.unsigned).view(scalar)
    with np.errstate(invalid="ignore"):
        keys, numbers = form.keys(values), values.astype(np.float64)
    is_nan = np.isnan(numbers)
    assert (keys[is_nan] == keys.max()).all()
    assert np.isnan(numbers[keys == keys.max()]).all()
    order = np.argsort(keys[~is_nan], kind="stable")
    assert (np.diff(numbers[~is_nan][order]) >= 0).all()
    assert len(np.unique(keys[~is_nan])) == len(np.unique(numbers[~is_nan]))


def test_a_bound_of_sums_holds_for_any_order_and_is_no_larger_than_it_must() -> None:
    terms = RNG.uniform(-1, 1, (64, 500)).astype(np.float32)
    exact = terms.astype(np.float64).sum(axis=1)
    bound = sum_bound(np.abs(terms).sum(axis=1), 500)
    running = np.zeros(64, np.float32)
    for column in terms.T:
        running += column
    assert (abs(running - exact) <= bound).all()
    assert bound.max() < 500 * 2.0**-23 * 500
    with pytest.raises(ValueError, match="no error bound"):
        sum_bound(np.ones(1), 5000, np.float16)


def test_the_command_line_describes_a_kernel_by_numpys_expressions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "parts.cl"
    file.write_text(f"#define T float\n{PARTS}")
    words = f"tune {file} parts --size {N} --axes KIND=0,4 block_x=32:64:32 --json"
    given = ["--arguments", "y=empty(n, float32)", "x=random(n, dtype=float32)", "n=int32(n)"]
    assert main([*words.split(), *given, "--expect", "y=x"]) == 1
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert {(row["KIND"], row["block_x"]) for row in rows} <= {(0, 32), (0, 64)}
    assert main([*words.split(), *given, "--expect", "y=z"]) == 2
    assert "y: 'z' has no value (name 'z' is not defined)." in capsys.readouterr().err


COPIED = """
__kernel void copied(__global float *y, __global const float *x, __global float *spare, const int n)
{
    const int i = get_global_id(0);
    if (i >= n)
        return;
    y[i] = KIND == 1 && i == 3 ? 0 : x[i] + y[i];
    spare[i] = 1;
    if (KIND == 2) ((__global float *)x)[i] = 0;
}
"""


@pytest.mark.parametrize(
    ("asked", "is_compared"),
    [
        # Nothing is compared, and only what is const must not change.
        ({}, False),
        # What is expected is compared, whatever else is written.
        ({"expect": [X + 1, None, None, None], "in_place": [0], "unchecked": [2]}, True),
        # Each launch that is checked finds the arrays as they were given.
        ({"check": lambda y, x, spare, n: bool((y == x + 1).all() and spare.all())}, True),
    ],
)
def test_what_nobody_compares_may_change(asked: dict[str, Any], is_compared: bool) -> None:
    arguments = [np.ones(N, np.float32), X, np.zeros(N, np.float32), np.int32(N)]
    axes = {"KIND": [0, 1, 2], "block_x": [64]}
    said = messages(tuned(COPIED, "copied", arguments, axes=axes, **asked), "KIND")
    assert said[0] is None
    assert (said[1] is not None) == is_compared
    assert "changed its input 'x'" in str(said[2])


def test_an_axis_named_twice_has_both(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "parts.cl"
    file.write_text(f"#define T float\n{PARTS}")
    words = f"tune {file} parts --size {N} --axes KIND=0 block_x=32 --axes block_x=64 --json"
    given = ["--arguments", "y=empty(n, float32)", "x=random(n, dtype=float32)", "n=int32(n)"]
    assert main([*words.split(), *given]) == 0
    assert '"ok": 2' in capsys.readouterr().out
    assert main([*words.split(), *given, "--repeats", "0"]) == 2
    assert "--repeats: '0' must be a whole number" in capsys.readouterr().err


# No compiler ends it: each level is eleven times as long.
ENDLESS = f"""
#define A(x) x x x x x x x x x x x
#if BAD
__kernel void slow(__global float *z)
{{
    float s = z[0]; {"A(" * 6} s = s * 1.1f + z[(int)s]; {")" * 6} z[1] = s;
}}
#endif
__kernel void copy(__global float *y, __global const float *x, const int n)
{{
    int i = get_global_id(0);
    if (i < n) y[i] = x[i];
}}
"""


@pytest.mark.slow
def test_a_compiler_that_does_not_end_costs_its_version(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    builds: list[Any] = []
    apart = measure.build_in_subprocess

    def build_in_subprocess(*asked: Any) -> None:
        builds.append(asked)
        apart(*asked)

    monkeypatch.setattr(measure, "build_in_subprocess", build_in_subprocess)
    arguments = [np.zeros_like(X), X, np.int32(N)]
    axes = {"block_x": [16, 32], "BAD": [0, 1]}
    made = tuned(
        ENDLESS,
        "copy",
        arguments,
        axes=axes,
        expect=[X, None, None],
        compile_timeout_s=3.0,
        repeats=2,
        progress=True,
    )
    ended = made.cells.groupby("BAD")["status"].unique()
    assert {bad: list(status) for bad, status in ended.items()} == {0: ["ok"], 1: ["build_failed"]}
    assert "compile_timeout_s" in made.fault
    # It is compiled by one process of its own, whatever is measured then.
    assert len(builds) == 1
    assert "compile_timeout_s" in capfd.readouterr().err
