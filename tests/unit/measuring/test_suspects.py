"""Which cells are blamed when measuring processes fail: each culprit, and no other cell."""

from collections import Counter
from itertools import accumulate

import pytest
from conftest import examples
from fakes import (
    FakeDevice,
    FakeWorker,
    Fault,
    Outcome,
    cell_tag,
    make_cells,
    measure_by,
    measure_cells,
    supervised,
)
from gpushmoo.core.errors import (
    DeviceLostError,
    WorkerExitedError,
    WorkerKilledError,
    WorkerTimeoutError,
)
from gpushmoo.core.schema import Status
from gpushmoo.core.space import Cell
from gpushmoo.measuring.events import (
    CellRun,
    CellsStarted,
    Finished,
    MeasureCells,
    Message,
    NoLaunch,
    Preparing,
    result_of,
)
from gpushmoo.measuring.process import MAX_UNATTRIBUTED_CRASHES, MAX_UNATTRIBUTED_KILLS
from gpushmoo.measuring.sampling import TOGETHER, StoppingRule
from gpushmoo.measuring.supervise import FIRST_LAUNCH_S, MAX_FAULTS, FirstLaunches
from gpushmoo.measuring.suspects import (
    KILLS_WHEN_ALONE,
    Attempt,
    Suspects,
    Turn,
    WorkerFailure,
)
from gpushmoo.search.planner import SearchMode, SearchSettings
from gpushmoo.storage.joblog import STRIKES_FORGIVEN
from hypothesis import given, settings
from hypothesis import strategies as st
from jobs import sampling_of

CELLS = make_cells(heights=(4, 8))
FIRST = CELLS[0]
ALL = frozenset("abcdef")


def failure(
    running: str,
    outside: bool = False,
    status: Status = Status.LAUNCH_FAILED,
    had_whole_time: bool = True,
) -> WorkerFailure:
    return WorkerFailure(tuple(running), status, "failed", outside, had_whole_time=had_whole_time)


def attempt(turn: Turn, ran: str, is_fresh: bool = True, is_clean: bool = True) -> Attempt:
    return Attempt(turn, is_fresh, is_clean, set(ran))


def test_a_crash_is_blamed_on_the_first_cell_of_a_fresh_process_alone() -> None:
    suspects = Suspects()
    turn = suspects.next(ALL)
    assert turn == Turn(ALL)
    # Several were launched for the first time: each runs by itself next.
    assert suspects.assign_blame(attempt(turn, "abc"), failure("bc"), "a") is None
    turn = suspects.next(ALL)
    assert turn == Turn(ALL, is_careful=True)
    # Another cell ran before it, and may have damaged it: it is launched first in the next process.
    assert suspects.assign_blame(attempt(turn, "bc"), failure("c"), "ab") is None
    turn = suspects.next(ALL)
    assert turn == Turn(ALL, first="c", is_careful=True)
    # A process that has done another job may be damaged as well.
    assert suspects.assign_blame(attempt(turn, "c", is_fresh=False), failure("c"), "ab") is None
    assert suspects.assign_blame(attempt(turn, "c"), failure("c"), "ab") == "c"


def test_failures_between_samples_are_tried_again_after_all_others() -> None:
    suspects = Suspects()
    assert suspects.assign_blame(attempt(Turn(ALL), "abcd"), failure("ab"), ALL) is None
    assert suspects.next(ALL) == Turn(ALL - set("ab"))
    assert suspects.assign_blame(attempt(Turn(ALL), "cdef"), failure("c"), ALL) is None
    assert suspects.next(ALL) == Turn(frozenset("def"))
    assert suspects.next(frozenset("abc")) == Turn(frozenset("ab"), 1)
    assert suspects.assign_blame(attempt(Turn(ALL, 1), "ab"), failure("b"), ALL) is None
    assert suspects.next(frozenset("abc")) == Turn(frozenset("a"), 1)
    alone = suspects.next(frozenset("bc"))
    assert alone in (Turn(frozenset("b"), 1), Turn(frozenset("c"), 1))
    [key] = alone.keys
    assert suspects.assign_blame(attempt(alone, key), failure(key), ALL) == key


