"""The study of errors: every mode within its bound, refusals and wrong kernels in rows, bounds."""

from __future__ import annotations

import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from conftest import ROOT
from dot_products.summation import gamma, ill_conditioned, pairwise_depth, reference_dot
from gpushmoo.core.dtypes import DTYPES
from gpushmoo.core.errors import DeviceLostError, OutOfDeviceMemoryError
from gpushmoo.devices.base import Device
from gpushmoo.workloads.loader import load_kernel
from streamed_dot import numerics
from streamed_dot.numerics import (
    ERRORS_SCHEMA,
    ORDERS,
    TREE_THREADS,
    UNIFORM,
    Mode,
    Study,
    build_modes,
    compare,
    condition_of,
    modes_of,
    order_bound,
    run_study,
    tree_depth,
)

Array = npt.NDArray[Any]

DOTS = ("dot_streamed", "dot_square", "dot_resident", "dot_cublas", "dot_host")
FOLDERS = {name: load_kernel(ROOT / "kernels" / name) for name in DOTS}
MODES = {mode.label: mode for mode in modes_of(FOLDERS)}
SMALL = Study(sizes=(0, 1, 2, 3, 1000), conditions=(1e1, 1e4, 1e8, 1e16), length=1000)
BLOCKED = ("streams", "streams and host", "resident", "blocks, all cores")


def rows_of(device: Device, modes: list[Mode], x: Array, y: Array) -> dict[str, dict[str, Any]]:
    """By label."""
    dtype = "float" if x.dtype == np.float32 else "double"
    builds = build_modes(device, modes, dtype)
    return {r["mode"]: r for r in compare(device, modes, builds, dtype, {"x": x, "y": y})}


@pytest.fixture(scope="module")
def studied() -> dict[str, pd.DataFrame]:
    """By backend: a session's device is one, and the study takes a second."""
    return {}


@pytest.fixture
def table(device: Device, studied: dict[str, pd.DataFrame]) -> pd.DataFrame:
    backend = device.info.backend
    if backend not in studied:
        found = run_study(device, list(MODES.values()), SMALL)
        assert found.schema == ERRORS_SCHEMA
        studied[backend] = found.to_pandas()
    return studied[backend]


def test_every_mode_is_within_its_bound_on_all_data(device: Device, table: pd.DataFrame) -> None:
    given = table[table["relative_error"].notna()]
    assert set(given["agrees"]) == {True}
    assert (given["relative_error"] <= given["bound"]).all()
    assert given["message"].isna().all()
    missing = table[table["relative_error"].isna()]
    assert missing["message"].str.len().gt(0).all()
    # OpenCL has neither the library nor empty buffers.
    refused = {("cuBLAS", n) for n in (*SMALL.sizes, SMALL.length)} | {("resident", 0)}
    assert set(zip(missing["mode"], missing["n"], strict=True)) <= refused
    for dtype in SMALL.dtypes:
        for n in (1, 2, 3, 1000):
            mine = given[(given["dtype"] == dtype) & (given["n"] == n)]
            assert set(MODES) - {"cuBLAS"} <= set(mine["mode"])


def test_there_is_a_row_for_every_mode_and_data(device: Device, table: pd.DataFrame) -> None:
    """Sums of squares have uniform data only."""
    over_sizes, over_conditions = len(SMALL.sizes), len(SMALL.conditions)
    expected = dict.fromkeys(MODES, 2 * (over_sizes + over_conditions))
    expected["squares, streams"] = 2 * over_sizes
    assert table["mode"].value_counts().to_dict() == expected
    uniform = table[(table["condition"] <= UNIFORM) | (table["n"] == 0)]
    assert len(uniform) == 2 * over_sizes * len(MODES)
    assert set(uniform.loc[uniform["n"] > 0, "condition"]) == {UNIFORM}
    hard = table[table["condition"] > UNIFORM]
    assert set(hard["n"]) == {SMALL.length}
    for _, rows in hard.groupby(["mode", "dtype"]):
        ratios = np.sort(rows["condition"]) / np.array(SMALL.conditions)
        assert ((ratios > 1 / 4) & (ratios < 4)).all()
    assert set(table["backend"]) == {device.info.backend}
    assert set(table["device_name"]) == {device.info.name}
    streams = table[table["mode"] == "streams"].iloc[0]
    assert "streams 4, threads 256" in streams["params"]


def test_error_of_the_loop_is_within_the_order_s_bound(table: pd.DataFrame) -> None:
    """Which is relative to the exact sum, `exact` is that rounded to double."""
    loop = table[(table["mode"] == "one loop") & (table["n"] > 0)]
    for row in loop.itertuples():
        bound = order_bound("sequential", row.n, row.dtype, row.condition)
        assert row.relative_error <= bound * (1 + 1e-9) + 2.0**-52


