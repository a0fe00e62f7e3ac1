"""How a run went: how its cells ended, whether the machine was steady."""

import io
import itertools
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from cells import cell
from gpushmoo.analysis.run_quality import (
    MEANING,
    CopyChanges,
    Steadiness,
    faults,
    steadiness,
    verdict,
    write_verdict,
)
from gpushmoo.core.errors import FailedSweepError, StrictError
from gpushmoo.core.schema import FAULTS, Status
from gpushmoo.report.method import budget_finding, steadiness_finding

CELLS = pd.DataFrame(
    [
        *(cell(n, x=n, kernel="tiny") for n in range(1, 6)),
        cell(x=6, kernel="tiny", status="timeout"),
        *(cell(n, x=n, kernel="tiny", dtype="double") for n in range(1, 4)),
    ]
)
SWEEPS = {
    name: {
        "kernel": "tiny",
        "sizes": [[64, 64], [8, 8]],
        "dtypes": [name],
        "variants": ["v"],
        "cache_states": ["warm", "flushed"],
        "timing_modes": ["batched"],
    }
    for name in ("float", "double")
}


def test_faults_are_counted_said_and_stop_a_strict_run(tmp_path: Path) -> None:
    assert verdict(CELLS) == "1 of 9 cells ended in a fault: 1 timeout in tiny float v."
    assert list(faults(CELLS)["status"]) == ["timeout"]
    out, terminal = tmp_path / "verdict.txt", io.StringIO()
    for strict in (False, True):
        write_verdict(CELLS[CELLS["status"] == "ok"], out, strict, SWEEPS, terminal)
        assert terminal.getvalue() == ""
        assert out.read_text().startswith("All 8 cells")
        out.unlink()
    with pytest.raises(StrictError, match="1 timeout"):
        write_verdict(CELLS, out, True, SWEEPS, terminal)
    assert not out.exists()
    write_verdict(CELLS, out, False, SWEEPS, terminal)
    assert "1 of 9 cells" in out.read_text()
    assert "1 of 9 cells" in terminal.getvalue()


@pytest.mark.parametrize("status", list(Status))
def test_limits_are_no_faults_and_faults_are_not_passed_over(status: Status) -> None:
    harmless = {Status.OK, Status.TOO_MANY_THREADS, Status.OUT_OF_RESOURCES, Status.INVALID}
    harmless |= {Status.NOT_SEARCHED}
    assert (verdict(CELLS.assign(status=status.value)) is None) == (status in harmless)
    assert (status in FAULTS) != (status in harmless)
    assert status in MEANING


@pytest.mark.parametrize(
    ("statuses", "said"),
    [
        (["ok", "timeout"], None),
        (["too_many_threads", "out_of_resources"], None),
        (["timeout"], "sweep 'double' could be measured: 3 failed, most of them timeout (bad"),
        (
            ["too_many_threads", "build_failed", "build_failed"],
            "sweep 'double' could be measured: 2 failed, most of them build_failed (bad source).",
        ),
    ],
)
def test_an_unmeasured_sweep(tmp_path: Path, statuses: list[str], said: str | None) -> None:
    cells, where = CELLS.copy(), CELLS["dtype"] == "double"
    cells.loc[where, "message"] = "bad source"
    cells.loc[where, "status"] = list(itertools.islice(itertools.cycle(statuses), where.sum()))
    terminal, out = io.StringIO(), tmp_path / "verdict.txt"
    if said is None:
        write_verdict(cells, out, False, SWEEPS, terminal)
        return
    with pytest.raises(FailedSweepError) as caught:
        write_verdict(cells, out, False, SWEEPS, terminal)
    assert said in str(caught.value)
    assert "'float'" not in str(caught.value)
    assert "cells ended in a fault" in terminal.getvalue()


def shard(repeat: int, seconds: list[float], size: int = 64, kernel: str = "k") -> dict[str, Any]:
    """Provenance of a shard in whose rounds the runtime's copy took so long."""
    control = {
        "height": size,
        "width": size,
        "cache_state": "warm",
        "timing_mode": "batched",
        "at_s": list(range(len(seconds))),
        "seconds": seconds,
    }
    params = {"folder": f"kernels/{kernel}", "dtype": "float", "shard": [0, 1], "repeat": repeat}
    return {"params": {**params, "sizes": [[size, size]]}, "controls": [control]}


