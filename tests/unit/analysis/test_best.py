"""Best sets: tied launches, what is beside them, those on a boundary of the sweep."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from cells import cell
from gpushmoo.analysis.best import Limits, best_table, boundaries, read_best, tied_best
from gpushmoo.storage.dataset import with_axes_noted
from gpushmoo.storage.store import write_parquet
from hypothesis import strategies as st

Interval = tuple[float, float, float]


def frame(intervals: list[Interval], status: str = "ok") -> pd.DataFrame:
    """Cells with (low, median, high); the key is the place in the list."""
    rows = [
        {"cell_key": f"{i}", "status": status, "group_low_s": a, "median_s": m, "group_high_s": b}
        for i, (a, m, b) in enumerate(intervals)
    ]
    return pd.DataFrame(rows)


@pytest.mark.parametrize(
    ("intervals", "tied"),
    [
        # Touching the fastest, apart from it, the fastest.
        ([(12.0, 13.0, 14.0), (12.1, 12.5, 14.0), (9.0, 10.0, 12.0)], ["2", "0"]),
        # A tie is with the fastest, not with its neighbour.
        ([(9.0, 10.0, 11.0), (10.5, 11.5, 12.5), (12.0, 13.0, 14.0)], ["0", "1"]),
    ],
)
def test_ties_overlap_the_fastest(intervals: list[Interval], tied: list[str]) -> None:
    assert list(tied_best(frame(intervals))["cell_key"]) == tied


def test_only_ok_cells_can_win() -> None:
    good, bad = frame([(9.0, 10.0, 11.0)]), frame([(1.0, 2.0, 3.0)], status="wrong_result")
    assert list(tied_best(pd.concat([bad, good]))["median_s"]) == [10.0]
    assert tied_best(bad).empty


PARTS = st.tuples(st.floats(0.0, 0.3), st.floats(1.0, 2.0), st.floats(0.0, 0.3))


def swept(kernel: str, axis: str, times_s: dict[int, float], **other: Any) -> list[dict[str, Any]]:
    launch = {"threads_per_block": 64, "kernel": kernel}
    return [cell(s, **launch, **{axis: value}, **other) for value, s in times_s.items()]


CELLS = pd.DataFrame(
    [
        *swept("tiny", "x", {1: 1.0, 2: 2.0, 3: 3.0}),
        *swept("tiny", "x", {4: 0.5}, status="timeout"),
        *swept("tiny", "x", {1: 1.0, 2: 2.0}, dtype="double"),
        *swept("tiny", "x", {2: 2.0, 3: 3.0}, cache_state="flushed"),
        *swept("other", "y", {7: 7.0, 8: 8.0}, group_low_s=6.0),
        *swept("failed", "y", {7: 7.0}, status="wrong_result"),
        *swept("tiny", "x", {1: 1.1}, device_uuid="d-1"),
    ]
)


def test_best_table_ranks_each_group_for_itself(tmp_path: Path) -> None:
    table, path = best_table(CELLS), tmp_path / "best.parquet"
    write_parquet(table.cast(with_axes_noted(table.schema)), path, {})
    best = read_best(path, ["x", "y"])
    assert best["params"].tolist() == ["y=7", "y=8", "x=1", "x=2", "x=1"]
    fastest = best[best["is_fastest"]].set_index(["kernel", "dtype", "cache_state"])
    assert fastest[["x", "y"]].astype(object).T.to_dict("list") == {
        ("other", "float", "warm"): [None, 7],
        ("tiny", "double", "warm"): [1, None],
        ("tiny", "float", "flushed"): [2, None],
        ("tiny", "float", "warm"): [1, None],
    }
    # Devices of one name compete; what timed out does not.
    assert fastest.loc[("tiny", "float", "warm"), "candidates"] == 4
    tied = best[best["kernel"] == "other"]
    assert list(tied["tied"]) == [2, 2]
    assert list(tied["slowdown"]) == pytest.approx([0.0, 1.0 / 7.0])


@pytest.mark.parametrize(("fastest", "found"), [(16, ""), (32, "x up"), (8, "x down")])
def test_the_fastest_of_tied_cells_says_which_axis_to_widen(fastest: int, found: str) -> None:
    times = {8: 1.02, 16: 1.02, 32: 1.02, fastest: 1.0}
    cells = [
        row | {"threads_per_block": row["x"]} for row in swept("k", "x", times, group_low_s=0.9)
    ]
    best = best_table(pd.DataFrame(cells)).to_pandas()
    assert list(best["tied"]) == [3] * 3
    assert set(best["boundary"]) == {found}


def blocks(xs: list[int], ys: list[int]) -> pd.DataFrame:
    """Every block of these widths and heights."""
    cells = [(x, y, x * y) for x in xs for y in ys]
    return pd.DataFrame(cells, columns=["block_x", "block_y", "threads_per_block"])


SHAPES = blocks([4, 16, 64], [4, 16, 64])


@pytest.mark.parametrize(
    ("best", "group", "found"),
    [
        ((64, 16), SHAPES, ["block_x up"]),
        ((16, 16), SHAPES, []),
        ((4, 64), SHAPES, ["block_x down", "block_y up"]),
        ((16, 4), SHAPES, ["block_y down"]),
        ((1, 8), blocks([1, 2, 4], [4, 8, 16]), []),
        # The next larger block would have more than 1,024 threads, whatever its height.
        ((1024, 1), blocks([256, 512, 1024], [1, 2, 4]), []),
        # It may have exactly as many.
        ((768, 1), blocks([256, 512, 768], [1, 2, 4]), ["block_x up"]),
        # An axis that does not change the block is not limited by its threads.
        ((64, 16), SHAPES.assign(threads_per_block=1024), ["block_x up"]),
        # Two values make no range.
        ((64, 16), blocks([32, 64], [8, 16, 32]), []),
    ],
)
def test_an_edge_is_an_axis(best: tuple[int, int], group: pd.DataFrame, found: list[str]) -> None:
    axes = ["block_x", "block_y"]
    row = {"kernel": "k", **dict(zip(axes, best, strict=True))}
    assert boundaries(row, group, axes, Limits()) == found
    # Not beyond the largest value that a kernel takes.
    limits = Limits({"k": dict(zip(axes, best, strict=True))})
    assert boundaries(row, group, axes, limits) == [way for way in found if way.endswith("down")]
