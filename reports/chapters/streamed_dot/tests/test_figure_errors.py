"""The figure of errors: readable, every point and bound in its place, its numbers those drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from streamed_dot.figure_errors import LOOKS, ORDER_DASHES, OTHER_LOOK, errors
from streamed_dot.numerics import ORDERS, UNIFORM, order_bound
from test_figures import assert_readable, legend_of, note_of

SIZES = tuple(2**e for e in range(6, 27, 5))
CONDITIONS = tuple(10.0**e for e in range(2, 21, 2))
LENGTH = 2**16
ROUNDOFF = {"float": 2.0**-24, "double": 2.0**-53}
SQUARES = "squares, streams"
BOUNDS = [f"bound, {order}" for order in ORDERS]


def row(mode: str, dtype: str, n: int, condition: float, error: float) -> dict[str, Any]:
    return {
        "kernel": "dot_square" if mode == SQUARES else "dot_streamed",
        "mode": mode,
        "dtype": dtype,
        "n": n,
        "condition": condition,
        "value": 1 + error,
        "exact": 1.0,
        "relative_error": error,
        "agrees": True,
        "message": None,
    }


def study(
    modes: tuple[str, ...] = tuple(LOOKS), dtypes: tuple[str, ...] = ("float", "double")
) -> pd.DataFrame:
    """Mode number k errs by k + 1 roundings, times the condition number over 2."""
    rows = []
    for dtype in dtypes:
        for k, mode in enumerate(modes):
            u = (k + 1) * ROUNDOFF[dtype]
            rows += [row(mode, dtype, n, UNIFORM, u) for n in SIZES]
            hard = CONDITIONS if mode != SQUARES else ()
            rows += [row(mode, dtype, LENGTH, c, u * c / 2) for c in hard]
    # As Arrow's booleans are where some are null.
    return pd.DataFrame(rows).astype({"agrees": object})


def caption_of(table: pd.DataFrame, tmp_path: Path) -> str:
    errors(table, tmp_path / "a.svg")
    return note_of(tmp_path / "a.svg")["caption"]


def line(ax: Axes, label: str) -> Line2D:
    (found,) = [one for one in ax.lines if one.get_label() == label]
    return found


def points(ax: Axes, label: str) -> dict[float, float]:
    xs, ys = line(ax, label).get_data()
    return dict(zip(np.asarray(xs).tolist(), np.asarray(ys).tolist(), strict=True))


@pytest.mark.parametrize("dtypes", [("float", "double"), ("float",), ("double",)])
@pytest.mark.parametrize("modes", [tuple(LOOKS), ("streams", "one loop"), ("streams", "mine")])
def test_figure_is_readable(
    modes: tuple[str, ...], dtypes: tuple[str, ...], drawn: list[Figure], tmp_path: Path
) -> None:
    errors(study(modes, dtypes), tmp_path / "a.svg")
    assert_readable(drawn[0])
    assert legend_of(drawn[0]) == [*modes, *BOUNDS]
    axes = drawn[0].axes
    assert len(axes) == 2 * len(dtypes)
    labels = [ax.get_ylabel() for ax in axes[::2]]
    assert labels == [f"relative error, {dtype}" for dtype in dtypes]
    assert [ax.get_xlabel() for ax in axes[-2:]] == [
        "length n (elements)",
        "condition number (n = 2¹⁶)",
    ]
    assert {(ax.get_xscale(), ax.get_yscale()) for ax in axes} == {("log", "log")}
    # A tick beyond 1 would stand beside the words that no digit is right.
    assert all(ax.get_yticks().max() == 1.0 for ax in axes)


def test_everything_looks_different() -> None:
    looks = [*LOOKS.values(), OTHER_LOOK]
    assert len(set(looks)) == len(looks)
    assert list(ORDER_DASHES) == list(ORDERS)
    assert len(set(ORDER_DASHES.values())) == len(ORDERS)


def test_points_are_the_errors(drawn: list[Figure], tmp_path: Path) -> None:
    errors(study(), tmp_path / "a.svg")
    for dtype, (lengths, conditions) in zip(
        ROUNDOFF, (drawn[0].axes[:2], drawn[0].axes[2:]), strict=True
    ):
        for k, mode in enumerate(LOOKS):
            u = (k + 1) * ROUNDOFF[dtype]
            assert points(lengths, mode) == dict.fromkeys(map(float, SIZES), u)
            hard = () if mode == SQUARES else CONDITIONS
            expected = {c: min(1.0, u * c / 2) for c in (UNIFORM, *hard)}
            assert points(conditions, mode) == expected


def test_bounds_are_those_of_the_orders_as_far_as_they_say_anything(
    drawn: list[Figure], tmp_path: Path
) -> None:
    errors(study(dtypes=("float",)), tmp_path / "a.svg")
    lengths, conditions = drawn[0].axes
    for order, label in zip(ORDERS, BOUNDS, strict=True):
        for n, bound in points(lengths, label).items():
            assert bound == order_bound(order, round(n), "float", UNIFORM) < 1
        for condition, bound in points(conditions, label).items():
            assert bound == order_bound(order, LENGTH, "float", condition) < 1
        assert min(points(conditions, label)) == pytest.approx(UNIFORM)
    # γ(n) is 1 at n·u = 1/2.
    assert 2**22.8 < max(points(lengths, "bound, sequential")) < 2**23
    assert max(points(lengths, "bound, pairwise")) == pytest.approx(SIZES[-1])


def test_errors_of_zero_are_on_the_lower_edge(drawn: list[Figure], tmp_path: Path) -> None:
    table = study(dtypes=("float",))
    said = "On the lower edge: the result is the double nearest to the exact one (error 0)."
    assert said not in caption_of(table, tmp_path)
    exact = (table["mode"] == "streams") & (table["n"] == 64)
    table.loc[exact, "relative_error"] = 0.0
    assert said in caption_of(table, tmp_path)
    ax = drawn[-1].axes[0]
    low = ax.get_ylim()[0]
    assert points(ax, "streams")[64] == pytest.approx(low)
    # Nothing that is not 0 comes near to it.
    others = [y for mode in LOOKS for y in points(ax, mode).values() if y > 2 * low]
    assert min(others) >= 5 * low
    assert not line(ax, "streams").get_clip_on()
    # A tiny error is above it.
    table.loc[exact, "relative_error"] = 3e-15
    errors(table, tmp_path / "a.svg")
    assert drawn[-1].axes[0].get_ylim()[0] == pytest.approx(1e-15)
    assert_readable(drawn[-1])


def test_errors_above_one_are_told(drawn: list[Figure], tmp_path: Path) -> None:
    assert "Errors above 1 are drawn at 1." in caption_of(study(), tmp_path)
    near = study()
    caption = caption_of(near[near["relative_error"] < 0.5], tmp_path)
    assert "drawn at 1" not in caption
    texts = [t.get_text() for ax in drawn[0].axes for t in ax.texts]
    assert texts == ["no digit is right"] * 4


@pytest.mark.usefixtures("drawn")
def test_findings_on_the_longest_vectors(tmp_path: Path) -> None:
    table = study(("streams", "one loop"))
    longest = (table["n"] == SIZES[-1]) & (table["dtype"] == "float")
    table.loc[longest & (table["mode"] == "one loop"), "relative_error"] = 1.234e-3
    caption = caption_of(table, tmp_path)
    single = "float, n = 2²⁶, uniform data: errors from 6.0·10⁻⁸ (streams) to 1.2·10⁻³ (one loop)"
    bounds = "bounds above 1 (sequential), 3.2·10⁻⁵ (tree), 1.6·10⁻⁶ (pairwise)."
    assert caption.startswith(f"{single}; {bounds} double, n = 2²⁶, uniform data: errors from ")
    assert "bounds 7.5·10⁻⁹ (sequential), 5.9·10⁻¹⁴ (tree), 3.0·10⁻¹⁵ (pairwise)." in caption
    finding = note_of(tmp_path / "a.svg")["finding"]
    assert caption.startswith(finding)
    assert finding.count("bounds") == 2


@pytest.mark.usefixtures("drawn")
def test_findings_on_conditions(tmp_path: Path) -> None:
    """Streams err by one rounding, the loop by two: of float 10⁻⁷·condition/2, by about."""
    caption = caption_of(study(("streams", "one loop")), tmp_path)
    assert (
        "float: the error of every mode reaches 1 from a condition number of 10⁸ on. "
        "double: the error of a mode reaches 1 from a condition number of 10¹⁶ on, that of every "
        "mode from 10¹⁸ on."
    ) in caption
    table = study(("streams", "one loop"))
    few = caption_of(table[table["condition"] < 1e7], tmp_path)
    assert few.count("no error reaches 1 up to a condition number of 10⁶.") == 2
    good = table["mode"] == "streams"
    table.loc[good, "relative_error"] = 1e-9
    some = caption_of(table, tmp_path)
    assert "float: the error of a mode reaches 1 from a condition number of 10⁸ on. " in some
    # One that falls below 1 again is not the last.
    table = study(("one loop",), ("float",))
    table.loc[table["condition"] == 1e12, "relative_error"] = 0.5
    again = caption_of(table, tmp_path)
    assert "reaches 1 from a condition number of 10¹⁴ on" in again


def test_modes_without_a_number_are_named(drawn: list[Figure], tmp_path: Path) -> None:
    table = study()
    lost = table["mode"] == "cuBLAS"
    table.loc[lost, ["value", "relative_error", "agrees"]] = None
    table.loc[lost, "message"] = "OpenCL has no library that computes 'dot'."
    caption = caption_of(table, tmp_path)
    assert "No number from cuBLAS: OpenCL has no library that computes 'dot'." in caption
    assert caption.count("No number from") == 1
    assert "cuBLAS" not in legend_of(drawn[0])


def test_wrong_results_are_named_and_drawn(drawn: list[Figure], tmp_path: Path) -> None:
    """A number that is none, NaN, is a result all the same: an infinitely wrong one."""
    table = study(dtypes=("float",))
    assert "Rounding" not in caption_of(table, tmp_path)
    wrong = (table["mode"] == "resident") & (table["n"] == 64)
    table.loc[wrong, ["value", "relative_error", "agrees"]] = [np.nan, np.inf, False]
    caption = caption_of(table, tmp_path)
    assert "Rounding does not explain 1 of the results of resident (float)." in caption
    assert "No number" not in caption
    assert points(drawn[1].axes[0], "resident")[64] == 1.0


@pytest.mark.usefixtures("drawn")
@pytest.mark.parametrize(
    ("shown", "double", "squares"),
    [
        ({}, True, True),
        ({"modes": ("resident", "one loop")}, False, False),
        ({"dtypes": ("double",)}, False, True),
    ],
)
def test_remarks_are_on_what_is_drawn(
    shown: dict[str, tuple[str, ...]], double: bool, squares: bool, tmp_path: Path
) -> None:
    caption = caption_of(study(**shown), tmp_path)
    assert ("Streams and blocks end in double" in caption) == double
    assert ("A sum of squares has the condition" in caption) == squares


@pytest.mark.parametrize("x", ["n", "condition"])
def test_one_column_where_there_is_nothing_for_the_other(
    x: str, drawn: list[Figure], tmp_path: Path
) -> None:
    table = study()
    uniform = table["condition"] <= UNIFORM
    caption = caption_of(table[uniform == (x == "n")], tmp_path)
    assert len(drawn[0].axes) == 2
    assert_readable(drawn[0])
    assert ("uniform data" in caption) == (x == "n")
    assert ("condition number of" in caption) == (x == "condition")


def test_no_number_at_all_leaves_the_bounds(drawn: list[Figure], tmp_path: Path) -> None:
    table = study(("cuBLAS",))
    table[["value", "relative_error", "agrees"]] = None
    table["message"] = "No."
    errors(table, tmp_path / "a.svg")
    assert legend_of(drawn[0]) == BOUNDS
    assert note_of(tmp_path / "a.svg")["finding"] == ""


def test_sums_of_zero_are_left_out(drawn: list[Figure], tmp_path: Path) -> None:
    """No elements, or products that cancel: nothing is relative to them."""
    zeros = [row("streams", "float", 0, np.nan, 0.0), row("streams", "float", 2, np.inf, 0.0)]
    errors(pd.concat([study(("streams",)), pd.DataFrame(zeros)]), tmp_path / "a.svg")
    lengths, conditions = drawn[0].axes[:2]
    assert list(points(lengths, "streams")) == list(SIZES)
    assert list(points(conditions, "streams")) == [UNIFORM, *CONDITIONS]
    assert "lower edge" not in note_of(tmp_path / "a.svg")["caption"]


def test_same_errors_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        errors(study(), tmp_path / f"{name}.svg")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
