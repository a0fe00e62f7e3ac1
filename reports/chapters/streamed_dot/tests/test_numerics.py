"""The study of errors: every mode within its bound, what goes wrong in rows, and its figure."""

import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from conftest import ROOT
from dot_products.summation import gamma, ill_conditioned, reference_dot
from gpushmoo.core.dtypes import DTYPES
from gpushmoo.core.errors import DeviceError, DeviceLostError, OutOfDeviceMemoryError
from gpushmoo.devices.base import Device
from gpushmoo.workloads.loader import load_kernel
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from streamed_dot import numerics
from streamed_dot.figure_errors import LOOKS, errors
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
from test_figures import legend_of, note_of

Array = npt.NDArray[Any]

DOTS = ("dot_streamed", "dot_square", "dot_resident", "dot_cublas", "dot_host")
FOLDERS = {name: load_kernel(ROOT / "kernels" / name) for name in DOTS}
MODES = {mode.label: mode for mode in modes_of(FOLDERS)}
SMALL = Study((0, 1, 2, 3, 1000), (1e1, 1e4, 1e8, 1e16), 1000, 1)
BLOCKED = ("streams", "streams and host", "resident", "blocks, all cores")


def rows_of(device: Device, modes: list[Mode], x: Array, y: Array) -> dict[str, dict[str, Any]]:
    """Errors of each mode for the vectors `x` and `y`, by the mode's label."""
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


def test_every_mode_has_its_rows_within_its_bound(device: Device, table: pd.DataFrame) -> None:
    given = table[table["relative_error"].notna()]
    assert set(given["agrees"]) == {True}
    assert (given["relative_error"] <= given["bound"]).all()
    assert given["message"].isna().all()
    missing = table[table["relative_error"].isna()]
    assert missing["message"].str.len().gt(0).all()
    # OpenCL has neither the library nor empty buffers.
    refused = {("cuBLAS", n) for n in (*SMALL.sizes, SMALL.condition_size)} | {("resident", 0)}
    assert set(zip(missing["mode"], missing["n"], strict=True)) <= refused
    # Sums of squares have uniform data only.
    over_sizes, over_conditions = len(SMALL.sizes), len(SMALL.conditions)
    expected = dict.fromkeys(MODES, 2 * (over_sizes + over_conditions))
    expected["squares, streams"] = 2 * over_sizes
    assert table["mode"].value_counts().to_dict() == expected
    for _, rows in table[table["condition"] > UNIFORM].groupby(["mode", "dtype"]):
        ratios = np.sort(rows["condition"]) / np.array(SMALL.conditions)
        assert ((ratios > 1 / 4) & (ratios < 4)).all()
    assert set(table["device_name"]) == {device.info.name}
    assert "streams 4, threads 256" in table[table["mode"] == "streams"].iloc[0]["params"]


def test_numbers_of_a_row_are_those_of_a_sum_made_by_hand(device: Device) -> None:
    """In floats 2^24 + 1 is 2^24, so that the loop loses the one and with it everything."""
    x = np.array([2.0**24, 1.0, -(2.0**24)], np.float32)
    row = rows_of(device, [MODES["one loop"]], x, np.ones(3, np.float32))["one loop"]
    assert (row["value"], row["exact"], row["relative_error"]) == (0.0, 1.0, 1.0)
    assert (row["condition"], row["depth"], row["agrees"]) == (2.0 * (2**25 + 1), 3, True)
    assert row["bound"] == pytest.approx(3 * 2.0**-24 * (2**25 + 1), rel=1e-5)
    assert (row["n"], row["dtype"], row["params"]) == (3, "float", "")
    row = rows_of(device, [MODES["streams"]], np.array([3.0, -3.0]), np.ones(2))["streams"]
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


def edited(folder: Path, old: str, new: str) -> Mode:
    """The streams' mode with another kernel; `old` is in OpenCL's and in CUDA's."""
    shutil.copytree(FOLDERS["dot_streamed"].path, folder / "dot_streamed")
    for name in ("kernel.cl", "kernel.cu"):
        text = (folder / "dot_streamed" / name).read_text()
        assert text.count(old) == 1
        (folder / "dot_streamed" / name).write_text(text.replace(old, new))
    kernel = load_kernel(folder / "dot_streamed")
    return replace(MODES["streams"], label=folder.name, folder=kernel)