def test_a_slow_first_launch_has_its_whole_time_after_all_others() -> None:
    suspects = Suspects()
    short = failure("b", status=Status.TIMEOUT, had_whole_time=False)
    assert suspects.assign_blame(attempt(Turn(ALL), "b"), short, "") is None
    assert suspects.next(ALL) == Turn(ALL - {"b"}, is_careful=True)
    turn = suspects.next(frozenset("b"))
    assert turn == Turn(frozenset("b"), first="b", is_patient=True, is_careful=True)
    whole = failure("b", status=Status.TIMEOUT)
    # The others were right, so that it need not be waited for once more.
    assert suspects.assign_blame(attempt(turn, "ab"), whole, "") == "b"
    # A faulty cell ran before it: once more, by itself.
    assert suspects.assign_blame(attempt(turn, "ab", is_clean=False), whole, "") is None
    turn = suspects.next(frozenset("b"))
    assert suspects.assign_blame(attempt(turn, "b"), whole, "") == "b"


def test_a_cell_that_hangs_in_a_crowd_and_by_itself_is_blamed() -> None:
    suspects, silent = Suspects(), Status.TIMEOUT
    crowd = attempt(Turn(ALL), "abcdef")
    assert suspects.assign_blame(crowd, failure("abc", status=silent), ALL) is None
    turn = suspects.next(frozenset("abc"))
    assert suspects.assign_blame(attempt(turn, "ab"), failure("b", status=silent), ALL) == "b"


def test_kills_from_outside_are_counted_while_a_cell_is_alone() -> None:
    suspects, turn = Suspects(), Turn(ALL)
    for _ in range(STRIKES_FORGIVEN):
        killed = failure("f", outside=True)
        assert suspects.assign_blame(attempt(turn, "f"), killed, "") is None
    assert suspects.next(ALL) == turn
    assert suspects.assign_blame(attempt(turn, "fa"), failure("a", outside=True), "f") is None
    turn = suspects.next(ALL)
    assert turn == Turn(ALL, first="a", is_careful=True)
    for _ in range(KILLS_WHEN_ALONE - 1):
        assert suspects.assign_blame(attempt(turn, "a"), failure("a", outside=True), "") is None
    assert suspects.assign_blame(attempt(turn, "a"), failure("a", outside=True), "") == "a"


def test_a_process_that_launches_in_another_order_ends_as_well() -> None:
    suspects, launched = Suspects(), frozenset("a")
    for _ in range(2):  # together, although each should have been launched by itself
        turn = suspects.next(ALL)
        assert suspects.assign_blame(attempt(turn, "abc"), failure("bc"), launched) is None
    turn = suspects.next(frozenset("bc"))
    assert (turn.keys, turn.together) == (frozenset("bc"), 1)
    for _ in range(2):  # behind another cell, although it should have been the first
        assert suspects.assign_blame(attempt(turn, "bc"), failure("c"), launched) is None
        turn = suspects.next(frozenset("bc"))
    turn = suspects.next(frozenset("c"))
    assert turn.keys == frozenset("c")
    assert suspects.assign_blame(attempt(turn, "c"), failure("c"), launched) == "c"


def test_first_launches_have_more_time_the_longer_others_took() -> None:
    first = FirstLaunches()
    assert first.limit_s == FIRST_LAUNCH_S
    first.put_off()
    assert first.limit_s == 2 * FIRST_LAUNCH_S
    first.ended(0.01)
    assert first.limit_s == FIRST_LAUNCH_S
    first.ended(FIRST_LAUNCH_S)
    assert first.limit_s > FIRST_LAUNCH_S


