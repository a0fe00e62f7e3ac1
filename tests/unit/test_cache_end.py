"""Where a cache ends: the fall of the bandwidth over the working set."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from gpushmoo.analysis.fastest import FEWEST_SIZES, CacheEnd, cache_bytes, cache_ends, fall_interval
from gpushmoo.core.space import Problem
from gpushmoo.storage.store import read_shard
from hypothesis import given
from hypothesis import strategies as st
from synthetic import GPU, write_shard

SIZES = [2**i for i in range(20, 28)]


@given(
    step=st.integers(1, len(SIZES) - 1),
    inside=st.floats(1000.0, 9000.0),
    fall=st.floats(0.0, 0.88),
    noise=st.lists(st.floats(-0.005, 0.005), min_size=len(SIZES), max_size=len(SIZES)),
)
def test_a_step_lies_between_its_neighbours(
    step: int, inside: float, fall: float, noise: list[float]
) -> None:
    levels = [inside if i < step else inside * fall for i in range(len(SIZES))]
    values = [v * (1.0 + n) for v, n in zip(levels, noise, strict=True)]
    assert fall_interval(SIZES, values) == (SIZES[step - 1], SIZES[step])


@pytest.mark.parametrize(
    ("values", "last", "first"),
    [
        # Half-way between 6000 and 4000 is 5000, which is not below it.
        ([100.0, 900.0, 3000.0, 6000.0, 5900.0, 5000.0, 4100.0, 4000.0], 5, 6),
        ([6000.0, 6000.0, 4000.0, 6000.0, 4000.0, 5500.0, 4000.0, 4000.0], 1, 6),
    ],
    ids=["slow small launches", "several falls"],
)
def test_the_interval_of_a_fall(values: list[float], last: int, first: int) -> None:
    assert fall_interval(SIZES, values) == (SIZES[last], SIZES[first])


@pytest.mark.parametrize(
    "values",
    [*([1.0, 2.0, 3.0, 4.0, 5.0], [4.0] * 4, [10.0, 10.0, 9.1, 9.1], [9.0, 9.0, 1.0], [5.0], [])],
)
def test_without_a_fall_or_with_few_sizes_there_is_none(values: list[float]) -> None:
    assert fall_interval(SIZES[: len(values)], values) is None


def test_four_sizes_and_a_fall_by_more_than_a_tenth_show_an_end() -> None:
    assert fall_interval(SIZES[:4], [10.0, 10.0, 8.9, 8.9]) == (SIZES[1], SIZES[2])


@given(st.lists(st.floats(1.0, 1e4), max_size=len(SIZES)))
def test_any_series_has_an_interval_of_its_sizes_or_none(values: list[float]) -> None:
    found = fall_interval(SIZES[: len(values)], values)
    if found is None:
        assert len(values) < FEWEST_SIZES or values[-1] >= 0.9 * max(values)
    else:
        low, high = (SIZES.index(size) for size in found)
        assert values.index(max(values)) <= low < high < len(values)


def test_multiples_need_a_nominal_size() -> None:
    assert CacheEnd("float", 30, 90, 60).multiples == (0.5, 1.5)
    assert CacheEnd("float", 30, 90, None).multiples is None


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    folder: Path = tmp_path_factory.mktemp("cache")
    axes = {"block_x": [128, 256], "unroll": [1], "passes": [1]}
    frames = [
        read_shard(
            write_shard(
                folder / f"{dtype}.parquet",
                "global_load",
                dtype,
                problems=[Problem(2**i, 2**i) for i in range(9, 15)],
                states=("warm", "flushed"),
                axes=axes,
            )
        )[0].to_pandas()
        for dtype in ("float", "float4")
    ]
    return pd.concat(frames, ignore_index=True)


def test_the_warm_series_of_each_dtype_shows_the_end(cells: pd.DataFrame) -> None:
    mib = 2**20
    assert cache_bytes(cells) == GPU.cache
    # Sizes grow by four: float touches 16, 64, 256 MiB, float4 the same a step earlier.
    assert cache_ends(cells) == [
        CacheEnd("float", 64 * mib, 256 * mib, GPU.cache),
        CacheEnd("float4", 64 * mib, 256 * mib, GPU.cache),
    ]
    assert cache_ends(cells[cells["cache_state"] == "flushed"]) == []
    assert cache_ends(cells.iloc[:0]) == []
