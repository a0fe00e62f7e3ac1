"""What page one warns of: a best cell on the edge of the sweep, a machine that was not steady."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
from gpushmoo.analysis.best import Limits, edges
from gpushmoo.analysis.run_quality import CopyChanges, Steadiness, steadiness
from gpushmoo.report.sureness import steadiness_finding

# Edges


def swept(xs: list[int], ys: list[int]) -> pd.DataFrame:
    """Every block of these widths and heights."""
    cells = [(x, y, x * y) for x in xs for y in ys]
    frame = pd.DataFrame(cells, columns=["block_x", "block_y", "threads_per_block"])
    return frame.assign(kernel="k")


def edges_of(best: tuple[int, int], group: pd.DataFrame, limits: Limits = Limits()) -> list[str]:  # noqa: B008
    x, y = best
    cell = {"kernel": "k", "block_x": x, "block_y": y}
    return edges(cell, group, ["block_x", "block_y"], limits)


SHAPES = swept([4, 16, 64], [4, 16, 64])


@pytest.mark.parametrize(
    ("best", "found"),
    [
        ((64, 16), ["block_x up"]),
        ((16, 16), []),
        ((4, 64), ["block_x down", "block_y up"]),
        ((16, 4), ["block_y down"]),
    ],
)
def test_a_best_cell_on_the_edge_says_which_axis_to_widen(
    best: tuple[int, int], found: list[str]
) -> None:
    assert edges_of(best, SHAPES) == found


def test_an_end_that_cannot_be_passed_is_no_edge() -> None:
    assert edges_of((1, 8), swept([1, 2, 4], [4, 8, 16])) == []
    assert edges_of((64, 8), swept([4, 16, 64], [4, 8, 16]), Limits({"k": {"block_x": 64}})) == []
    # The next larger block would have more than 1,024 threads, whatever its height.
    assert edges_of((1024, 1), swept([256, 512, 1024], [1, 2, 4])) == []
    # It may have exactly as many.
    assert edges_of((768, 1), swept([256, 512, 768], [1, 2, 4])) == ["block_x up"]
    # An axis that does not change the block is not limited by its threads.
    assert edges_of((64, 16), SHAPES.assign(threads_per_block=1024)) == ["block_x up"]
    # Two values make no range.
    assert edges_of((64, 16), swept([32, 64], [8, 16, 32])) == []


# Steadiness


def shard(repeat: int, seconds: list[float], size: int = 64, kernel: str = "k") -> dict[str, Any]:
    """Provenance of a shard in whose rounds the runtime's copy took so long."""
    control = {
        "height": size,
        "width": size,
        "cache_state": "warm",
        "launch_kind": "back_to_back",
        "at_s": list(range(len(seconds))),
        "seconds": seconds,
    }
    params = {"folder": f"kernels/{kernel}", "dtype": "float", "shard": [0, 1], "repeat": repeat}
    return {"params": {**params, "sizes": [[size, size]]}, "controls": [control]}


@pytest.mark.parametrize(
    ("repeats", "between", "within", "said"),
    [
        (([1.0, 1.0, 1.01, 1.0], [1.0, 1.005, 1.005, 1.0]), None, None, "was steady"),
        (([1.0] * 4, [2.0] * 4), (1.0, 1.0), None, "by 100 % (at most 100 %) between the repeats"),
        (([1.0, 1.0, 1.5, 1.5],) * 2, (0.0, 0.0), (0.5, 0.5), "not steady"),
    ],
)
def test_a_machine_is_steady_where_copies_stay_alike_between_and_within_repeats(
    repeats: tuple[list[float], ...], between: Any, within: Any, said: str
) -> None:
    found = steadiness([shard(n, seconds) for n, seconds in enumerate(repeats, 1)])
    assert found.repeats == 2
    assert found.device.steady == (between is within is None)
    assert between is None or found.device.between == between
    assert within is None or found.device.within == within
    text = steadiness_finding(found)
    assert "2 times in separate processes" in text
    assert said in text
    assert ("not steady" in text) == (not found.device.steady)


@pytest.mark.parametrize(("fed", "said"), [(1.24, "24 %"), (1.01, "1.0 %")])
def test_copies_from_the_host_do_not_make_a_device_unsteady(fed: float, said: str) -> None:
    """They are told apart, since the host's memory and bus vary more than a device's memory."""
    shards = [shard(n, [1.0] * 4) for n in (1, 2)]
    shards += [shard(n, [1.0 if n == 1 else fed] * 4, kernel="fed") for n in (1, 2)]
    found = steadiness(shards, host_fed=["fed"])
    assert (found.device.between, found.device.copies) == ((0.0, 0.0), 1)
    assert found.host.between == pytest.approx((fed - 1, fed - 1))
    text = steadiness_finding(found)
    assert "The machine was steady: the runtime's own copies beside the cells changed by 0" in text
    assert f"; those from the host by {said}" in text
    # Without others they are all that tells of the machine.
    alone = steadiness_finding(steadiness(shards[2:], host_fed=["fed"]))
    assert ("was not steady" in alone) == (fed > 1.02)
    assert "from the host" not in alone


def test_one_bad_copy_among_many_is_told_but_no_verdict() -> None:
    shards = [shard(n, [1.0] * 4, size) for n in (1, 2) for size in range(1, 9)]
    shards.append(shard(1, [1.0] * 4, 99))
    shards.append(shard(2, [3.0] * 4, 99))
    found = steadiness(shards)
    assert found.device.steady
    assert found.device.between == (0.0, 2.0)


def test_short_copies_do_not_make_a_machine_unsteady() -> None:
    """They are mostly the start of a launch; where there is nothing else they count."""
    short = [shard(n, [5e-6 * n] * 4, size=1) for n in (1, 2)]
    long = [shard(n, [1e-3] * 4, size=2) for n in (1, 2)]
    assert steadiness([*short, *long]).device.between == (0.0, 0.0)
    assert not steadiness(short).device.steady


@pytest.mark.parametrize(("change", "steady"), [(1.019, True), (1.021, False)])
def test_copies_may_change_by_two_percent(change: float, steady: bool) -> None:
    assert steadiness([shard(1, [1.0] * 4), shard(2, [change] * 4)]).device.steady == steady
    assert steadiness([shard(1, [1.0, 1.0, change, change])]).device.steady == steady


@pytest.mark.parametrize(("seconds", "counted"), [(49e-6, 1), (51e-6, 2)])
def test_a_copy_of_fifty_microseconds_counts(seconds: float, counted: int) -> None:
    assert (
        steadiness([shard(1, [seconds] * 4, size=1), shard(1, [1.0] * 4)]).device.copies == counted
    )


def test_a_single_repeat_says_that_its_intervals_cover_it_alone() -> None:
    text = steadiness_finding(steadiness([shard(1, [1.0] * 4)]))
    assert "repeats: 1" in text
    assert "this run only" in text
    # Without copies nothing is said of the machine.
    silent = {"params": {"repeat": 1, "folder": "kernels/k"}, "controls": []}
    assert steadiness([silent]) == Steadiness(1, *[CopyChanges(0, None, None)] * 2)


def test_kernels_that_were_recorded_once_are_named() -> None:
    once = shard(1, [1.0] * 4)
    once["params"] = {**once["params"], "folder": "kernels/other"}
    found = steadiness([shard(1, [1.0] * 4), shard(2, [1.0] * 4), once])
    assert found.once == ("other",)
    assert "intervals of that run only: other." in steadiness_finding(found)