ONES = np.ones(1001, np.float32)
# What a thread does last before the sums of a block are added.
LAST_SUM = "total += x[i] * y[i];"


def test_a_mode_that_goes_wrong_is_a_row_with_the_reason(device: Device, tmp_path: Path) -> None:
    params = {**dict(MODES["streams"].params), "threads": 1025}
    modes = [
        edited(tmp_path / "forgets", "i < n;", "i < n - 1;"),
        # The store stays in the machine code, which is checked on CUDA before a launch.
        edited(tmp_path / "writes nothing", LAST_SUM, LAST_SUM + " if (n > 0) return;"),
        edited(tmp_path / "broken", "= sums[0];", "= no_such[0];"),
        replace(MODES["streams"], label="large", params=tuple(sorted(params.items()))),
        MODES["streams"],
    ]
    rows = rows_of(device, modes, ONES, ONES)
    # Each of the four streams has elements that are in no group of four, and loses one.
    assert rows["forgets"]["relative_error"] == pytest.approx(4 / 1001)
    assert rows["forgets"]["relative_error"] > rows["forgets"]["bound"]
    assert "the bound of this order of summation" in rows["forgets"]["message"]
    assert math.isnan(rows["writes nothing"]["value"])
    assert rows["writes nothing"]["relative_error"] == math.inf
    assert not rows["forgets"]["agrees"] | rows["writes nothing"]["agrees"]
    assert rows["broken"]["message"]
    assert "1025 threads a block" in rows["large"]["message"]
    assert "value" not in rows["broken"] | rows["large"]
    assert (rows["streams"]["value"], rows["streams"]["message"]) == (1001.0, None)