@pytest.mark.parametrize("mode", [SearchMode.ALL, SearchMode.RACE, SearchMode.GUIDED])
def test_a_suspect_that_was_innocent_is_measured(mode: SearchMode) -> None:
    class LostTwice(FakeDevice):
        """Lost in the first process, and in the second while its second cell runs."""

        def open(self) -> None:
            super().open()
            self.lost_at = self.launches + 3 if self.opened <= 2 else None

    rule = StoppingRule(6, 9, 0.01, 1e9)
    sampling = sampling_of(rule, SearchSettings(mode=mode))
    outcome = measure_by(LostTwice(), CELLS, sampling)
    assert outcome.device.opened == 3
    statuses = {r.status for r in outcome.runs}
    assert Status.OK in statuses <= {Status.OK, Status.NOT_SEARCHED}


# Faults of every launch of a cell, and the status that each must have.
KINDS = {
    "dead": Status.LAUNCH_FAILED,
    "lost": Status.LAUNCH_FAILED,
    "failed": Status.LAUNCH_FAILED,
    "hang": Status.TIMEOUT,
    "slow": Status.TIMEOUT,
    "wrong": Status.WRONG_RESULT,
    "past": Status.WRONG_RESULT,
    "refused": Status.OUT_OF_RESOURCES,
}
TIMEOUT_S = 2.0
SPACE = make_cells(heights=(4, 8), threads=(1, 2, 4), chunks=(1, 2))


def measure_faulty(
    kinds: dict[Cell, str],
    max_faults: int | None = MAX_FAULTS,
    mode: SearchMode = SearchMode.ALL,
) -> Outcome:
    """Measure these cells, each with a fault of this kind in its first launches, or none."""
    faults = [
        Fault(cell_tag(cell), "run", nth, kind)
        for cell, kind in kinds.items()
        if kind in KINDS
        for nth in (range(4) if kind == "slow" else range(2))
    ]
    rule = StoppingRule(6, 9, 0.01, 1e9)
    sampling = sampling_of(rule, SearchSettings(mode=mode), cell_timeout_s=TIMEOUT_S)
    return measure_by(FakeDevice(faults=faults), list(kinds), sampling, max_faults)


@settings(max_examples=examples(60))
@given(st.data())
def test_each_cell_of_a_space_of_faults_ends_for_its_own_reason(data: st.DataObject) -> None:
    """However many cells fail, right ones are ok, and a fault costs two processes at most."""
    cells = data.draw(st.lists(st.sampled_from(SPACE), unique_by=cell_tag, min_size=2))
    rate = data.draw(st.sampled_from([1, 3, 9]))
    kind = st.sampled_from(["right", *[k for k in KINDS for _ in range(rate)]])
    kinds = {cell: data.draw(kind) for cell in cells}
    mode = data.draw(st.sampled_from([SearchMode.ALL, SearchMode.RACE]))
    outcome = measure_faulty(kinds, mode=mode)
    assert {c: outcome[c].status for c in cells} == {
        c: KINDS.get(kind, Status.OK) for c, kind in kinds.items()
    }
    counts = Counter(kinds.values())
    crashes, hangs = counts["dead"] + counts["lost"], counts["hang"]
    assert outcome.device.opened - 1 <= 2 * (crashes + hangs) + 1
    assert outcome.device.opened <= 1 or crashes + hangs > 0
    if hangs and not counts["slow"]:
        assert outcome.device.clock.now <= hangs * (TIMEOUT_S + 2) + 1.0


def test_most_of_a_space_may_crash() -> None:
    cells = make_cells(threads=tuple(range(1, 33)), chunks=(1,))
    right = cells[::16]
    outcome = measure_faulty({c: "right" if c in right else "dead" for c in cells})
    assert {r.cell for r in outcome.runs if r.status is Status.OK} == set(right)


