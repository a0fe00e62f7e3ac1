"""A measuring process that ends in a method of the workload: its own cells are told so, no others.

By a fake process that tells what it is given; `test_broken_workloads` has real ones.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fakes import FOLDER, FakeWorker, make_cells
from gpushmoo.events import Began, CellRun, Preparing
from gpushmoo.messages import Finished, Measure, Message
from gpushmoo.process import WorkerGoneError, WorkerKilledError, WorkerSilentError
from gpushmoo.schema import Status
from gpushmoo.supervise import KILLS_FORGIVEN, Supervisor

CELLS = make_cells(heights=(4, 8))
SAID = "kernels/tiny: the measuring process ended with status 0 while workload.py's inputs ran"
GONE = WorkerGoneError(SAID, in_workload=True)
SHORT = Preparing(CELLS[0].problem, frozenset("a"))


def outcome(
    told: list[Message], end: Exception, next_end: Callable[[], Exception] | None = None
) -> tuple[list[CellRun], list[Measure]]:
    """The cells after a process ended by `end`, and what its successors were asked for.

    These end by `next_end`, or leave out what they are asked for.
    """
    asked: list[Measure] = []

    def start(do: Measure) -> FakeWorker:
        asked.append(do)
        return FakeWorker([Finished()]) if next_end is None else FakeWorker([*told], next_end())

    runs = [CellRun(c, FOLDER.workload.launch(c)) for c in CELLS]
    supervisor = Supervisor(runs, start, 1.0, lambda done, share: None)
    result = supervisor.measure(FakeWorker([*told], end))
    return list(result.runs.values()), asked


@pytest.mark.parametrize("end", [GONE, WorkerSilentError(SAID, in_workload=True)])
def test_an_end_while_buffers_are_made_costs_the_group_they_were_made_for(end: Exception) -> None:
    runs, [do] = outcome([SHORT], end)
    group = [r for r in runs if r.cell.problem == SHORT.problem and r.cell.variant == "a"]
    assert {(r.status, r.message) for r in group} == {(Status.WORKLOAD_FAILED, SAID)}
    assert do.keys == {r.cell.key for r in runs if r not in group}


def test_an_end_in_a_cell_costs_that_cell() -> None:
    key = CELLS[3].key
    runs, [do] = outcome([SHORT, Began((key,))], GONE)
    [run] = [r for r in runs if r.cell.key == key]
    assert (run.status, run.message) == (Status.WORKLOAD_FAILED, SAID)
    assert do.keys == {c.key for c in CELLS} - {key}


def test_a_cell_that_says_nothing_for_too_long_is_a_timeout_whatever_runs() -> None:
    key = CELLS[3].key
    runs, _ = outcome([SHORT, Began((key,))], WorkerSilentError(SAID, in_workload=True))
    assert [r.status for r in runs if r.cell.key == key] == [Status.TIMEOUT]


def test_an_end_among_several_cells_is_looked_for_one_by_one() -> None:
    _, [do] = outcome([SHORT, Began(tuple(c.key for c in CELLS[:3]))], GONE)
    assert do.keys == {c.key for c in CELLS}
    assert do.together == 1


def test_an_end_before_anything_is_made_costs_every_cell() -> None:
    runs, asked = outcome([], GONE)
    assert {(r.status, r.message) for r in runs} == {(Status.WORKLOAD_FAILED, SAID)}
    assert not asked


def test_a_kill_in_a_method_is_forgiven_as_any_other_and_then_costs_the_group() -> None:
    def killed() -> WorkerKilledError:
        return WorkerKilledError(SAID, in_workload=True)

    whole = [Preparing(CELLS[0].problem, frozenset("ab"))]
    runs, asked = outcome(whole, killed(), killed)
    # At first nobody is blamed, then those of the first problem, then all others.
    assert [len(do.keys or ()) for do in asked] == [*[len(CELLS)] * KILLS_FORGIVEN, len(CELLS) // 2]
    assert {r.status for r in runs} == {Status.WORKLOAD_FAILED}