@pytest.mark.parametrize(
    ("repeats", "between", "within", "said"),
    [
        (([1.0, 1.0, 1.01, 1.0], [1.0, 1.005, 1.005, 1.0]), None, None, "was steady"),
        (([1.0] * 4, [2.0] * 4), (1.0, 1.0), None, "by 100 % (100 % at most) between repeats"),
        (([1.0, 1.0, 1.5, 1.5],) * 2, (0.0, 0.0), (0.5, 0.5), "unsteady"),
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
    assert ("unsteady" in text) == (not found.device.steady)


@pytest.mark.parametrize(("fed", "said"), [(1.24, "24 %"), (1.01, "1.0 %")])
def test_copies_from_the_host_do_not_make_a_device_unsteady(fed: float, said: str) -> None:
    """They are told apart, since the host's memory and bus vary more than a device's memory."""
    shards = [shard(n, [1.0] * 4) for n in (1, 2)]
    shards += [shard(n, [1.0 if n == 1 else fed] * 4, kernel="fed") for n in (1, 2)]
    found = steadiness(shards, host_fed=["fed"])
    assert (found.device.between, found.device.copies) == ((0.0, 0.0), 1)
    assert found.host.between == pytest.approx((fed - 1, fed - 1))
    text = steadiness_finding(found)
    assert "The machine was steady: the memcpy baselines changed by 0" in text
    assert f"; those from the host by {said}" in text
    # Without others they are all that tells of the machine.
    alone = steadiness_finding(steadiness(shards[2:], host_fed=["fed"]))
    assert ("was unsteady" in alone) == (fed > 1.02)
    assert "from the host" not in alone


def test_single_bad_copies_and_short_ones_make_no_machine_unsteady() -> None:
    shards = [shard(n, [1.0] * 4, size) for n in (1, 2) for size in range(1, 9)]
    shards.append(shard(1, [1.0] * 4, 99))
    shards.append(shard(2, [3.0] * 4, 99))
    found = steadiness(shards)
    assert found.device.steady
    assert found.device.between == (0.0, 2.0)
    # They are mostly the start of a launch; where there is nothing else they count.
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


def test_what_was_measured_once_says_so() -> None:
    text = steadiness_finding(steadiness([shard(1, [1.0] * 4)]))
    assert "repeats: 1" in text
    assert "this run only" in text
    # Without copies nothing is said of the machine.
    silent = {"params": {"repeat": 1, "folder": "kernels/k"}, "controls": []}
    assert steadiness([silent]) == Steadiness(1, *[CopyChanges(0, None, None)] * 2)
    once = shard(1, [1.0] * 4)
    once["params"] = {**once["params"], "folder": "kernels/other"}
    found = steadiness([shard(1, [1.0] * 4), shard(2, [1.0] * 4), once])
    assert found.once == ("other",)
    assert "intervals of that run only: other." in steadiness_finding(found)


def test_a_budget_says_what_it_bought_and_whether_more_would_help() -> None:
    bands = {"s": [100.0, 1.0], "low_s": [96.0, 0.1], "high_s": [104.0, 1.9]}
    best = pd.DataFrame(bands).add_prefix("median_")
    best = best.assign(is_fastest=True, kernel=["k", "fed"])
    jobs = [{"measuring": {"seconds": s, "budget": 10.0}} for s in (4.0, 12.0)]
    (said,) = budget_finding(jobs, best, ["fed"])
    assert "took 16 s of a budget of 20 s (measure.budget), and 1 of 2 jobs used up" in said
    assert "known to ± 4.0 %" in said
    # Cells may still stop at their own limits: this does not contradict the next sentence.
    (enough,) = budget_finding(jobs[:1], best)
    assert "a larger budget would change nothing" in enough
    assert "measure.max_samples" in enough
    assert budget_finding([{}, {"measuring": {"seconds": 1.0, "budget": None}}], best) == []
