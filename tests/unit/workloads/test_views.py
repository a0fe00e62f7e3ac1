"""The kinds of figures of a kernel: their names, headings, units, and when they are shown."""

import pytest
from gpushmoo.core.space import Problem
from gpushmoo.workloads.views import (
    BLOCK_SHAPE,
    CACHES,
    MIN_SIZES,
    ONE_PARAMETER,
    Curve,
    HeatMap,
    Roofline,
    Swept,
    View,
    WorkingSet,
    view_fault,
)


@pytest.mark.parametrize(
    ("view", "units"),
    [
        (HeatMap("block_x", "block_y"), ("threads", "threads")),
        (HeatMap("block_x", "unroll"), ("threads", None)),
        (HeatMap("unroll", "block_y", x_unit="steps"), ("steps", "threads")),
        (HeatMap("block_x", "unroll", "warps", "steps"), ("warps", "steps")),
    ],
)
def test_axes_of_a_block_count_threads_unless_another_unit_is_given(
    view: HeatMap, units: tuple[str | None, str | None]
) -> None:
    assert view.units() == units


@pytest.mark.parametrize(
    ("view", "name", "section", "axes"),
    [
        (HeatMap("block_x", "block_y"), "heatmap-block_x-block_y", BLOCK_SHAPE, 2),
        (HeatMap("block_x", "n"), "heatmap-block_x-n", "Bandwidth over two parameters", 2),
        (Curve("n", "steps"), "curve-n", ONE_PARAMETER, 1),
        (WorkingSet(), "workingset", CACHES, 0),
        (Roofline(), "roofline", "Rooflines", 0),
        (View(), "view-view", "Further figures", 0),
    ],
)
def test_a_view_has_a_name_and_a_place_in_the_report(
    view: View, name: str, section: str, axes: int
) -> None:
    assert (view.name, view.section(), len(view.shown_axes())) == (name, section, axes)
    assert view_fault([view], ["block_x", "block_y", "n"]) is None
    assert "exists" in str(view_fault([view], ["exists"])) or axes == 0


def test_a_curve_over_sizes_needs_enough_of_them() -> None:
    def shown(count: int) -> bool:
        sizes = tuple(Problem(2**i, 2**i) for i in range(4, 4 + count))
        return WorkingSet().shown(Swept("opencl", ("float",), ("v",), sizes, ("warm",)))

    assert [shown(count) for count in (1, MIN_SIZES - 1, MIN_SIZES)] == [False, False, True]
