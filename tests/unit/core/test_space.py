"""Axes, cells and shards: complete grids, keys that do not move."""

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from conftest import record
from gpushmoo.core.space import (
    CACHE_STATES,
    CONDITIONS,
    TIMING_MODES,
    Cell,
    Problem,
    Residency,
    ShardSpace,
    enumerate_cells,
    expand_axis,
    first_repeat_of,
    shard_count,
    shard_name,
)
from hypothesis import given
from hypothesis import strategies as st

H200 = Residency(132, 4)
VALUES = st.lists(st.integers(1, 200), min_size=1, max_size=12, unique=True)


@pytest.mark.parametrize(
    ("spec", "values"),
    [
        (7, [7]),
        ([5, 3, 5], [3, 5]),
        ({"from": 1, "to": 4}, [1, 2, 3, 4]),
        ({"from": 4, "to": 64, "step": 20}, [4, 24, 44, 64]),
        ({"from": 4, "to": 63, "step": 20}, [4, 24, 44]),
        ({"from": 9, "to": 9, "step": 5}, [9]),
        ([{"from": 1, "to": 3}, 3, 100], [1, 2, 3, 100]),
        ({"to_resident": 0.001, "points": 3}, [1]),
    ],
)
def test_an_axis_holds_each_value_once_in_order(spec: Any, values: list[int]) -> None:
    assert expand_axis(spec, H200) == values


@given(
    multiprocessors=st.integers(1, 200),
    resident_blocks=st.integers(1, 32),
    factor=st.floats(0.01, 8.0),
    points=st.integers(1, 60),
)
def test_resident_axis_spans_its_waves_and_misses_no_jump(
    multiprocessors: int, resident_blocks: int, factor: float, points: int
) -> None:
    residency = Residency(multiprocessors, resident_blocks)
    values = expand_axis({"to_resident": factor, "points": points}, residency)
    last = max(1, round(factor * multiprocessors * resident_blocks))
    assert values[-1] == last
    assert values[0] >= 1
    steps = set(range(multiprocessors, last + 1, multiprocessors))
    assert steps <= set(values)
    assert {s + 1 for s in steps if s < last} <= set(values)
    # Beside the jumps, no gap is wider than an even step.
    gaps = [b - a for a, b in itertools.pairwise(values)]
    assert max(gaps, default=0) <= last / points + 1


def cells_of(x: list[int], y: list[int], variants: tuple[str, ...] = ("v",)) -> list[Cell]:
    problems = [Problem(64, 32), Problem(32, 64)]
    return enumerate_cells("k", "float", variants, problems, {"x": x, "y": y})


def test_a_key_tells_apart_everything_that_a_cell_is() -> None:
    folder = record("nvidia-h200/copy2d_coalesced/float3")
    recorded = pd.concat(pd.read_parquet(p) for p in folder.glob("*.parquet"))
    assert len(recorded) > 100
    for row in recorded.itertuples():
        params = (("block_x", row.block_x), ("block_y", row.block_y))
        problem = Problem(row.height, row.width)
        cell = Cell(row.kernel, row.dtype, row.variant, problem, params, row.cache_state)
        assert cell.key == row.cell_key
    base = Cell("k", "float", "v", Problem(64, 32), (("x", 4), ("y", 8)))
    assert base.key == replace(base, params=(("y", 8), ("x", 4))).key
    # A grid that covers the problem was once the only one.
    named = [replace(base, params=(*base.params, ("waves", waves))).key for waves in (0, 1)]
    assert [key == base.key for key in named] == [True, False]
    others = [
        replace(base, kernel="l"),
        replace(base, dtype="double"),
        replace(base, variant="w"),
        replace(base, problem=Problem(32, 64)),
        replace(base, params=(("x", 8), ("y", 4))),
        replace(base, params=(("x", 4),)),
        replace(base, params=(("x", 4), ("z", 8))),
        replace(base, kernel="kf", dtype="loat"),
    ]
    assert len({cell.key for cell in [base, *others]}) == 1 + len(others)


@given(x=VALUES, y=VALUES)
def test_grid_is_complete_and_its_keys_are_distinct(x: list[int], y: list[int]) -> None:
    cells = cells_of(x, y, ("v", "w"))
    assert len({c.key for c in cells}) == len(cells) == 4 * len(x) * len(y)
    assert {(c["x"], c["y"]) for c in cells} == {(i, j) for i in x for j in y}
    with pytest.raises(KeyError):
        cells[0]["z"]


PROBLEMS = st.lists(
    st.builds(Problem, st.integers(1, 99), st.integers(1, 99)), min_size=1, max_size=6, unique=True
)


@given(problems=PROBLEMS, shards=st.integers(1, 8))
def test_cells_that_compete_share_a_shard(problems: list[Problem], shards: int) -> None:
    parts = [
        ShardSpace("float", ["v"], problems, CACHE_STATES, {}, i, shards, TIMING_MODES).rounds
        for i in range(shards)
    ]
    whole = [(p, met) for p in problems for met in CONDITIONS]
    assert sorted(pair for part in parts for pair in part) == sorted(whole)
    counts = [len(part) for part in parts if part]
    assert len(counts) == min(shards, len(whole))
    assert max(counts) - min(counts) <= 1


@given(cells=st.integers(1, 10**7), per_shard=st.integers(1, 10**6), rounds=st.integers(1, 10**6))
def test_shards_are_the_fewest_that_suffice(cells: int, per_shard: int, rounds: int) -> None:
    n = shard_count(cells, per_shard, rounds)
    assert n.bit_count() == 1 or n == rounds
    assert n * per_shard >= cells or n == rounds
    assert n <= rounds
    assert n == 1 or (n // 2) * per_shard < cells


@pytest.mark.parametrize("repeat", [1, 2, 13])
def test_every_repeat_of_a_shard_knows_the_first(repeat: int) -> None:
    first = Path("cells/k/float") / f"{shard_name(2, 4, 1)}.parquet"
    path = first.with_name(f"{shard_name(2, 4, repeat)}.parquet")
    assert first_repeat_of(path) == first
    assert (path == first) == (repeat == 1)