def test_a_version_none_of_whose_cells_was_right_is_skipped_after_max_faults() -> None:
    cells = make_cells(threads=tuple(range(1, 13)), chunks=(1,))
    kinds = {c: "dead" if c.variant == "a" else "right" for c in cells}
    outcome = measure_faulty(kinds, max_faults=3)
    of_a = Counter(r.status for r in outcome.runs if r.cell.variant == "a")
    assert of_a == {Status.LAUNCH_FAILED: 3, Status.SKIPPED: 9}
    assert {r.status for r in outcome.runs if r.cell.variant == "b"} == {Status.OK}
    skipped = next(r for r in outcome.runs if r.status is Status.SKIPPED)
    assert "max_faults" in str(skipped.message)
    for most in (None, MAX_FAULTS):
        statuses = Counter(r.status for r in measure_faulty(kinds, most).runs)
        assert statuses == {Status.LAUNCH_FAILED: 12, Status.OK: 12}


@pytest.mark.parametrize(
    ("outside", "limit"), [(False, MAX_UNATTRIBUTED_CRASHES), (True, MAX_UNATTRIBUTED_KILLS)]
)
def test_many_falls_of_nobody_lose_the_device(outside: bool, limit: int) -> None:
    suspects = Suspects()
    told = [suspects.is_lost(left, failure("", outside)) for left in (6, *[5] * limit)]
    # The first one was before a cell ended.
    assert told == [False] * limit + [True]


def test_first_strikes_and_faults_of_nobody_measure_all_again() -> None:
    asked: list[tuple[int, int]] = []
    killed = WorkerKilledError("the measuring process was ended by SIGTERM")

    def start(do: MeasureCells) -> FakeWorker:
        keys = do.keys or frozenset()
        asked.append((len(keys), do.together))
        if len(asked) < STRIKES_FORGIVEN:
            return FakeWorker([CellsStarted((FIRST.key,))], killed)
        outcome = measure_cells(FakeDevice(), [c for c in CELLS if c.key in keys])
        return FakeWorker([*map(result_of, outcome.runs), Finished()])

    runs = supervised(FakeWorker([CellsStarted((FIRST.key,))], killed), start, CELLS)
    assert {r.status for r in runs} == {Status.OK}
    assert asked == [(len(CELLS), TOGETHER)] * STRIKES_FORGIVEN
    ended = measure_cells(FakeDevice(), CELLS).runs

    def start(do: MeasureCells) -> FakeWorker:
        return FakeWorker([*map(result_of, ended), Finished()])

    for err in (WorkerExitedError("ended with status 1"), WorkerKilledError("ended by SIGHUP")):
        assert {r.status for r in supervised(FakeWorker([], err), start, CELLS)} == {Status.OK}


def test_a_cell_that_takes_all_memory_is_blamed_in_the_end_and_no_other() -> None:
    device = FakeDevice(hogs=frozenset([cell_tag(FIRST)]))
    outcome = measure_cells(device, CELLS)
    assert device.opened <= STRIKES_FORGIVEN + 4 + KILLS_WHEN_ALONE
    assert outcome[FIRST].status is Status.LAUNCH_FAILED
    assert outcome[FIRST].message == (
        "the measuring process was ended by SIGKILL, each time that it measured this cell alone"
    )
    assert {r.status for r in outcome.runs if r.cell != FIRST} == {Status.OK}


# Launches of a cell that is measured alone: one to verify, one to time, one to warm up, six that
# count, one to verify.
ALONE = 10


@settings(max_examples=examples(40))
@given(gaps=st.lists(st.integers(ALONE + 1, 80), max_size=40))
def test_no_cell_is_blamed_for_random_strikes(gaps: list[int]) -> None:
    """However many strike, and whatever cells they hit, one at a time or together."""
    device = FakeDevice(struck_at=frozenset(accumulate(gaps)))
    outcome = measure_cells(device, CELLS)
    assert {r.status for r in outcome.runs} == {Status.OK}
    assert {tuple(r.samples_s) for r in outcome.runs} == {(1e-3,) * 6}


@pytest.mark.parametrize("kind", ["dead", "hang", "lost"])
def test_a_fault_that_comes_once_costs_no_cell(kind: str) -> None:
    class Once(FakeDevice):
        def open(self) -> None:
            super().open()
            self.faults = self.faults if self.opened == 1 else []

    for operation, nth in (("bind", 0), ("run", 0), ("sample", 4)):
        outcome = measure_cells(Once(faults=[Fault(cell_tag(FIRST), operation, nth, kind)]), CELLS)
        assert {r.status for r in outcome.runs} == {Status.OK}


