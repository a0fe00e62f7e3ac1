"""Who is blamed when measuring processes fall: culprits at last, the innocent never."""

from collections import Counter
from itertools import accumulate

import pytest
from conftest import examples
from fakes import FakeDevice, FakeWorker, Fault, cell_tag, make_cells, measure_cells, supervised
from gpushmoo.core.errors import DeviceLostError
from gpushmoo.core.schema import Status
from gpushmoo.measuring.events import (
    Began,
    CellRun,
    Ended,
    Finished,
    Measure,
    Message,
    NoLaunch,
    Preparing,
)
from gpushmoo.measuring.process import WorkerGoneError, WorkerKilledError, WorkerSilentError
from gpushmoo.measuring.settings import TOGETHER
from gpushmoo.measuring.supervise import (
    FAULTS_OF_NOBODY,
    FAULTS_PER_VARIANT,
    MOST_UNEXPLAINED,
    STRIKES_ALONE,
    STRIKES_OF_NOBODY,
    Suspects,
    WorkerFailure,
)
from gpushmoo.storage.joblog import STRIKES_FORGIVEN
from hypothesis import given, settings
from hypothesis import strategies as st

CELLS = make_cells(heights=(4, 8))
FIRST = CELLS[0]
ALL = frozenset("abcdef")


def fall(
    running: str, outside: bool = False, status: Status = Status.LAUNCH_FAILED
) -> WorkerFailure:
    return WorkerFailure(tuple(running), status, "fell", outside)


def test_who_ran_in_a_fall_comes_last_and_alone() -> None:
    suspects = Suspects()
    assert suspects.next(ALL) == (ALL, TOGETHER)
    assert suspects.accuse(ALL, fall("b")) is None
    assert suspects.next(ALL) == (ALL - {"b"}, TOGETHER)
    assert suspects.accuse(ALL - {"b"}, fall("cd")) is None
    assert suspects.next(ALL) == (frozenset("aef"), TOGETHER)
    # The others have ended: several that ran at once are taken one by one.
    assert suspects.next(frozenset("bcd")) == (frozenset("cd"), 1)
    assert suspects.accuse(frozenset("cd"), fall("d")) is None
    assert suspects.next(frozenset("bcd")) == (frozenset("c"), 1)
    assert suspects.next(frozenset("bd")) == (frozenset("b"), 1)
    assert suspects.accuse(frozenset("b"), fall("b")) == "b"
    assert suspects.next(frozenset("d")) == (frozenset("d"), 1)
    cells = [chr(ord("a") + i) for i in range(MOST_UNEXPLAINED + 4)]
    suspects, left = Suspects(), frozenset(cells)
    for key in cells[:MOST_UNEXPLAINED]:
        asked, together = suspects.next(left)
        assert (key in asked, together) == (True, TOGETHER)
        suspects.accuse(asked, fall(key))
    for key in cells[:MOST_UNEXPLAINED]:
        assert suspects.next(left) == (frozenset(key), 1)
        left -= {key}
    assert suspects.next(left) == (left, TOGETHER)


def test_who_hangs_or_is_last_is_taken_again_and_strikes_count_alone() -> None:
    """A third wait for it would tell nothing; one that hangs alone at first is still waited for."""
    suspects = Suspects()
    assert suspects.accuse(ALL, fall("abc", status=Status.TIMEOUT)) is None
    assert suspects.accuse(ALL - set("abc"), fall("d", status=Status.TIMEOUT)) is None
    assert suspects.next(frozenset("abcd")) == (frozenset("abc"), 1)
    assert suspects.accuse(frozenset("abc"), fall("b")) is None
    assert suspects.accuse(frozenset("abc"), fall("c", status=Status.TIMEOUT)) == "c"
    suspects, last = Suspects(), frozenset("a")
    assert suspects.accuse(last, fall("a")) is None
    assert suspects.next(last) == (last, 1)
    assert suspects.accuse(last, fall("a")) == "a"
    suspects = Suspects()
    for _ in range(STRIKES_FORGIVEN):
        assert suspects.accuse(ALL, fall("f", outside=True)) is None
    assert suspects.next(ALL) == (ALL, TOGETHER)
    assert suspects.accuse(ALL, fall("a", outside=True)) is None
    assert suspects.next(frozenset("a")) == (frozenset("a"), 1)
    for _ in range(STRIKES_ALONE - 1):
        assert suspects.accuse(frozenset("a"), fall("a", outside=True)) is None
    assert suspects.accuse(frozenset("a"), fall("a", outside=True)) == "a"


@pytest.mark.parametrize(
    ("outside", "limit"), [(False, FAULTS_OF_NOBODY), (True, STRIKES_OF_NOBODY)]
)
def test_many_falls_of_nobody_lose_the_device(outside: bool, limit: int) -> None:
    suspects = Suspects()
    told = [suspects.lost(left, fall("", outside)) for left in (6, *[5] * limit)]
    # The first one was before a cell ended.
    assert told == [False] * limit + [True]


