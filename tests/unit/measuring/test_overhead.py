"""The time of a launch in a row depends neither on overhead nor on the number of launches."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from fakes import INFO, FakeDevice, make_cells
from gpushmoo.core.errors import LaunchFailedError, TypedError
from gpushmoo.core.schema import Status
from gpushmoo.core.space import USUAL, Condition
from gpushmoo.measuring.events import CopySample
from gpushmoo.measuring.overhead import CELLS, NOTHING, overhead_of, overhead_of_samples
from gpushmoo.measuring.rounds import PLACES
from gpushmoo.measuring.sample_length import launches_of_group
from rowed import RowCopy, RowDevice, hot_info, measured, table_of

CELL = make_cells(threads=(1, 2, 3, 4), chunks=(1,), variants=("a",))
# A device that times launches in a stream, too.
CUDA = replace(INFO, backend="cuda")


def test_a_time_is_right_whatever_the_first_look_and_the_number_of_launches() -> None:
    """2,000 pairs of overhead and time, each looked at with an error of ±5 %."""
    rng = np.random.default_rng(5)
    overheads = rng.uniform(2.0e-6, 3.7e-6, 2000)
    times = np.exp(rng.uniform(np.log(1.5e-6), np.log(400e-6), 2000))
    for overhead_s, launch_s in zip(overheads.tolist(), times.tolist(), strict=True):
        found = []
        for factor in (0.5, 1.0, 2.0):
            look_s = launch_s * (1.0 + rng.uniform(-0.05, 0.05))
            n = launches_of_group(look_s, factor=factor)
            overhead = overhead_of_samples(partial(noisy, overhead_s, launch_s, rng), n)
            assert overhead is not None
            found.append(overhead_s / n + launch_s - overhead.seconds / n)
        assert found == pytest.approx([launch_s] * 3, rel=0.003)


def noisy(
    overhead_s: float, launch_s: float, rng: np.random.Generator, launches: int
) -> list[float | TypedError]:
    """Samples of some cells, each with an error of 0.1 %."""
    return [*((overhead_s / launches + launch_s) * (1.0 + 1e-3 * rng.standard_normal(CELLS)))]


def test_the_overhead_is_that_of_the_typical_cell_and_its_error_is_their_spread() -> None:
    rng = np.random.default_rng(3)
    by_cell = 2e-6 + 1e-7 * rng.standard_normal(CELLS)
    by_cell[0] = 9e-6
    short = np.tile((by_cell + 100e-6)[:, None], 5)
    long = np.tile((by_cell + 400e-6)[:, None], 5)
    found = overhead_of(short, long)
    assert found.seconds == pytest.approx(np.median(by_cell))
    assert 0.1e-7 < found.error_s < 1e-7
    # Few cells: by the spread of their samples.
    noisy = short[:1] + 1e-7 * rng.standard_normal((1, 5))
    assert 0.0 < overhead_of(noisy, long[:1]).error_s < 3e-7
    # No sample is nothing but overhead.
    assert overhead_of(short, short).seconds == pytest.approx(short.min() / 2)


@pytest.mark.parametrize("fails", [0, 15, 16])
def test_cells_that_fail_tell_no_overhead(fails: int) -> None:
    def take(launches: int) -> list[float | TypedError]:
        good = [2e-6 / launches + 1e-5] * (CELLS - fails)
        return [*good, *[LaunchFailedError("no")] * fails]

    found = overhead_of_samples(take, 16)
    if fails == CELLS:
        assert found is None
    else:
        assert found is not None
        assert found.seconds == pytest.approx(2e-6)


@pytest.mark.parametrize("launch_s", [1e-6, 5e-6, 20e-6, 100e-6, 500e-6, 1.1e-3])
def test_a_copy_is_as_fast_as_the_runtime_s(launch_s: float) -> None:
    device = RowDevice(launch_s=launch_s, cold=1.4, noise=1e-3)
    rows = table_of(measured(device, CELL))
    best = rows[rows["threads"] == 1].iloc[0]
    assert best["vs_memcpy"] == pytest.approx(1.0, abs=0.005)
    assert best["median_s"] == pytest.approx(launch_s, rel=0.003)
    assert rows["overhead_s"].to_numpy() == pytest.approx(
        2.5e-6, abs=5 * rows["overhead_error_s"].max()
    )
    in_a_launch = rows["overhead_error_s"] / rows["launches_per_sample"]
    assert in_a_launch.max() / launch_s < 0.003


def test_the_number_of_launches_comes_from_a_warm_look() -> None:
    device = RowDevice(launch_s=5e-6, cold=1.7)
    [n] = {run.launches for run in measured(device, CELL).runs.values()}
    assert n == launches_of_group(5e-6) == 64
    # The first launch alone would have told half as many.
    assert launches_of_group(5e-6 * 1.7) == 32


def test_longer_and_shorter_samples_find_the_same_times() -> None:
    found = [
        table_of(measured(RowDevice(launch_s=6e-6), CELL, launches_factor=factor))
        for factor in (0.5, 1.0, 2.0)
    ]
    assert [rows["launches_per_sample"].max() for rows in found] == [32, 64, 128]
    for rows in found:
        assert rows["median_s"].to_numpy() == pytest.approx(found[1]["median_s"].to_numpy(), 3e-3)


def test_an_error_of_the_overhead_is_in_the_interval() -> None:
    rows = table_of(measured(RowDevice(launch_s=1e-6, noise=1e-3), CELL))
    half = np.log(rows["median_high_s"] / rows["median_s"])
    own = np.log(rows["group_high_s"] / rows["median_s"])
    of_overhead = 1.96 * rows["overhead_error_s"] / rows["launches_per_sample"] / rows["median_s"]
    assert half.to_numpy() == pytest.approx(np.hypot(own, of_overhead), rel=1e-3)
    assert (half > own).all()


@pytest.mark.parametrize(
    ("state", "kind"), [("flushed", "batched"), ("warm", "isolated"), ("warm", "graph")]
)
def test_launches_by_themselves_hold_their_overhead(state: str, kind: str) -> None:
    cells = make_cells(chunks=(1,), cache_states=(state,), timing_modes=(kind,))
    result = measured(RowDevice(launch_s=10e-6), cells)
    rows = table_of(result)
    assert rows["overhead_s"].isna().all() == (kind != "graph")
    [copied] = {copies[0].overhead is None for copies in result.copies.values()}
    assert copied == (kind != "graph")


def test_a_clock_of_launches_has_no_overhead() -> None:
    outcome = measured(RowDevice(launch_s=3e-3), CELL)
    assert {run.overhead for run in outcome.runs.values()} == {None}
    assert {run.launches for run in outcome.runs.values()} == {1}
    device = FakeDevice(launch_s=1e-5)
    result = measured(device, CELL)  # type: ignore[arg-type]
    assert {run.overhead for run in result.runs.values()} == {NOTHING}
    assert set(table_of(result)["overhead_s"]) == {0.0}


def test_a_copy_that_no_graph_takes_in_is_timed_alone() -> None:
    class Refusing(RowDevice):
        def in_a_row(self, launch_s: float, launches: int) -> float:
            if launch_s == self.launch_s * self.copy_factor and self.copy_factor != 1.0:
                raise LaunchFailedError("operation not permitted when stream is capturing")
            return super().in_a_row(launch_s, launches)

    result = measured(Refusing(launch_s=1e-5, copy_factor=1.1), CELL)
    assert {run.status for run in result.runs.values()} == {Status.OK}
    copies = [copied for some in result.copies.values() for copied in some]
    assert {(c.launches, c.overhead) for c in copies} == {(1, None)}
    assert isinstance(copies[0], CopySample)


@pytest.mark.parametrize("slow", ["batched", "stream"])
def test_the_copy_is_timed_in_the_way_that_is_faster(slow: str) -> None:
    """Seen once: in a graph, copies of 512 MiB by the runtime of CUDA take 1.6 times as long."""
    used = set[str]()

    class Slow(RowCopy):
        def sample(self, launches: int, met: Condition = USUAL) -> float:
            used.add(met.timing_mode)
            return super().sample(launches, met) * (1.6 if met.timing_mode == slow else 1.0)

    device = RowDevice(launch_s=250e-6, info=CUDA, copies=Slow)
    result = measured(device, CELL)
    best = table_of(result).query("threads == 1").iloc[0]
    assert used == {"batched", "stream"}
    assert best["vs_memcpy"] == pytest.approx(1.0, abs=0.005)
    [copied] = {copies[0].overhead for copies in result.copies.values()}
    assert copied is not None


@pytest.mark.parametrize(
    ("state", "mode"), [("flushed", "batched"), ("warm", "isolated"), ("warm", "graph")]
)
def test_a_copy_under_another_condition_is_timed_under_that_alone(state: str, mode: str) -> None:
    used = set[Condition]()

    class Copy(RowCopy):
        def sample(self, launches: int, met: Condition = USUAL) -> float:
            used.add(met)
            return super().sample(launches, met)

    cells = make_cells(chunks=(1,), cache_states=(state,), timing_modes=(mode,))
    measured(RowDevice(launch_s=250e-6, info=CUDA, copies=Copy), cells)
    assert used - {USUAL} == {Condition(state, mode)}


def test_a_copy_that_fails_in_a_graph_is_timed_in_a_stream() -> None:
    class Refusing(RowCopy):
        def sample(self, launches: int, met: Condition = USUAL) -> float:
            if launches > 1 and met.timing_mode == "batched":
                raise LaunchFailedError("operation not permitted when stream is capturing")
            return super().sample(launches, met)

    device = RowDevice(launch_s=1e-5, info=CUDA, copies=Refusing)
    copies = [copied for some in measured(device, CELL).copies.values() for copied in some]
    assert 1 not in {copied.launches for copied in copies}
    assert all(copied.seconds == pytest.approx(1e-5, rel=0.003) for copied in copies)


@pytest.mark.parametrize(("share", "places"), [(0.2, 1), (0.3, PLACES), (0.9, PLACES), (1.5, 1)])
def test_cells_that_nearly_fill_the_cache_are_measured_in_several_places(
    share: float, places: int
) -> None:
    device = RowDevice(launch_s=1e-5, placed=0.02, info=hot_info(CELL, share))
    result = measured(device, CELL)
    assert {run.status for run in result.runs.values()} == {Status.OK}
    for run in result.runs.values():
        # The clock has no noise: a time for each place.
        assert len({round(s, 12) for s in run.samples_s}) == places
        assert len(run.samples_s) == (9 if places > 1 else 6)
    again = RowDevice(launch_s=1e-5, placed=0.02, info=hot_info(CELL, share))
    assert measured(again, CELL, repeat=2).runs.keys() == result.runs.keys()
    assert places == 1 or set(again.places).isdisjoint(device.places)


def test_the_order_of_shards_does_not_matter() -> None:
    """Two runs of two shards in either order draw the same places of their buffers."""
    small, large = CELL, make_cells(heights=(8,), threads=(1, 2), chunks=(1,), variants=("a",))

    def times(shards: list[list[Any]]) -> dict[str, list[float]]:
        found = {}
        device = RowDevice(launch_s=1e-5, placed=0.02, info=hot_info(small, 0.5))
        for shard in shards:
            for key, run in measured(device, shard).runs.items():
                found[key] = run.samples_s
        return found

    assert times([small, large]) == times([large, small])


@pytest.mark.parametrize(
    ("slow", "launches"),
    [(1.0, 64), (3.9, 64), (4.1, 64), (20.0, 8), (100.0, 2), (1000.0, 1), (1e4, 1)],
)
def test_slow_cells_of_a_group_have_fewer_launches(slow: float, launches: int) -> None:
    """One block that does the work of all must not take most of the time of a sweep."""

    class Uneven(RowDevice):
        def seconds(self, tag: Any, nth_sample: int, launches: int) -> float:
            # The first launch of each is cold.
            cold = 10.0 if launches == 1 and self.launch_s < 1e-4 else 1.0
            own = (slow if tag[2] == 4 else 1.0) * self.launch_s
            return own * cold + self.overhead_s / launches

    result = measured(Uneven(launch_s=5e-6), CELL)
    found = {run.cell["threads"]: run.launches for run in result.runs.values()}
    assert found == {1: 64, 2: 64, 3: 64, 4: launches}
    rows = table_of(result).set_index("threads")
    cold = 10.0 if launches == 1 else 1.0
    expected = cold * slow * 5e-6 + (2.5e-6 if launches == 1 else 0.0)
    assert rows["median_s"].loc[4] == pytest.approx(expected)