def test_numbers_of_a_row_are_those_of_a_sum_made_by_hand(device: Device) -> None:
    """In floats 2^24 + 1 is 2^24, so that the loop loses the one and with it everything."""
    x = np.array([2.0**24, 1.0, -(2.0**24)], np.float32)
    row = rows_of(device, [MODES["one loop"]], x, np.ones(3, np.float32))["one loop"]
    assert (row["value"], row["exact"], row["relative_error"]) == (0.0, 1.0, 1.0)
    assert (row["condition"], row["depth"], row["agrees"]) == (2.0 * (2**25 + 1), 3, True)
    assert row["bound"] == pytest.approx(3 * 2.0**-24 * (2**25 + 1), rel=1e-5)
    assert (row["n"], row["dtype"], row["params"]) == (3, "float", "")


def test_sum_of_zero_has_no_relative_error_but_none(device: Device) -> None:
    x, y = np.array([3.0, -3.0]), np.ones(2)
    row = rows_of(device, [MODES["streams"]], x, y)["streams"]
    assert (row["value"], row["exact"], row["relative_error"]) == (0.0, 0.0, 0.0)
    assert (row["condition"], row["bound"], row["agrees"]) == (math.inf, math.inf, True)


def test_loop_in_floats_is_far_worse_than_blocks(device: Device) -> None:
    """Each 0.1 is rounded to the same side by a large sum, over a whole binade of it."""
    x, y = np.full(2**20, 0.1, np.float32), np.ones(2**20, np.float32)
    rows = rows_of(device, [MODES[label] for label in ("one loop", *BLOCKED)], x, y)
    assert rows["one loop"]["value"] == float(np.cumsum(x)[-1])
    assert 1e-3 < rows["one loop"]["relative_error"] <= rows["one loop"]["bound"]
    for label in BLOCKED:
        assert rows[label]["relative_error"] < rows["one loop"]["relative_error"] / 100
        assert rows[label]["bound"] < rows["one loop"]["bound"]


def test_squares_are_never_ill_conditioned(device: Device) -> None:
    x, y = ill_conditioned(1000, np.float64, np.random.default_rng(1), 1e12)
    rows = rows_of(device, [MODES["squares, streams"], MODES["streams"]], x, y)
    assert rows["squares, streams"]["condition"] == UNIFORM
    assert rows["squares, streams"]["exact"] == reference_dot(x, x).value
    assert rows["squares, streams"]["agrees"]
    assert rows["streams"]["condition"] > 1e11


@pytest.mark.parametrize("dtype", ["float", "double"])
def test_uniform_data_are_those_of_a_sweep(device: Device, dtype: str) -> None:
    study = Study(dtypes=(dtype,), sizes=(100,), conditions=(), seed=7)
    (row,) = run_study(device, [MODES["streams"]], study).to_pylist()
    rng = np.random.default_rng([7, 1, 100])
    inputs = MODES["streams"].workload.inputs(numerics.Problem(1, 100), dtype, rng)
    assert row["exact"] == reference_dot(inputs["x"], inputs["y"]).value


# What goes wrong becomes a row


def edited(tmp_path: Path, old: str, new: str) -> Mode:
    """The streams' mode with another kernel; `old` is in OpenCL's and in CUDA's."""
    folder = tmp_path / "dot_streamed"
    shutil.copytree(FOLDERS["dot_streamed"].path, folder)
    for name in ("kernel.cl", "kernel.cu"):
        text = (folder / name).read_text()
        assert text.count(old) == 1
        (folder / name).write_text(text.replace(old, new))
    return replace(MODES["streams"], label="edited", folder=load_kernel(folder))


def ones(n: int) -> tuple[Array, Array]:
    return np.ones(n, np.float32), np.ones(n, np.float32)


def test_kernel_that_leaves_an_element_out_does_not_agree(device: Device, tmp_path: Path) -> None:
    modes = [edited(tmp_path, "i < n;", "i < n - 1;"), MODES["streams"]]
    rows = rows_of(device, modes, *ones(1001))
    assert (rows["edited"]["agrees"], rows["streams"]["agrees"]) == (False, True)
    # Each of the four streams has elements that are in no group of four, and loses one.
    assert rows["edited"]["relative_error"] == pytest.approx(4 / 1001)
    assert rows["edited"]["relative_error"] > rows["edited"]["bound"]
    assert "the bound of this order of summation" in rows["edited"]["message"]
    assert rows["streams"]["message"] is None


