"""A measuring process that ends in a method of the workload: its own cells are told so, no others.

By a fake process that tells what it is given; `test_broken_workloads` has real ones.
"""

from __future__ import annotations

import pytest
from fakes import FOLDER, FakeWorker, make_cells
from gpushmoo.events import Began, CellRun, Preparing
from gpushmoo.messages import Finished, Measure, Message
from gpushmoo.process import WorkerGoneError, WorkerKilledError, WorkerSilentError
from gpushmoo.schema import Status
from gpushmoo.supervise import Supervisor
from gpushmoo.suspects import STRIKES_OF_NOBODY

CELLS = make_cells(heights=(4, 8))
SAID = "kernels/tiny: the measuring process ended with status 0 while workload.py's inputs ran"
GONE = WorkerGoneError(SAID, in_workload=True)
SHORT = Preparing(CELLS[0].problem, frozenset("a"))


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

    runs = [CellRun(c, FOLDER.workload.launch(c)) for c in CELLS]
    supervisor = Supervisor(runs, start, 1.0, lambda done, share: None)
    result = supervisor.measure(next_worker())
    return list(result.runs.values()), asked


@pytest.mark.parametrize("end", [GONE, WorkerSilentError(SAID, in_workload=True)])
def test_an_end_while_buffers_are_made_costs_the_group_they_were_made_for(end: Exception) -> None:
    runs, asked = outcome([SHORT], end, end)
    group = [r for r in runs if r.cell.problem == SHORT.problem and r.cell.variant == "a"]
    assert {(r.status, r.message) for r in group} == {(Status.WORKLOAD_FAILED, SAID)}
    # At first all are taken again: it might have been bad luck.
    everyone = {r.cell.key for r in runs}
    assert [do.keys for do in asked] == [everyone, everyone - {r.cell.key for r in group}]


def test_an_end_in_a_cell_costs_that_cell_once_it_was_alone() -> None:
    key = CELLS[3].key
    runs, asked = outcome([SHORT, Began((key,))], GONE)
    assert Status.WORKLOAD_FAILED not in {r.status for r in runs}
    assert [do.keys for do in asked] == [{c.key for c in CELLS} - {key}, {key}]


def test_a_cell_that_says_nothing_for_too_long_is_a_timeout_whatever_runs() -> None:
    key = CELLS[0].key
    silent = WorkerSilentError(SAID, in_workload=True)
    cell = CellRun(CELLS[0], FOLDER.workload.launch(CELLS[0]))
    workers = [FakeWorker([SHORT, Began((key,))], silent) for _ in range(2)]
    supervisor = Supervisor([cell], lambda do: workers.pop(), 1.0, lambda done, share: None)
    [run] = supervisor.measure(workers.pop()).runs.values()
    assert run.status is Status.TIMEOUT


def test_an_end_before_anything_is_made_costs_every_cell() -> None:
    runs, _ = outcome([], GONE, GONE)
    assert {(r.status, r.message) for r in runs} == {(Status.WORKLOAD_FAILED, SAID)}


def test_kills_in_a_method_are_forgiven_as_any_others_and_then_cost_the_group() -> None:
    killed = WorkerKilledError(SAID, in_workload=True)
    runs, asked = outcome([SHORT], *[killed] * STRIKES_OF_NOBODY)
    group = {r.cell.key for r in runs if r.status is Status.WORKLOAD_FAILED}
    assert group == {c.key for c in CELLS if c.problem == SHORT.problem and c.variant == "a"}
    assert {len(do.keys or ()) for do in asked[:-1]} == {len(CELLS)}
