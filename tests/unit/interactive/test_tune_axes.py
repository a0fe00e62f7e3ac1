"""`gpushmoo.tune`: axes, numbers that must be whole, local memory, and what its result says."""

import pickle
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import gpushmoo
import numpy as np
import pytest
from calls import grouped
from gpushmoo.core.space import Cell, Problem, Version
from gpushmoo.devices.opencl.runtime import with_macros
from gpushmoo.interactive.tune_axes import defined_axes, placed_axes, with_unseen
from gpushmoo.interactive.tune_bandwidth import memory_peak, unreachable
from gpushmoo.interactive.tune_source import KernelSource
from gpushmoo.workloads.call import Call, called

N = 64
X = np.linspace(1, 2, N, dtype=np.float32)
COPY = """
__kernel void copy(__global float *y, __global const float *x, const int n)
{
    for (int i = get_global_id(0); i < n; i += get_global_size(0))
        y[i] = x[i];
}
"""
ARGUMENTS = [np.zeros_like(X), X, np.int32(N)]


def tuned(source: str, arguments: Any, **asked: Any) -> gpushmoo.Tuned:
    asked = {"backend": "opencl", "progress": False, "max_samples": 6, "min_samples": 6, **asked}
    asked = {"name": "copy", "size": N, "axes": {"block_x": [N]}, **asked}
    return gpushmoo.tune(source, asked.pop("name"), arguments, **grouped(**asked))


@pytest.mark.parametrize(
    ("axes", "said"),
    [
        ({"FOO": [1, 2]}, "nothing uses 'FOO'"),
        ({"FOO": [1], "block_x": [8, 16]}, "nothing uses 'FOO'"),
        ({"get_global_sise": [1], "block_x": [8]}, "Did you mean 'get_global_size'"),
        ({"x": [1], "block_x": [8]}, "'x' is a parameter"),
        ({"n": [1]}, "the problem's size as 'n'"),
        ({"size": [1]}, "the problem's size as 'size'"),
        ({"blocks": [1, 2]}, "'blocks' has the name of a column.*'blocks_'"),
        ({"block_x": [0, 8]}, "'block_x' holds 0; .*at least 1"),
        ({"block_x": [8.5]}, "'block_x' holds 8.5; .*whole"),
        ({"block_x": ["8"]}, "'block_x' holds '8'; .*whole"),
        ({"block_x": [[8, 16]]}, r"'block_x' holds \[8, 16\]"),
        ({"block_x": {"to_resident": 2, "points": 3}}, "list its values"),
        ({"block_x": {"from": 8, "to": 4}}, "is empty"),
        ({"block_x": {"from": 8}}, "'axes.block_x.to' is missing"),
        ({"block_x": {"from": 8.5, "to": 9}}, "'axes.block_x"),
        ([("block_x", [8])], "axes: they are"),
    ],
)
def test_axes_that_mean_nothing_are_refused(axes: Any, said: str) -> None:
    with pytest.raises(gpushmoo.ConfigError, match=said):
        tuned(COPY, ARGUMENTS, axes=axes, block="8" if "block_x" not in axes else None)


@pytest.mark.parametrize(
    "where",
    [
        {"grid": "FOO"},
        {"valid": "FOO < 3"},
        {"shared": "4 * FOO"},
        {"moved": "8 * n * FOO"},
        {"work": lambda cell: cell["n"] * cell["FOO"]},
        {"valid": lambda cell: len({**cell}) > 0},
        {"options": ["-DBAR=FOO"]},
    ],
)
def test_an_axis_may_be_used_anywhere(where: Mapping[str, Any]) -> None:
    assert len(tuned(COPY, ARGUMENTS, axes={"FOO": [1, 2], "block_x": [8]}, **where).cells) == 2


def test_a_block_of_the_callers_leaves_its_axis_unused() -> None:
    with pytest.raises(gpushmoo.ConfigError, match="nothing uses 'block_x'"):
        tuned(COPY, ARGUMENTS, axes={"block_x": [8, 16]}, block=8)


def test_values_keep_their_types_and_sets_are_taken() -> None:
    given = {"S": {3, 1, 2}, "F": [1, 1.0, np.float32(2), None], "L": np.linspace(4, 16, 4)}
    placed, labels = placed_axes(given, ())
    assert placed == {"S": [1, 2, 3], "F": [0, 1, 2, 3], "L": [4, 8, 12, 16]}
    assert list(map(repr, labels["F"])) == ["1", "1.0", "2.0", "None"]
    source = COPY.replace("x[i]", "x[i] / (int)(F)")
    result = tuned(source, ARGUMENTS, axes={"F": [1, 1.0], "block_x": 8}, expect=X)
    assert sorted(map(repr, result.cells["F"])) == ["1", "1.0"]
    assert result.statuses == {"ok": 2}