def test_first_strikes_and_faults_of_nobody_measure_all_again() -> None:
    asked: list[tuple[int, int]] = []
    killed = WorkerKilledError("the measuring process was ended by SIGTERM")

    def start(do: Measure) -> FakeWorker:
        keys = do.keys or frozenset()
        asked.append((len(keys), do.together))
        if len(asked) < STRIKES_FORGIVEN:
            return FakeWorker([Began((FIRST.key,))], killed)
        outcome = measure_cells(FakeDevice(), [c for c in CELLS if c.key in keys])
        return FakeWorker([*map(Ended, outcome.runs), Finished()])

    runs = supervised(FakeWorker([Began((FIRST.key,))], killed), start, CELLS)
    assert {r.status for r in runs} == {Status.OK}
    assert asked == [(len(CELLS), TOGETHER)] * STRIKES_FORGIVEN
    ended = measure_cells(FakeDevice(), CELLS).runs

    def start(do: Measure) -> FakeWorker:
        return FakeWorker([*map(Ended, ended), Finished()])

    for err in (WorkerGoneError("ended with status 1"), WorkerKilledError("ended by SIGHUP")):
        assert {r.status for r in supervised(FakeWorker([], err), start, CELLS)} == {Status.OK}


def test_a_cell_that_takes_all_memory_is_blamed_in_the_end_and_no_other() -> None:
    device = FakeDevice(hogs=frozenset([cell_tag(FIRST)]))
    outcome = measure_cells(device, CELLS)
    assert device.opened <= STRIKES_FORGIVEN + 4 + STRIKES_ALONE
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


def test_a_variant_whose_every_cell_hangs_costs_a_bounded_number_of_processes() -> None:
    cells = make_cells(threads=tuple(range(1, 41)), chunks=(1,))
    for operation, nth in (("run", 0), ("sample", 4)):
        bad = [c for c in cells if c.variant == "a"]
        device = FakeDevice(faults=[Fault(cell_tag(c), operation, nth, "hang") for c in bad])
        outcome = measure_cells(device, cells)
        assert Counter(str(outcome[c].status) for c in bad) == {"timeout": len(bad)}
        assert {r.status for r in outcome.runs if r.cell.variant == "b"} == {Status.OK}
        hung = device.opened - 1
        assert hung <= 3 * FAULTS_PER_VARIANT + MOST_UNEXPLAINED


@pytest.mark.parametrize("operation", ["bind", "run", "sample"])
def test_a_few_faults_among_many_cells_condemn_no_other(operation: str) -> None:
    cells = make_cells(threads=tuple(range(1, 65)), chunks=(1, 2))
    bad = [c for c in cells if c.variant == "a"][:: len(cells) // 2 // 10][: FAULTS_PER_VARIANT + 1]
    assert len(bad) == 9
    nth = 4 if operation == "sample" else 0
    faults = [Fault(cell_tag(c), operation, nth, "dead") for c in bad]
    outcome = measure_cells(FakeDevice(faults=faults), cells)
    assert {r.cell for r in outcome.runs if r.status is not Status.OK} == set(bad)


# One that ends while data are made: that costs their cells, no others.

SAID = "the measuring process ended with status 0"
GONE = WorkerGoneError(SAID)
DATA = Preparing(CELLS[0].problem, frozenset("a"))


def outcome(told: list[Message], *ends: Exception) -> tuple[list[CellRun], list[Measure]]:
    """The cells after processes that tell `told` and end so, and what each successor was asked for.

    After `ends` they leave out what they are asked for.
    """
    asked: list[Measure] = []
    left = list(ends)

    def next_worker() -> FakeWorker:
        return FakeWorker([*told], left.pop(0)) if left else FakeWorker([Finished()])

    def start(do: Measure) -> FakeWorker:
        asked.append(do)
        return next_worker()

    return supervised(next_worker(), start, CELLS), asked


@pytest.mark.parametrize(
    ("end", "times"),
    [
        (GONE, FAULTS_OF_NOBODY),
        (WorkerSilentError(SAID), FAULTS_OF_NOBODY),
        (WorkerKilledError(SAID), STRIKES_OF_NOBODY),
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
    runs, asked = outcome([DATA, Began((key,))], GONE)
    assert Status.WORKLOAD_FAILED not in {r.status for r in runs}
    assert [do.keys for do in asked] == [{c.key for c in CELLS} - {key}, {key}]
    told = [DATA, Began((FIRST.key,))]
    workers = [FakeWorker([*told], WorkerSilentError(SAID)) for _ in range(2)]
    [run] = supervised(workers.pop(), lambda do: workers.pop(), CELLS[:1])
    assert (run.status, run.message) == (
        Status.TIMEOUT,
        "a launch did not end within 1 s; its process was ended",
    )


@pytest.mark.parametrize(
    "told", [[], [DATA, Ended(CellRun(FIRST, NoLaunch()))], [Preparing(DATA.problem)]]
)
@pytest.mark.parametrize("end", [GONE, DeviceLostError("gone")])
def test_ends_in_neither_data_nor_cell(told: list[Message], end: Exception) -> None:
    runs, _ = outcome(told, end, end)
    assert {r.status for r in runs} == {Status.LOST_DEVICE}