def test_kernel_that_writes_nothing_is_infinitely_wrong(device: Device, tmp_path: Path) -> None:
    row = rows_of(device, [edited(tmp_path, "= sums[0];", ";")], *ones(1001))["edited"]
    assert math.isnan(row["value"])
    assert (row["relative_error"], row["agrees"]) == (math.inf, False)


def test_what_does_not_compile_is_a_row_with_the_reason(device: Device, tmp_path: Path) -> None:
    modes = [edited(tmp_path, "= sums[0];", "= no_such[0];"), MODES["streams"]]
    rows = rows_of(device, modes, *ones(10))
    assert "value" not in rows["edited"]
    assert rows["edited"]["message"]
    assert rows["streams"]["agrees"]


def test_launch_that_is_refused_is_a_row_with_the_reason(device: Device) -> None:
    params = {**dict(MODES["streams"].params), "threads": 1025}
    large = replace(MODES["streams"], label="large", params=tuple(sorted(params.items())))
    rows = rows_of(device, [large, MODES["streams"]], *ones(10))
    assert "1025 threads a block" in rows["large"]["message"]
    assert "value" not in rows["large"]
    assert rows["streams"]["value"] == 10.0


def test_memory_that_is_short_costs_the_modes_of_one_kernel(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OutOfDeviceMemoryError("full")

    monkeypatch.setattr(numerics, "ReducedSpace", full)
    study = Study(dtypes=("float",), sizes=(64,), conditions=())
    table = run_study(device, list(MODES.values()), study).to_pandas().set_index("mode")
    refused = ["resident", "cuBLAS"]
    assert table.loc[refused, "message"].tolist() == ["full", "full"]
    assert table.loc[refused, "agrees"].isna().all()
    assert table.drop(refused)["message"].isna().all()


def test_lost_device_ends_the_study(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*_: Any) -> None:
        raise DeviceLostError("gone")

    for name in ("_opened", "_outcome"):
        with monkeypatch.context() as patched:
            patched.setattr(numerics, name, lost)
            with pytest.raises(DeviceLostError, match="gone"):
                rows_of(device, [MODES["streams"]], *ones(10))


def test_modes_name_variants_and_axes_that_their_kernels_have() -> None:
    for mode in MODES.values():
        assert mode.variant in mode.workload.variants
        assert {name for name, _ in mode.params} == set(mode.workload.axes)
    # Only kernels at hand have modes, and only those of dot products.
    only = modes_of({"dot_host": FOLDERS["dot_host"]})
    assert {mode.folder.name for mode in only} == {"dot_host"}
    assert len(only) == len(FOLDERS["dot_host"].workload.variants)
    assert modes_of({}) == ()
    with pytest.raises(TypeError, match="'global_copy' computes no dot product"):
        _ = Mode("copy", load_kernel(ROOT / "kernels/global_copy"), "plain").workload


# Bounds


@pytest.mark.parametrize(
    ("x", "y", "expected"),
    [
        ([1, 2], [3, 4], 2.0),
        ([1, 2], [-3, -4], 2.0),
        ([3, 1], [1, -1], 4.0),
        ([1, -1], [1, 1], math.inf),
        ([0, 1], [1, 0], math.nan),
        ([], [], math.nan),
    ],
)
def test_condition_numbers(x: list[float], y: list[float], expected: float) -> None:
    found = condition_of(reference_dot(np.array(x, np.float64), np.array(y, np.float64)))
    assert found == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize("n", [1, 3, 4, 5, 64, 1000, 2**15, 2**17, 2**22, 2**26 + 1])
def test_orders_are_ordered(n: int) -> None:
    """A tree over threads that add up their share first lies between the two extremes."""
    pairwise, tree, sequential = (ORDERS[o](n) for o in ("pairwise", "tree", "sequential"))
    assert tree <= sequential
    if n >= 64:
        assert pairwise <= tree < sequential
        assert pairwise <= pairwise_depth(n, 32) < sequential


def test_depth_of_a_tree_made_by_hand() -> None:
    # A product, three additions of the four accumulators, four levels over 16 threads.
    assert tree_depth(64) == 1 + 3 + 4
    # All threads have 8 terms, 2 for each accumulator.
    assert tree_depth(8 * TREE_THREADS) == 2 + 3 + 15
    assert tree_depth(0) == 0


@pytest.mark.parametrize("dtype", ["float", "double"])
def test_bounds_of_orders(dtype: str) -> None:
    u = float(np.finfo(DTYPES[dtype].scalar).eps) / 2
    assert order_bound("sequential", 10, dtype, 2.0) == gamma(10, u)
    assert order_bound("pairwise", 1024, dtype, 200.0) == 100 * gamma(11, u)
    assert order_bound("tree", 64, dtype, 2.0) == gamma(8, u)
    assert order_bound("sequential", round(1 / u), dtype, 2.0) == math.inf
