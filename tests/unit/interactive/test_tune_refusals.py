"""`gpushmoo.tune` refuses what the kernel would read, or launch, as something else."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gpushmoo
import ml_dtypes
import numpy as np
import pytest
from calls import grouped
from gpushmoo.core.names import several
from gpushmoo.core.paths import ROOT
from gpushmoo.interactive import tune_options
from gpushmoo.interactive.arguments import checked
from gpushmoo.planning.config import default_config, load_config
from gpushmoo.workloads.tolerances import Limit

N = 64
X = np.linspace(1, 2, N, dtype=np.float32)
COPY = """
__kernel void copy(__global T *y, __global const T *x, const int n)
{
    const int i = get_global_id(0);
    if (i < n)
        y[i] = x[i];
}
"""


def tuned(source: str, arguments: Any, **asked: Any) -> gpushmoo.Tuned:
    asked = {"backend": "opencl", "progress": False, "max_samples": 6, "min_samples": 6, **asked}
    asked = {"name": "copy", "size": N, "axes": {"block_x": [N]}, **asked}
    return gpushmoo.tune(source, asked.pop("name"), arguments, **grouped(**asked))


def source_of(element: str) -> str:
    """A copy of elements of this type in C."""
    return COPY.replace("T *", f"{element} *")


def refusal(source: str, arguments: Any, **asked: Any) -> str:
    with pytest.raises(gpushmoo.ConfigError) as caught:
        tuned(source, arguments, **asked)
    assert len(str(caught.value)) < 1000
    return str(caught.value)


@pytest.mark.parametrize(
    ("scalar", "expected"),
    [
        (np.int32, np.full(N, 2**31, np.int64)),
        (np.int32, np.full(N, 2**31, np.uint32)),
        (np.int32, np.full(N, 2.9)),
        (np.int32, np.full(N, np.nan)),
        (np.uint8, np.full(N, 300)),
        (np.uint8, np.full(N, -1)),
        (np.uint64, np.full(N, -1)),
        (np.uint64, np.full(N, 2.0**64)),
        (np.int64, np.full(N, 2**63, np.uint64)),
        (np.bool_, np.full(N, 2)),
        (np.float32, np.full(N, 1e300)),
        (np.float16, np.full(N, 70_000)),
        (ml_dtypes.float8_e4m3fn, np.full(N, 500.0)),
    ],
)
def test_an_expected_value_that_the_output_cannot_hold_is_refused(
    scalar: Any, expected: np.ndarray
) -> None:
    arguments = [np.zeros(N, scalar), np.zeros(N, scalar), np.int32(N)]
    for expect in (expected, [expected, None, None], {"y": expected}, lambda *_: expected):
        assert "cannot hold" in refusal(COPY, arguments, expect=expect)


def test_an_expected_value_of_another_type_that_the_output_holds_is_compared() -> None:
    """Of higher precision it is rounded once."""
    x = np.arange(N, dtype=np.int32)
    for expect in (x.astype(np.int64), x.astype(np.float64), x.astype(np.uint8), [x, None, None]):
        result = tuned(source_of("int"), [np.zeros_like(x), x, np.int32(N)], expect=expect)
        assert result.statuses == {"ok": 1}
    result = tuned(source_of("float"), [np.zeros_like(X), X, np.int32(N)], expect=X + 1e-12)
    assert result.statuses == {"ok": 1}


SQUARE = np.arange(N, dtype=np.float32).reshape(4, 16)


@pytest.mark.parametrize(
    ("arguments", "asked", "said"),
    [
        ([X, X.astype(np.float64), np.int32(N)], {}, "'x'.*float64.*astype"),
        ([X, X.view(np.uint32), np.int32(N)], {}, "'x'.*uint32.*view"),
        ([X, X.view(np.uint8), np.int32(N)], {}, "'x'.*uint8"),
        ([X, X.astype(np.float16), np.int32(N)], {}, "'x'.*float16"),
        ([X, X, np.float32(N)], {}, r"'n'.*float32.*np\.int32"),
        ([X, X, np.int64(N)], {}, r"'n'.*int64.*np\.int32"),
        ([X, X, np.uint32(2**31)], {}, "'n'.*2147483648"),
        ([X, np.int32(N), X], {}, "'x'.*a number.*order"),
        ([X, X, gpushmoo.SharedMemory(4)], {}, "'n'.*local memory"),
        ([X, np.asfortranarray(SQUARE), np.int32(N)], {}, "'x'.*Fortran"),
        ([X, SQUARE.T, np.int32(N)], {}, "'x'.*Fortran"),
        ([X, np.ma.masked_array(X), np.int32(N)], {}, "'x'.*mask"),
        ([X, X[:0], np.int32(N)], {}, "'x' is empty"),
        ([X, X.astype(complex), np.int32(N)], {}, "'x'.*complex"),
        ([X, [0] * 10**6, np.int32(N)], {}, "'x' is .*must be an array"),
        ([SQUARE, SQUARE, np.int32(N)], {"expect": [SQUARE.T, None, None]}, r"'y'.*\(16, 4\)"),
        ([X, X, np.int32(N)], {"expect": [X[:5], None, None]}, "'y' has 5 elements"),
        ([X, X, np.int32(N)], {"expect": lambda *_: None}, "returns None"),
        ([X, X, np.int32(N)], {"constants": {"c": [1.5]}}, "constants: 'c'"),
        ([X, X, np.int32(N)], {"expect": X, "atol": np.ones(5)}, r"atol: .*\(5,\)"),
    ],
)
def test_what_the_kernel_would_read_as_another_type_or_order_is_refused(
    arguments: Any, asked: Mapping[str, Any], said: str
) -> None:
    with pytest.raises(gpushmoo.ConfigError, match=said) as caught:
        tuned(source_of("float"), arguments, **asked)
    assert len(str(caught.value)) < 1000


def test_other_orders_of_bytes_and_strides_are_repaired() -> None:
    wide = np.repeat(X, 2)
    for x in (X.astype(">f4"), wide[::2], X[::-1][::-1]):
        result = tuned(source_of("float"), [np.zeros(N, ">f4"), x, np.int32(N)], expect=X)
        assert result.statuses == {"ok": 1}


@pytest.mark.parametrize(
    ("element", "x"),
    [
        ("uint", np.arange(N, dtype=np.int32)),
        ("unsigned", np.arange(N, dtype=np.uint32)),
        ("long", np.arange(N, dtype=np.uint64)),
        ("char", np.arange(200, 200 + N, dtype=np.uint8)),
        ("ushort", X.astype(np.float16)),
    ],
)
def test_types_that_mean_the_same_are_taken(element: str, x: np.ndarray) -> None:
    result = tuned(source_of(element), [np.zeros_like(x), x, np.int32(N)], expect=x)
    assert result.statuses == {"ok": 1}


def test_a_mapping_in_another_order_is_taken_by_its_names() -> None:
    arguments = {"n": np.int32(N), "x": X, "y": np.zeros_like(X)}
    assert tuned(source_of("float"), arguments, expect={"y": X}).statuses == {"ok": 1}


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"size": "4096"}, "size: .*whole number"),
        ({"size": 0}, "size: .*at least 1"),
        ({"size": -3}, "size: .*at least 1"),
        ({"size": 64.5}, "size: .*whole number"),
        ({"size": True}, "size: .*whole number"),
        ({"size": (4, 4, 2, 2)}, "size: .*up to three"),
        ({"size": ()}, "size: "),
        ({"backend": "opncl"}, "backend: 'opncl' is not known; .*opencl"),
        ({"ulp": -1}, "ulp is -1"),
        ({"ulp": 1.5}, "ulp is 1.5"),
        ({"rtol": -1}, "rtol is -1"),
        ({"rtol": float("nan")}, "rtol is nan"),
        ({"rtol": "1%"}, "rtol is '1%'"),
        ({"atol": -1e-6}, "atol is -1e-06"),
        ({"atol": np.full(N, np.nan)}, "atol is an array"),
        ({"ulp": 2, "rtol": 1e-3}, "pass one kind"),
        ({"resets": "no"}, "restore_in_place: .*True or False"),
        ({"progress": "no"}, "progress: .*True or False"),
        ({"check": True}, "check: .*function"),
        ({"repeats": 1.5}, "'repeats' is 1.5"),
        ({"device": "0"}, "'device' is '0'"),
        ({"sizes": [5]}, "'sizes' is not known"),
        ({"block": {"x": 1}}, "block: "),
        ({"block": 1.5}, r"block: 1\.5 is not a whole number"),
        ({"shared": -4}, "shared: -4"),
        ({"moved": 2**70}, "moved: .*less than"),
        ({"moved": float("inf")}, "moved: inf"),
        ({"grid": (1, 1, 1, 1)}, "grid: it has 4 sides"),
        ({"grid": 0}, "grid: 0 must be at least 1"),
        ({"work": -1}, "work: it is -1"),
        ({"work_unit": ""}, "work_unit"),
        ({"options": {"-w"}}, "options: "),
        ({"name": ""}, "name: "),
        ({"options": 5}, "options: "),
        ({"options": ["-w", ""]}, "options: "),
        ({"expct": X}, r"'expct' is not known; .*nearest.*: expect\b"),
    ],
)
def test_an_argument_outside_of_its_names_or_its_range_is_refused(
    asked: Mapping[str, Any], said: str
) -> None:
    with pytest.raises(gpushmoo.ConfigError, match=said):
        tuned(source_of("float"), [X, X, np.int32(N)], **{"expect": X + 1, **asked})


def test_a_folders_limit_is_refused_likewise() -> None:
    with pytest.raises(ValueError, match="rtol is -1"):
        Limit(rtol=-1)
    with pytest.raises(ValueError, match="whole number"):
        Limit(ulp=0.5)
    assert not Limit(ulp=np.int64(0)).exact


def test_the_same_arguments_of_sweep_and_ab_are_refused(tmp_path: Path) -> None:
    kernel = Path("kernels/copy2d")
    with pytest.raises(gpushmoo.ConfigError, match=r"progress: .*True or False"):
        gpushmoo.sweep(kernel, progress="no")
    with pytest.raises(gpushmoo.ConfigError, match=r"progress: .*True or False"):
        gpushmoo.ab(kernel, progress=None)
    with pytest.raises(gpushmoo.ConfigError, match=r"there is no .*absent/workload\.py"):
        gpushmoo.sweep(tmp_path / "absent")
    with pytest.raises(gpushmoo.ConfigError, match="kernel: it is int"):
        gpushmoo.sweep(5)
    with pytest.raises(gpushmoo.ConfigError, match=r"'sizes\.0' is 256"):
        gpushmoo.sweep(kernel, sizes=[256.5])


def test_2_0_is_whole_in_a_call_and_one_text_is_one_name() -> None:
    assert checked({"sizes": 256.0, "repeats": 2.0, "axes": {"a": [np.float32(8)]}}) | {
        "sizes": [256],
        "repeats": 2,
        "axes": {"a": [8]},
    } == checked({"sizes": [256], "repeats": 2, "axes": {"a": [8]}})
    assert several("bins") == ["bins"]
    assert several(Path("a")) == [Path("a")]
    assert several(("a", "b")) == ["a", "b"]


def test_a_kernel_that_is_not_found_names_the_folders_and_not_each_other_kernel() -> None:
    config = {**default_config(), "kernels": {"axpi": {}}}
    with pytest.raises(gpushmoo.ConfigError, match=r"'axpi' in .*kernels; found: \d+ kernels"):
        load_config(config, ROOT)


ARGUMENTS = [np.zeros_like(X), X, np.int32(N)]


def test_former_keywords_are_one_sentence_with_the_new_form() -> None:
    with pytest.warns(DeprecationWarning, match="former keywords") as caught:
        result = gpushmoo.tune(
            source_of("float"),
            "copy",
            ARGUMENTS,
            N,
            {"block_x": [N]},
            expect=[X, None, None],
            moved="8 * n",
            rtol=0.5,
            backend="opencl",
            progress=False,
        )
    # A fast cache makes another one.
    [said] = (one for one in caught if one.category is DeprecationWarning)
    assert said.filename == __file__
    assert str(said.message) == (
        "tune: expect, rtol, moved are former keywords, which the next version refuses; pass "
        "launch=gpushmoo.LaunchConfig(bytes_moved=…), check=gpushmoo.Check(expect=…, rtol=…)."
    )
    assert result.cells["bandwidth_gbs"].notna().all()


def test_a_function_as_check_is_a_former_keyword() -> None:
    with pytest.warns(DeprecationWarning, match=r"pass check=gpushmoo.Check\(function=…\)\.$"):
        tune_options.gathered({"launch": None, "check": bool, "build": None}, {})


@pytest.mark.parametrize("name", ["launch", "build"])
def test_an_option_of_another_type_is_refused(name: str) -> None:
    with pytest.raises(gpushmoo.ConfigError, match=f"^{name}: it is 3; it must be a [BL]"):
        gpushmoo.tune(COPY, "copy", ARGUMENTS, N, {"block_x": [N]}, **{name: 3})