@pytest.mark.parametrize(
    ("asked", "right"),
    [
        ({"block": "block_x / 3"}, [12.0, 24.0]),
        ({"grid": "n / block_x"}, [16.0, 32.0]),
        ({"shared": "block_x / 3"}, [12.0, 24.0]),
    ],
)
def test_a_number_of_a_launch_that_is_not_whole_is_refused_and_2_0_is_whole(
    asked: Mapping[str, Any], right: list[float]
) -> None:
    """Of each two values of the axis one gives a whole number."""
    values = [right[0], right[0] + 1]
    source = COPY.replace("n)", "n, __local char *t)") if "shared" in asked else COPY
    with pytest.warns(UserWarning, match="1 of 2 combinations were not launched.*whole"):
        result = tuned(source, ARGUMENTS, axes={"block_x": values}, **asked)
    assert result.statuses == {"ok": 1, "workload_failed": 1}
    assert result.winner == {"block_x": right[0]}


LOCAL = """
__kernel void copy(__global float *y, PLACES const int n)
{
    const int i = get_global_id(0), own = get_local_id(0);
    t[own] = x[i];
    y[i] = t[own];
}
"""


@pytest.mark.parametrize("shared", ["4 * block_x", "SharedMemory", None])
@pytest.mark.parametrize("is_first", [True, False])
def test_local_memory_has_its_place_among_the_parameters(shared: Any, is_first: bool) -> None:
    places = ["__local float *t,", "__global const float *x,"]
    source = LOCAL.replace("PLACES", " ".join(places if is_first else places[::-1]))
    arguments: list[Any] = [*ARGUMENTS]
    asked = {"axes": {"block_x": [16, 64]}, "check": lambda y, x, *_: bool((y == X).all())}
    if shared is None:
        with pytest.raises(gpushmoo.ConfigError, match="SharedMemory"):
            tuned(source, arguments, **grouped(**asked))
        return
    if shared == "SharedMemory":
        arguments.insert(1 if is_first else 2, gpushmoo.SharedMemory("4 * block_x"))
        asked["check"] = lambda y, *_: bool((y == X).all())
    else:
        asked |= {"shared": shared, "unchecked": [0]}
    assert tuned(source, arguments, **asked).statuses == {"ok": 2}


def test_texts_with_blanks_quotes_and_backslashes_reach_the_compiler() -> None:
    source = COPY.replace("x[i];", "(T)x[i] + QUOTED[2] - '\"';")
    axes = {"T": ["float", "unsigned  int"], "QUOTED": [r'"\\ \"d"', '"\' \\""'], "block_x": [8]}
    result = tuned(source, ARGUMENTS, axes=axes)
    assert result.statuses == {"ok": 4}
    assert with_macros("x", ["-w", "-DA=b c", "-D", "E", "-DF="]) == (
        "#define A b c\n#define E 1\n#define F \n#line 1\nx",
        ("-w",),
    )


def test_an_axis_may_have_a_name_of_the_runtimes_headers() -> None:
    source = COPY.replace("x[i]", "x[i] * p")
    assert tuned(source, ARGUMENTS, axes={"p": [1, 2], "block_x": [8]}).statuses == {"ok": 2}


def test_the_definition_under_if_that_takes_the_arguments_is_meant() -> None:
    source = f"""
#if KIND == 0
{COPY}
#else
{COPY.replace("const int n", "const int n, const int more")}
#endif
"""
    assert tuned(source, ARGUMENTS, axes={"KIND": [0], "block_x": [8]}).statuses == {"ok": 1}
    more = [*ARGUMENTS, np.int32(1)]
    assert tuned(source, more, axes={"KIND": [1], "block_x": [8]}).statuses == {"ok": 1}
    with pytest.raises(gpushmoo.ConfigError, match=r"takes 3 \(y, x, n\) or 4 .*, not 2"):
        tuned(source, ARGUMENTS[:2], axes={"KIND": [0], "block_x": [8]})