def test_memory_that_is_short_costs_a_kernels_modes_and_a_lost_device_ends_the_study(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fault(error: DeviceError) -> Callable[..., None]:
        def raised(*_: Any) -> None:
            raise error

        return raised

    with monkeypatch.context() as patched:
        patched.setattr(numerics, "ReducedSpace", fault(OutOfDeviceMemoryError("full")))
        study = Study((64,), (), 64, 1, ("float",))
        table = run_study(device, list(MODES.values()), study).to_pandas().set_index("mode")
    refused = ["resident", "cuBLAS"]
    assert table.loc[refused, "message"].tolist() == ["full", "full"]
    assert table.loc[refused, "agrees"].isna().all()
    assert table.drop(refused)["message"].isna().all()
    for name in ("_opened", "_outcome"):
        with monkeypatch.context() as patched:
            patched.setattr(numerics, name, fault(DeviceLostError("gone")))
            with pytest.raises(DeviceLostError, match="gone"):
                rows_of(device, [MODES["streams"]], ONES, ONES)


def test_modes_name_variants_and_axes_that_their_kernels_have() -> None:
    for mode in MODES.values():
        assert mode.variant in mode.workload.variants
        assert {name for name, _ in mode.params} == set(mode.workload.axes)
    # Only kernels at hand have modes, and only those of dot products.
    only = modes_of({"dot_host": FOLDERS["dot_host"]})
    assert {mode.folder.name for mode in only} == {"dot_host"}
    assert len(only) == len(FOLDERS["dot_host"].workload.variants)


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


@pytest.mark.parametrize("dtype", ["float", "double"])
def test_depths_and_bounds_of_orders(dtype: str) -> None:
    # A product, three additions of the four accumulators, four levels over 16 threads.
    assert tree_depth(64) == 1 + 3 + 4
    # All threads have 8 terms, 2 for each accumulator.
    assert tree_depth(8 * TREE_THREADS) == 2 + 3 + 15
    assert tree_depth(0) == 0
    u = float(np.finfo(DTYPES[dtype].scalar).eps) / 2
    assert order_bound("sequential", 10, dtype, 2.0) == gamma(10, u)
    assert order_bound("pairwise", 1024, dtype, 200.0) == 100 * gamma(11, u)
    assert order_bound("tree", 64, dtype, 2.0) == gamma(8, u)
    assert order_bound("sequential", round(1 / u), dtype, 2.0) == math.inf


SIZES = tuple(2**e for e in range(6, 27, 5))
CONDITIONS = tuple(10.0**e for e in range(2, 21, 2))
ROUNDOFF = {"float": 2.0**-24, "double": 2.0**-53}
SQUARES = "squares, streams"
BOUNDS = [f"bound, {order}" for order in ORDERS]


def point(mode: str, dtype: str, n: int, condition: float, error: float) -> dict[str, Any]:
    kernel = "dot_square" if mode == SQUARES else "dot_streamed"
    row = {"kernel": kernel, "mode": mode, "dtype": dtype, "n": n, "condition": condition}
    found = {"value": 1 + error, "exact": 1.0, "relative_error": error}
    return row | found | {"agrees": True, "message": None}


def made_up(
    modes: tuple[str, ...] = tuple(LOOKS), dtypes: tuple[str, ...] = ("float", "double")
) -> pd.DataFrame:
    """Mode number k errs by k + 1 roundings, times the condition number over 2."""
    rows = []
    for dtype in dtypes:
        for k, mode in enumerate(modes):
            u = (k + 1) * ROUNDOFF[dtype]
            rows += [point(mode, dtype, n, UNIFORM, u) for n in SIZES]
            hard = CONDITIONS if mode != SQUARES else ()
            rows += [point(mode, dtype, 2**16, c, u * c / 2) for c in hard]
    # As Arrow's booleans are where some are null.
    return pd.DataFrame(rows).astype({"agrees": object})


def caption_of(table: pd.DataFrame, tmp_path: Path) -> str:
    errors(table, tmp_path / "a.svg")
    return note_of(tmp_path / "a.svg")["caption"]


def points(ax: Axes, label: str) -> dict[float, float]:
    (line,) = [one for one in ax.lines if one.get_label() == label]
    return dict(np.asarray(line.get_data()).T.tolist())


def test_what_is_no_error_is_told_and_drawn(drawn: list[Figure], tmp_path: Path) -> None:
    """Of cuBLAS no number, of resident NaN: an infinitely wrong result; of streams an exact one.

    Sums of zero are left out, as nothing is relative to them: no elements, products that cancel.
    """
    table = made_up()
    lost = table["mode"] == "cuBLAS"
    at_64 = (table["n"] == 64) & (table["dtype"] == "float")
    table.loc[lost, ["value", "relative_error", "agrees"]] = None
    table.loc[lost, "message"] = "OpenCL has no library that computes 'dot'."
    wrong = at_64 & (table["mode"] == "resident")
    table.loc[wrong, ["value", "relative_error", "agrees"]] = [np.nan, np.inf, False]
    table.loc[at_64 & (table["mode"] == "streams"), "relative_error"] = 0.0
    zeros = [point("streams", "float", n, c, 0.0) for n, c in ((0, np.nan), (2, np.inf))]
    caption = caption_of(pd.concat([table, pd.DataFrame(zeros)]), tmp_path)
    for words in (
        "No number from cuBLAS: OpenCL has no library that computes 'dot'.",
        "Rounding does not explain 1 of the results of resident (float).",
        "Errors above 1 are drawn at 1.",
        "On the lower edge: the result is the double nearest to the exact one (error 0).",
    ):
        assert caption.count(words) == 1
    assert "cuBLAS" not in legend_of(drawn[0])
    ax, conditions = drawn[0].axes[:2]
    assert points(ax, "resident")[64] == 1.0
    low = ax.get_ylim()[0]
    assert points(ax, "streams")[64] == pytest.approx(low)
    # Nothing that is not 0 comes near to it.
    shown = [mode for mode in LOOKS if mode != "cuBLAS"]
    assert min(y for mode in shown for y in points(ax, mode).values() if y > 2 * low) >= 5 * low
    assert list(points(ax, "streams")) == list(SIZES)
    assert list(points(conditions, "streams")) == [UNIFORM, *CONDITIONS]
    errors(table[lost], tmp_path / "a.svg")
    assert legend_of(drawn[1]) == BOUNDS
    assert note_of(tmp_path / "a.svg")["finding"] == ""