@pytest.mark.parametrize("operation", ["bind", "run", "sample"])
@pytest.mark.parametrize("kind", ["dead", "hang"])
def test_faults_among_many_cells_condemn_no_other(operation: str, kind: str) -> None:
    cells = make_cells(threads=tuple(range(1, 65)), chunks=(1, 2))
    bad = [c for c in cells if c.variant == "a"][::13]
    nth = 4 if operation == "sample" else 0
    device = FakeDevice(faults=[Fault(cell_tag(c), operation, nth, kind) for c in bad])
    outcome = measure_cells(device, cells)
    assert {r.cell for r in outcome.runs if r.status is not Status.OK} == set(bad)
    assert device.opened - 1 <= 3 * len(bad)


# One that ends while data are made: that costs their cells, no others.

SAID = "the measuring process ended with status 0"
GONE = WorkerExitedError(SAID)
DATA = Preparing(CELLS[0].problem, frozenset("a"))


def outcome(told: list[Message], *ends: Exception) -> tuple[list[CellRun], list[MeasureCells]]:
    """The cells after processes that tell `told` and end so, and what each successor was asked for.

    After `ends` they leave out what they are asked for.
    """
    asked: list[MeasureCells] = []
    left = list(ends)

    def next_worker() -> FakeWorker:
        return FakeWorker([*told], left.pop(0)) if left else FakeWorker([Finished()])

    def start(do: MeasureCells) -> FakeWorker:
        asked.append(do)
        return next_worker()

    return supervised(next_worker(), start, CELLS), asked


@pytest.mark.parametrize(
    ("end", "times"),
    [
        (GONE, MAX_UNATTRIBUTED_CRASHES),
        (WorkerTimeoutError(SAID), MAX_UNATTRIBUTED_CRASHES),
        (WorkerKilledError(SAID), MAX_UNATTRIBUTED_KILLS),
    ],
)
def test_ends_while_data_are_made_cost_the_cells_of_these_data(end: Exception, times: int) -> None:
    runs, asked = outcome([DATA], *[end] * times)
    group = [r for r in runs if r.cell.problem == DATA.problem and r.cell.variant == "a"]
    assert {(r.status, r.message) for r in group} == {
        (Status.WORKLOAD_FAILED, f"{SAID} while workload.py made the data of 4x8")
    }
    # At first all are taken again: it might have been bad luck.
    everyone = {r.cell.key for r in runs}
    others = everyone - {r.cell.key for r in group}
    assert [do.keys for do in asked] == [*[everyone] * (times - 1), others]


def test_ends_and_silence_in_a_cell_cost_that_cell() -> None:
    key = CELLS[3].key
    runs, asked = outcome([DATA, CellsStarted((key,))], GONE)
    assert Status.WORKLOAD_FAILED not in {r.status for r in runs}
    assert [(do.keys, do.first) for do in asked] == [({c.key for c in CELLS}, key)]
    told = [DATA, CellsStarted((FIRST.key,))]
    workers = [FakeWorker([*told], WorkerTimeoutError(SAID)) for _ in range(2)]
    [run] = supervised(workers.pop(), lambda do: workers.pop(), CELLS[:1])
    assert (run.status, run.message) == (
        Status.TIMEOUT,
        "a launch did not end within 1 s; its process was ended",
    )


@pytest.mark.parametrize(
    "told", [[], [DATA, result_of(CellRun(FIRST, NoLaunch()))], [Preparing(DATA.problem)]]
)
@pytest.mark.parametrize("end", [GONE, DeviceLostError("gone")])
def test_ends_in_neither_data_nor_cell(told: list[Message], end: Exception) -> None:
    runs, _ = outcome(told, end, end)
    assert {r.status for r in runs} == {Status.DEVICE_LOST}