def test_names_may_be_one_text_and_options_a_line() -> None:
    source = COPY.replace("y[i] = x[i]", "y[i] += x[i] * OF")
    asked = {"expect": X + 1, "in_place": "y", "options": "-w -DOF=1", "resets": False}
    arguments = [np.ones_like(X), X, np.int32(N)]
    assert tuned(source, arguments, **asked).statuses == {"ok": 1}
    assert tuned(source, arguments, options="-DOF=1", unchecked="y").statuses == {"ok": 1}
    with pytest.raises(gpushmoo.ConfigError, match="no argument 'bins'"):
        tuned(source, arguments, **{**asked, "in_place": "bins"})


@pytest.mark.filterwarnings("ignore:Tuned of copy")
@pytest.mark.parametrize(
    ("change", "hint"),
    [
        ("y[i] = y[i] + x[i]", "in_place"),
        ("y[i] = fmax(y[i], x[i]) + y[i] * 0", "in_place"),
        ("if (i != 3) y[i] = x[i]", "never written"),
        ("y[i] = as_float(as_int(x[i]) + 36)", "36 ulp off"),
        ("y[i] = i == 3 ? -0.0f : x[i]", "sign of zero"),
        ("y[i] = x[i] + 1", None),
    ],
)
def test_a_wrong_value_says_whether_the_kernel_read_its_output(
    change: str, hint: str | None
) -> None:
    x = X.copy()
    x[3] = 0 if "0.0f" in change else x[3]
    arguments = [np.zeros_like(x), x, np.int32(N)]
    result = tuned(COPY.replace("y[i] = x[i]", change), arguments, expect=x)
    (said,) = result.cells["message"]
    assert hint in said if hint else said[-1] != ")"


def test_cells_say_which_are_tied_and_a_result_can_be_pickled() -> None:
    result = tuned(COPY, ARGUMENTS, axes={"block_x": [1, 8, 64]}, expect=X)
    tied = set(result.cells.loc[result.cells["tied"], "block_x"])
    assert tied == set(result.best["block_x"])
    again = pickle.loads(pickle.dumps(result))
    assert again.winner == result.winner
    assert again.best.equals(result.best)
    assert repr(again) == repr(result)
    with pytest.raises(gpushmoo.ConfigError, match="pickled"):
        again.save("nowhere")


def test_a_condition_or_check_without_an_answer_is_named() -> None:
    with pytest.warns(UserWarning, match="check: it returns None"):
        tuned(COPY, ARGUMENTS, check=lambda *_: None)
    with pytest.raises(gpushmoo.ConfigError, match="valid: it gives None"):
        tuned(COPY, ARGUMENTS, valid=lambda _: None)
    with pytest.raises(gpushmoo.ConfigError, match="`valid` refuses every cell"):
        tuned(COPY, ARGUMENTS, valid="block_x < 0")


TEMPLATE = b"""
#include "unseen.h"
namespace lib {
template <typename T, int EACH = 2>
__global__ void scale(T *y, const float *x, int n) { y[0] = EACH * TILE; }
}
"""


def test_an_axis_that_a_template_declares_is_part_of_the_instance_and_not_a_macro() -> None:
    source = KernelSource(
        "lib::scale<float, EACH>", TEMPLATE.replace(b"#include", b"//"), ".cu", ""
    )
    axes = {"EACH": [1, 4], "TILE": [8], "OTHER": [1]}
    assert defined_axes(source, axes, [source.name]) == (("EACH", "TILE"), ("TILE",))
    open_source = KernelSource("lib::scale<float, EACH>", TEMPLATE, ".cu", "")
    assert defined_axes(open_source, axes, [source.name])[1] == ("TILE",)
    call = Call(source.name, (), (N,), {}, ("EACH", "TILE"), block=8, instanced=("EACH",))
    assert with_unseen(call, axes, open_source).defined == ("EACH", "TILE", "OTHER")
    with pytest.raises(gpushmoo.ConfigError, match="nothing uses 'OTHER'"):
        with_unseen(call, axes, source)
    own = KernelSource(source.name, TEMPLATE.replace(b'"unseen.h"', b"<cub/cub.cuh>"), ".cu", "")
    with pytest.raises(gpushmoo.ConfigError, match="nothing uses 'OTHER'"):
        with_unseen(call, axes, own)
    assert "OTHER" in with_unseen(replace(call, options=("-Iheaders",)), axes, own).defined
    of_block = with_unseen(replace(call, grid="OTHER"), axes, open_source)
    assert of_block.defined == call.defined
    workload = called("scale", call, axes, "float", "FLOP")
    version = Version(source.name, (("EACH", 4), ("TILE", 8)))
    assert workload.macros("float", version) == {"TILE": "8"}
    assert workload.name_expressions(version) == ("lib::scale<float, 4>",)
    params = (("EACH", 4), ("OTHER", 1), ("TILE", 8))
    cell = Cell("scale", "float", source.name, Problem(1, N), params)
    assert workload.launch(cell).entry == "lib::scale<float, 4>"
    assert [one.element for one in source.parameters(3)] == [None, "float32", "int32"]


