"""What series of cells show: a cache's end, the cost of a block too many, double over float."""

from typing import Any

import pandas as pd
import pytest
from cells import cell
from gpushmoo.analysis.fastest import (
    CacheEnd,
    cache_bytes,
    cache_ends,
    fall_interval,
    occupancy_steps,
)
from gpushmoo.report.findings import step_findings
from gpushmoo.report.tables import Namer
from hypothesis import given
from hypothesis import strategies as st

SIZES = [2**i for i in range(20, 28)]


@given(
    step=st.integers(1, len(SIZES) - 1),
    inside=st.floats(1000.0, 9000.0),
    fall=st.floats(0.0, 0.88),
    noise=st.lists(st.floats(-0.005, 0.005), min_size=len(SIZES), max_size=len(SIZES)),
)
def test_a_step_is_found(step: int, inside: float, fall: float, noise: list[float]) -> None:
    levels = [inside if i < step else inside * fall for i in range(len(SIZES))]
    values = [v * (1.0 + n) for v, n in zip(levels, noise, strict=True)]
    assert fall_interval(SIZES, values) == (SIZES[step - 1], SIZES[step])


@pytest.mark.parametrize(
    ("values", "last", "first"),
    [
        # Half-way between 6000 and 4000 is 5000, which is not below it.
        ([100.0, 900.0, 3000.0, 6000.0, 5900.0, 5000.0, 4100.0, 4000.0], 5, 6),
        ([6000.0, 6000.0, 4000.0, 6000.0, 4000.0, 5500.0, 4000.0, 4000.0], 1, 6),
        # Four sizes and a fall by more than a tenth are enough.
        ([10.0, 10.0, 8.9, 8.9], 1, 2),
    ],
    ids=["slow small launches", "several falls", "the least"],
)
def test_the_interval_of_a_fall(values: list[float], last: int, first: int) -> None:
    assert fall_interval(SIZES[: len(values)], values) == (SIZES[last], SIZES[first])


@pytest.mark.parametrize(
    "values",
    [[1.0, 2.0, 3.0, 4.0, 5.0], [4.0] * 4, [10.0, 10.0, 9.1, 9.1], [9.0, 9.0, 1.0], [5.0], []],
)
def test_without_a_fall_or_with_few_sizes_there_is_none(values: list[float]) -> None:
    assert fall_interval(SIZES[: len(values)], values) is None


def sized(mib: int, gbs: float, **other: Any) -> dict[str, Any]:
    """A cell of a load that touches so many MiB, on a device with a cache of 60."""
    where = {"height": 512, "width": mib * 512, "bytes_written": 0}
    return cell(gbs=gbs, bytes_read=mib << 20, working_set_over_cache=mib / 60, **where, **other)


def test_the_warm_series_of_each_dtype_shows_the_end() -> None:
    series = {16: 8000.0, 64: 6500.0, 256: 4200.0, 1024: 4100.0}
    cells = pd.DataFrame(
        sized(mib, share * gbs, dtype=dtype, cache_state=state, slower=share)
        for mib, gbs in series.items()
        for dtype in ("float", "float4")
        for state in ("warm", "flushed")
        for share in (1.0, 0.5)
        if (dtype, mib) != ("float4", 64)
    )
    cells.loc[cells["cache_state"] == "flushed", "bandwidth_gbs"] = 4000.0
    assert cache_bytes(cells) == 60 << 20
    ends = cache_ends(cells)
    assert ends == [CacheEnd("float", 64 << 20, 256 << 20, 60 << 20)]
    assert ends[0].multiples == (64 / 60, 256 / 60)
    assert CacheEnd("float", 30, 90, None).multiples is None
    assert cache_ends(cells.iloc[:0]) == []


def block(dtype: str, blocks: int, gbs: float, **other: Any) -> dict[str, Any]:
    """A persistent-block cell whose interval reaches 1 % to both sides."""
    place = {"dtype": dtype, "variant": "exact", "height": 512, "width": 512}
    launch = {"blocks": blocks, "num_partition": blocks, "multiprocessors": 4, "resident_blocks": 3}
    return cell(half=0.01, gbs=gbs, **(place | launch | other))


NAMES = Namer(pd.DataFrame([block("float", 1, 1.0)]))
STEP = [(1, 10.0), (11, 95.0), (12, 100.0), (13, 75.0), (14, 80.0)]
CELLS = pd.DataFrame(
    [block("float", n, gbs) for n, gbs in STEP] + [block("double", n, 1.5 * gbs) for n, gbs in STEP]
)


def test_the_largest_loss_is_found_and_noise_or_mixed_sizes_are_none() -> None:
    double, single = occupancy_steps(CELLS)
    assert (double.dtype, single.dtype) == ("double", "float")
    assert (single.blocks, single.multiprocessors, single.resident_blocks) == (12, 4, 3)
    assert single.lost.value == pytest.approx(0.25)
    assert single.lost.low == pytest.approx(1 - 75 * 1.01 / (100 * 0.99))
    assert single.lost.high == pytest.approx(1 - 75 * 0.99 / (100 * 1.01))
    flat = pd.DataFrame([block("float", n, 100.0 - n) for n in (1, 2, 3)])
    apart = pd.DataFrame([block("float", n, gbs) for n, gbs in ((1, 100.0), (3, 50.0))])
    failed = CELLS.assign(status="timeout")
    assert occupancy_steps(flat) == occupancy_steps(apart) == occupancy_steps(failed) == []
    flat = [block("float", n, 1000.0) for n in (1, 2)]
    other = [block("float", n, 600.0, height=256, width=1024) for n in (1, 2)]
    slower = [block("float", 2, 100.0, block_x=8)]
    assert step_findings(pd.DataFrame(flat + other), ["k"], NAMES) == []
    assert occupancy_steps(pd.DataFrame(slower + flat)) == []


def test_a_step_is_that_of_the_largest_problem() -> None:
    long = pd.DataFrame([block("float", n, 50.0, height=1000, width=1) for n, _ in STEP])
    [found] = step_findings(pd.concat([long, CELLS]), ["k", "absent"], NAMES)
    assert (found.worth, found.kernel) == (pytest.approx(0.25), "k")