def test_arguments_of_a_kernel_in_python_have_the_names_of_its_parameters() -> None:
    text = b"""
BLOCK = 3  # n // BLOCK
@triton.jit
def scale(y, x, n, BLOCK: tl.constexpr, EACH: "tl.constexpr"):
    i = tl.program_id(0) // BLOCK
"""
    source = KernelSource("scale", text, ".triton.py", "")
    assert [one.name for one in source.parameters(3)] == ["y", "x", "n"]
    axes = ["BLOCK", "OTHER", "num_warps"]
    assert defined_axes(source, axes, [])[0] == ("BLOCK", "num_warps")


H200 = {
    "name": "NVIDIA H200",
    "kind": "gpu",
    "backend": "cuda",
    "multiprocessors": 132,
    "core_clock_mhz": 1980,
    "cache": 60 * 2**20,
    "extra": {"memory_clock_mhz": "3201", "memory_bus_bits": "6144"},
}
CPU = {**H200, "kind": "cpu", "name": "CPU", "backend": "opencl", "multiprocessors": 2, "extra": {}}
OTHER = {**CPU, "kind": "gpu", "name": "Other GPU", "multiprocessors": 64}


@pytest.mark.parametrize(
    ("device", "gbs", "moved", "arrays", "copied", "memcpy", "said"),
    [
        (H200, 42_822, 2**33, 2**30, 2**29, 4000, "8,589,934,592 bytes.*4,917 GB/s"),
        (H200, 58_826, 2**22, 2**20, 2**19, 4000, "multiprocessors"),
        # Honest: the memory's most, a data set of which the cache holds a part, one in the cache.
        (H200, 4700, 2**32, 2**32, 2**31, 4000, None),
        (H200, 6000, 2**28, 2**28, 2**27, 4000, None),
        (H200, 16_000, 2**24, 2**24, 2**23, 9000, None),
        (CPU, 1000, 2**31, 2**30, 2**30, 10, "the copy"),
        (CPU, 90, 2**31, 2**31, 2**30, 10, None),
        # A runtime that reports no clock.
        ({**CPU, "core_clock_mhz": 0}, 90, 2**22, 2**22, 2**21, 10, None),
        # A sum writes little, and its copy says nothing.
        (CPU, 1000, 2**31, 2**31, 4, 0.01, None),
        (OTHER, 2600, 2**31, 2**31, 2**30, 500, "the copy"),
        (OTHER, 2400, 2**31, 2**31, 2**30, 500, None),
    ],
)
def test_a_bandwidth_that_no_memory_reaches_is_named(
    device: Mapping[str, Any],
    gbs: float,
    moved: int,
    arrays: int,
    copied: int,
    memcpy: float,
    said: str | None,
) -> None:
    cell = {"bandwidth_gbs": gbs, "bytes_read": moved, "bytes_written": 0, "memcpy_gbs": memcpy}
    found = unreachable({**cell, "median_s": moved / gbs / 1e9}, device, arrays, copied)
    if said is None:
        assert found is None
    else:
        assert found is not None
        assert re.search(said, found)


def test_bytes_that_cannot_have_moved_are_one_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    # Some OpenCL runtimes report no clock, so the device has none or this one.
    clocked = {"core_clock_mhz": 3000}
    monkeypatch.setattr(
        "gpushmoo.interactive.tune.unreachable",
        lambda cell, device, *sizes: unreachable(cell, {**device, **clocked}, *sizes),
    )
    with pytest.warns(UserWarning, match="bytes_moved: ") as caught:
        tuned(COPY, ARGUMENTS, axes={"block_x": [8, 64]}, bytes_moved="8 * n * 10**9", expect=X)
    assert len([one for one in caught if one.category is UserWarning]) == 1


@pytest.mark.parametrize(
    ("extra", "gbs"),
    [
        ({"memory_clock_mhz": "3201", "memory_bus_bits": "6144"}, pytest.approx(4916.736)),
        ({"memory_clock_mhz": "3201"}, None),
        ({"memory_bus_bits": "6144"}, None),
        ({}, None),
    ],
)
def test_the_peak_of_a_memory_needs_its_clock_and_its_bus(
    extra: dict[str, str], gbs: float | None
) -> None:
    assert memory_peak({"extra": extra}) == gbs
