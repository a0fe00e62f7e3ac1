"""Measuring on a fake device: whatever breaks, every cell ends as exactly one honest row."""

import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from conftest import examples
from fakes import (
    ENDS,
    ERRORS,
    FOLDER,
    PROOF_TILES,
    FakeDevice,
    FakeWorker,
    Fault,
    Outcome,
    Tag,
    Tiny,
    built,
    cell_tag,
    make_cells,
    measure_cells,
    shares,
    supervised,
    work,
)
from gpushmoo.core.errors import DeviceLostError, WorkerCrashedError
from gpushmoo.core.schema import Status
from gpushmoo.core.space import USUAL, Cell, Problem, ShardSpace
from gpushmoo.devices.capabilities import Reading
from gpushmoo.measuring.events import CellsStarted, Finished, MeasureCells, ShardResult, result_of
from gpushmoo.measuring.outputs import hint_of
from gpushmoo.measuring.programs import axis_values, plan_cells
from gpushmoo.measuring.sampling import StoppingRule
from gpushmoo.workloads.contract import Launch
from gpushmoo.workloads.loader import versions_of
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jobs import ended_runs, sampling_of

CELLS = make_cells(heights=(4, 8))
FIRST, *OTHERS = make_cells()
RULE = StoppingRule(6, 9, 0.01, 1e9)


def sampling_rounds(outcome: Outcome) -> list[list[Any]]:
    """Tags sampled in each round of a run of one problem; the runtime's copy ends a round."""
    found: list[list[Any]] = [[]]
    for what, *rest in outcome.device.log:
        if what == "copy":
            found.append([])
        elif what == "sample":
            found[-1].append(rest[0])
    # The first copy of a problem is timed several times.
    found = [tags for tags in found if tags]
    # Before the first round are samples that do not count.
    return [found[0][-len(found[1]) :], *found[1:]]


def test_cells_of_a_sound_device_are_all_ok_and_verified() -> None:
    outcome = measure_cells(FakeDevice(), CELLS)
    assert [r.cell for r in outcome.runs] == CELLS
    for run in outcome.runs:
        assert (run.status, run.wrong_words) == (Status.OK, 0)
        assert run.verified_words == run.cell.problem.height * 8
        assert run.samples_s == [1e-3] * 6
        assert (run.resident_blocks, run.registers, run.launches) == (3, 16, 1)
    copies = [copy for each in outcome.result.copies.values() for copy in each]
    assert {copy.seconds for copy in copies} == {1e-3}
    assert {k: len(v) for k, v in outcome.result.copies.items()} == {
        (Problem(4, 8), USUAL): 6,
        (Problem(8, 8), USUAL): 6,
    }
    # Every verification is preceded by poison.
    log = [e for e in outcome.device.log if e[0] != "sample"]
    places = [i for i, entry in enumerate(log) if entry[0] == "run"]
    assert len(places) == 2 * len(CELLS)
    assert all([log[i - 1][0], log[i + 1][0]] == ["poison", "compare"] for i in places)


@pytest.mark.parametrize("launch_s", [1e-5, 1e-3, 0.5])
def test_the_first_launch_of_every_cell_is_reported_with_its_seconds(launch_s: float) -> None:
    """Also of one that is timed while it is verified, which saves a launch."""
    outcome = measure_cells(FakeDevice(launch_s=launch_s), CELLS)
    assert outcome.result.timed_s == {cell.key: pytest.approx(launch_s) for cell in CELLS}
    assert [run.launch_s for run in outcome.runs] == pytest.approx([launch_s] * len(CELLS))


KINDS = st.sampled_from([*ERRORS, *ENDS, "lazy", "wrong", "slow", "zero"])
FAULTS = st.builds(
    Fault,
    st.sampled_from([cell_tag(c) for c in CELLS]),
    st.sampled_from(["bind", "run", "sample"]),
    st.integers(0, 9),
    KINDS,
)
RARELY = st.integers(0, 120) | st.none()
DEVICES = st.builds(
    FakeDevice,
    faults=st.lists(FAULTS, max_size=5),
    broken_variants=st.sampled_from([frozenset(), frozenset("a"), frozenset("ab")]),
    oversized=st.frozensets(st.sampled_from([4, 8]), max_size=1),
    lost_at=RARELY,
    copy_error=st.sampled_from([None, None, None, *ERRORS]),
    openings=st.sampled_from([None, 1, 2]),
    launch_s=st.sampled_from([1e-7, 1e-3]),
)


@settings(max_examples=examples(50), deadline=None)
# The last open cell is blamed: that it has ended must be told, too.
@example(FakeDevice(broken_variants=frozenset("a"), lost_at=39, launch_s=1e-7), 1)
@given(DEVICES, st.sampled_from([None, 1]))
def test_every_cell_ends_with_one_status(device: FakeDevice, thread_limit: int | None) -> None:
    outcome = measure_cells(device, CELLS, thread_limit=thread_limit)
    assert [r.cell for r in outcome.runs] == CELLS
    harmed = {f.tag for f in device.faults}
    everything_works = device.lost_at is device.copy_error is device.openings is None
    for run in outcome.runs:
        assert run.status in set(Status)
        assert run.bound is None
        assert (run.status is Status.OK) == (run.message is None)
        assert len(run.samples_s) == len(run.sampled_at_s) <= 9
        if run.status is Status.OK:
            assert len(run.samples_s) >= 6
            assert run.wrong_words == 0
        tag, height = cell_tag(run.cell), run.cell.problem.height
        sound = run.cell.variant not in device.broken_variants and height not in device.oversized
        if (
            tag not in harmed
            and sound
            and everything_works
            and run.launch.threads <= (thread_limit or 64)
        ):
            assert run.status is Status.OK
    check_progress(outcome)


def check_progress(outcome: Outcome) -> None:
    """The counts and the share of the work never fall; a single process ends at all of it."""
    if not outcome.progress:
        return  # nothing was to be run
    done, share = zip(*outcome.progress, strict=True)
    assert list(done) == sorted(done)
    assert list(share) == sorted(share)
    assert max(share) <= 1.0
    if outcome.device.opened == 1 and all(r.status is not Status.DEVICE_LOST for r in outcome.runs):
        assert done[-1] == len(outcome.runs)
        assert share[-1] == pytest.approx(1.0)


def test_progress_counts_the_verification_and_every_possible_sample() -> None:
    # A tenth for each of ten steps; the three samples that were not needed come with the end.
    tenths = [round(10 * share) for share in shares(measure_cells(FakeDevice(), [FIRST]))]
    assert tenths == [1, 2, 3, 4, 5, 6, 7, 10]
    # Cells over a limit are done from the start.
    outcome = measure_cells(FakeDevice(), make_cells(threads=(1, 65)))
    assert outcome.progress[0] == (4, pytest.approx(1 / 40))


@pytest.mark.parametrize(
    ("operation", "nth", "kind", "status"),
    [
        ("bind", 0, "refused", Status.OUT_OF_RESOURCES),
        ("bind", 0, "memory", Status.OUT_OF_RESOURCES),
        ("bind", 0, "failed", Status.LAUNCH_FAILED),
        ("run", 0, "failed", Status.LAUNCH_FAILED),
        ("run", 0, "wrong", Status.WRONG_RESULT),
        ("run", 0, "lazy", Status.WRONG_RESULT),
        ("run", 1, "wrong", Status.WRONG_RESULT),
        ("run", 1, "lazy", Status.WRONG_RESULT),
        ("run", 1, "failed", Status.LAUNCH_FAILED),
        ("run", 0, "slow", Status.TIMEOUT),
        ("sample", 3, "slow", Status.TIMEOUT),
        ("sample", 3, "failed", Status.LAUNCH_FAILED),
        ("sample", 3, "zero", Status.LAUNCH_FAILED),
    ],
)
def test_a_fault_has_its_status(operation: str, nth: int, kind: str, status: Status) -> None:
    # What takes too long is taken again, alone and once more, before it is a fault.
    times = (nth, nth + 1, nth + 2) if kind == "slow" else (nth,)
    device = FakeDevice(faults=[Fault(cell_tag(FIRST), operation, n, kind) for n in times])
    outcome = measure_cells(device, [FIRST, *OTHERS])
    assert outcome[FIRST].status is status
    assert {outcome[c].status for c in OTHERS} == {Status.OK}
    check_progress(outcome)


@pytest.mark.parametrize(
    ("operation", "nth"), [("run", 0), ("run", 1), *[("sample", n) for n in range(8)]]
)
def test_a_long_pause_in_a_launch_costs_nothing_but_that_launch(operation: str, nth: int) -> None:
    device = FakeDevice(faults=[Fault(cell_tag(FIRST), operation, nth, "slow")], launch_s=4e-6)
    outcome = measure_cells(device, [FIRST, *OTHERS])
    assert {r.status for r in outcome.runs} == {Status.OK}
    for run in outcome.runs:
        # As without a pause: none is a sample, or has changed how many launches make one.
        assert run.samples_s == pytest.approx([4e-6] * 6)
        assert run.launches == 16
        assert run.spent_s == pytest.approx(6 * 16 * 4e-6)
        assert len(run.sampled_at_s) == 6
    check_progress(outcome)


def test_samples_before_a_fault_are_kept_slow_cells_apart_and_problems_alone() -> None:
    # Sample 0 sizes the batch: the failing one is the fourth that counts.
    device = FakeDevice(faults=[Fault(cell_tag(FIRST), "sample", 4, "failed")])
    assert len(measure_cells(device, [FIRST])[FIRST].samples_s) == 3
    outcome = measure_cells(FakeDevice(launch_s=0.06), CELLS)
    # But for what is prepared of each of the two problems.
    assert sum(len(e.keys) > 1 for e in outcome.events if isinstance(e, CellsStarted)) == 2
    outcome = measure_cells(FakeDevice(oversized=frozenset([4])), CELLS)
    for run in outcome.runs:
        fits = run.cell.problem.height == 8
        assert run.status is (Status.OK if fits else Status.OUT_OF_RESOURCES)
    check_progress(outcome)


def test_a_variant_that_does_not_compile() -> None:
    outcome = measure_cells(FakeDevice(broken_variants=frozenset("a")), CELLS)
    for run in outcome.runs:
        broken = run.cell.variant == "a"
        assert run.status is (Status.BUILD_FAILED if broken else Status.OK)
        assert not broken or run.message == "variant a does not compile."


@pytest.mark.parametrize(("limit", "allowed"), [(None, 64), (32, 32), (4096, 64)])
def test_blocks_over_the_limit_are_never_launched(limit: int | None, allowed: int) -> None:
    cells = make_cells(threads=(32, 64, 65))
    outcome = measure_cells(FakeDevice(), cells, thread_limit=limit)
    touched = {entry[1] for entry in outcome.device.log if len(entry) > 1}
    for run in outcome.runs:
        over = run.launch.threads > allowed
        assert run.status is (Status.TOO_MANY_THREADS if over else Status.OK)
        assert (cell_tag(run.cell) in touched) != over


@pytest.mark.parametrize("kind", ["lost", "dead", "hang"])
@pytest.mark.parametrize("operation", ["bind", "run", "sample"])
@pytest.mark.parametrize("culprit", [CELLS[0], CELLS[-1]])
def test_a_cell_that_takes_its_process_down(culprit: Cell, operation: str, kind: str) -> None:
    device = FakeDevice(faults=[Fault(cell_tag(culprit), operation, 0, kind)])
    outcome = measure_cells(device, CELLS)
    # All cells; all but those that ran together when it fell; these, one by one, where there were
    # several; those of them that it left; the suspect alone.
    assert device.opened <= 5
    bad = outcome[culprit]
    assert bad.status is (Status.TIMEOUT if kind == "hang" else Status.LAUNCH_FAILED)
    assert bad.message
    others = [r for r in outcome.runs if r.cell != culprit]
    assert {r.status for r in others} == {Status.OK}
    assert {tuple(r.samples_s) for r in others} == {(1e-3,) * 6}
    check_progress(outcome)
    if culprit == CELLS[-1]:
        # Cells that had ended are not measured again: six samples, two to warm up at most.
        small = {cell_tag(c) for c in CELLS if c.problem.height == 4}
        taken = Counter(e[1] for e in device.log if e[0] == "sample" and e[1] in small)
        assert taken.keys() == small
        assert max(taken.values()) <= 8


@pytest.mark.parametrize("at", [0, 5, 17, 30, 47])
def test_device_that_does_not_come_back_loses_the_cells_without_a_status(at: int) -> None:
    outcome = measure_cells(FakeDevice(lost_at=at, openings=1), CELLS)
    statuses = Counter(r.status for r in outcome.runs)
    assert set(statuses) <= {Status.OK, Status.LAUNCH_FAILED, Status.DEVICE_LOST}
    # The one that was running, unless several were.
    assert statuses[Status.LAUNCH_FAILED] <= 1
    # The larger problem comes second: nothing of it can be measured once the device is gone.
    large = [r for r in outcome.runs if r.cell.problem.height == 8]
    assert Counter(r.status for r in large) >= Counter({Status.DEVICE_LOST: len(large) - 1})
    lost = [r for r in outcome.runs if r.status is Status.DEVICE_LOST]
    assert all("left the bus" in str(r.message) for r in lost)
    # Nothing more is asked of a lost context.
    log = outcome.device.log
    launches = [i for i, entry in enumerate(log) if entry[0] in ("run", "sample")]
    assert len(launches) == at + 1
    assert launches[-1] == len(log) - 1


def test_what_processes_leave_open_has_a_status() -> None:
    def unused(do: MeasureCells) -> FakeWorker:
        raise AssertionError("no second process is needed")

    runs = supervised(FakeWorker([Finished()]), unused, CELLS)
    assert {r.status for r in runs} == {Status.DEVICE_LOST}
    ended = measure_cells(FakeDevice(), [FIRST])[FIRST]
    crashed = WorkerCrashedError("ZeroDivisionError: division by zero")
    runs = supervised(FakeWorker([result_of(ended)], crashed), unused, [FIRST, *OTHERS])
    assert {r.status for r in runs} == {Status.OK, Status.LAUNCH_FAILED}
    with pytest.raises(WorkerCrashedError):
        supervised(FakeWorker([], crashed), unused, [FIRST, *OTHERS])

    def broken(do: MeasureCells) -> FakeWorker:
        raise WorkerCrashedError("CUDARuntimeError: cudaErrorDevicesUnavailable")

    worker = FakeWorker([result_of(ended), CellsStarted((OTHERS[0].key,))], DeviceLostError("gone"))
    runs = supervised(worker, broken, [FIRST, *OTHERS])
    statuses = Counter(r.status for r in runs)
    # The one that ran was not taken again alone, so it is not to blame.
    assert statuses == {Status.OK: 1, Status.DEVICE_LOST: len(OTHERS)}


@pytest.mark.parametrize("warmup", [0, 3])
def test_every_launch_is_announced_so_that_a_hanging_one_has_a_name(warmup: int) -> None:
    outcome = measure_cells(FakeDevice(), CELLS, warmup=warmup)
    launches = [e for e in outcome.events if isinstance(e, CellsStarted) and e.launches]
    began = Counter(key for e in launches for key in e.keys)
    # Two verifications, those to warm up but one, and six that count. A
    # verification alone is announced twice; a cell that was verified alone has a sample first.
    warming = max(0, warmup - 1)
    assert {n - warming for n in began.values()} <= {8, 9, 10, 11}
    assert began.keys() == {c.key for c in CELLS}
    taken = Counter(entry[1] for entry in outcome.device.log if entry[0] == "sample")
    assert taken.keys() == {cell_tag(c) for c in CELLS}
    assert set(taken.values()) == {warming + 6, warming + 7}
    assert {len(r.samples_s) for r in outcome.runs} == {6}


def test_flushed_cells_are_sampled_after_a_flush_and_apart_from_warm_ones() -> None:
    cells = make_cells(cache_states=("warm", "flushed"))
    device = FakeDevice(launch_s=4e-6)
    outcome = measure_cells(device, cells)
    assert {r.status for r in outcome.runs} == {Status.OK}
    for run in outcome.runs:
        assert run.launches == (16 if run.cell.cache_state == "warm" else 4)
    # Two to warm up and six that count, for each flushed cell; none for the others.
    flushed = [c for c in cells if c.cache_state == "flushed"]
    assert sum(e[0] == "flush" for e in device.log) == 8 * len(flushed)
    states = {c.key: c.cache_state for c in cells}
    began = [states[k] for e in outcome.events if isinstance(e, CellsStarted) for k in e.keys]
    # Two to warm up and six that count, of all of one state after the other.
    last_warm = len(began) - began[::-1].index("warm")
    assert len(began) - last_warm >= 8 * len(flushed)


@pytest.mark.parametrize(
    ("error", "status"), [("failed", Status.LAUNCH_FAILED), ("lost", Status.DEVICE_LOST)]
)
def test_failing_runtime_copy_is_a_fault_of_its_problem(error: str, status: Status) -> None:
    """A context that is lost in it is blamed on no cell."""
    outcome = measure_cells(FakeDevice(copy_error=error), CELLS)
    assert {r.status for r in outcome.runs} == {status}


def test_rounds_visit_unfinished_cells_in_an_order_of_the_seed_and_repeat() -> None:
    device = FakeDevice(uneven=frozenset([cell_tag(FIRST)]))
    outcome = measure_cells(device, [FIRST, *OTHERS])
    everyone = sorted(cell_tag(c) for c in [FIRST, *OTHERS])
    seen = sampling_rounds(outcome)
    assert [sorted(tags) for tags in seen] == [everyone] * 6 + [[cell_tag(FIRST)]] * 3
    assert len({tuple(tags) for tags in seen[:6]}) > 1
    first, again, other = (measure_cells(FakeDevice(), CELLS, seed=s).device.log for s in (1, 1, 2))
    assert first == again
    assert first != other
    orders = []
    for repeat in (1, 2):
        sampling = sampling_of(RULE, repeat=repeat)
        told = work(
            FakeDevice(), CELLS, sampling, lambda event: None, MeasureCells(None, 9, {})
        ).told
        orders.append([e.keys for e in told if isinstance(e, CellsStarted)])
    assert orders[0] != orders[1]


@dataclass
class ColdDevice(FakeDevice):
    """The first launch of some cells is slow, and a launch behind another one slower than alone.

    So it was on a CPU: a cell whose first launch was slow got samples of one launch, which looked
    14 to 22 % faster than its neighbours' of two.
    """

    cold: frozenset[Tag] = frozenset()

    def seconds(self, tag: Tag, nth_sample: int, launches: int) -> float:
        if nth_sample == 0 and tag in self.cold:
            return 60e-6
        alone = 30e-6 + 1e-6 * tag[2]
        return alone if launches == 1 else 1.2 * alone


@pytest.mark.parametrize("seed", range(4))
def test_no_cell_gains_by_a_cold_first_launch(seed: int) -> None:
    cells = make_cells(threads=(1, 2, 3, 4, 5, 6), variants=("a",))
    slowest = cell_tag(cells[-1])
    outcome = measure_cells(ColdDevice(cold=frozenset([slowest])), cells, seed=seed)
    assert {r.launches for r in outcome.runs} == {2}
    medians = {r.cell["threads"]: float(np.median(r.samples_s)) for r in outcome.runs}
    assert sorted(medians, key=lambda n: medians[n]) == [1, 2, 3, 4, 5, 6]


def test_each_group_has_its_own_number_of_launches_also_after_a_fault() -> None:
    cells = make_cells(threads=(1, 30), cache_states=("warm", "flushed"))
    outcome = measure_cells(ColdDevice(), cells)
    groups: dict[Any, set[Any]] = {}
    for run in outcome.runs:
        groups.setdefault(run.cell.group, set()).add(run.launches)
    assert len(groups) == 4
    assert set(map(len, groups.values())) == {1}
    assert outcome.result.launches == {group: n for group, (n,) in groups.items()}
    # The next process does not choose again: the fastest cells may have ended.
    cells = make_cells(threads=(1, 6), chunks=(1,), variants=("a",))
    do = MeasureCells(None, 1, {cells[0].group: 8})
    sampling = sampling_of(RULE)
    told = work(ColdDevice(), cells, sampling, lambda event: None, do).told
    assert {run.launches for run in ended_runs(told)} == {8}
    assert [e.launches for e in told if isinstance(e, ShardResult) and e.launches] == [
        {cells[0].group: 8}
    ]
    died = measure_cells(ColdDevice(faults=[Fault(cell_tag(cells[0]), "sample", 4, "dead")]), cells)
    assert died[cells[1]].launches == died.result.launches[cells[0].group] == 2

    class Uneven(ColdDevice):
        def seconds(self, tag: Tag, nth_sample: int, launches: int) -> float:
            return 1.0 if tag[2] == 2 else 1e-6

    outcome = measure_cells(Uneven(), make_cells(chunks=(1,), variants=("a",)))
    assert [r.launches for r in outcome.runs] == [64, 1]


@pytest.mark.parametrize(
    ("repeat", "repeats", "times"), [(1, 1, 2), (1, 2, 1), (2, 2, 1), (2, 3, 1), (3, 3, 1)]
)
def test_each_repeat_verifies_its_cells(repeat: int, repeats: int, times: int) -> None:
    """Before the first sample of all and after the last of each later repeat."""
    sampling = sampling_of(RULE, repeat=repeat, repeats=repeats)
    device = FakeDevice()
    told = work(device, CELLS, sampling, lambda event: None, MeasureCells(None, 9, {})).told
    ended = ended_runs(told)
    assert {(r.status, r.verified_words is None) for r in ended} == {(Status.OK, False)}
    assert sum(entry[0] == "compare" for entry in device.log) == times * len(CELLS)
    # A result that has gone wrong is found.
    wrong = FakeDevice(faults=[Fault(cell_tag(FIRST), "run", 0, "wrong")])
    told = work(wrong, [FIRST], sampling, lambda event: None, MeasureCells(None, 9, {})).told
    assert [run.status for run in ended_runs(told)] == [Status.WRONG_RESULT]


def test_input_data_depends_on_the_problem_not_on_the_shard() -> None:
    class Recording(FakeDevice):
        def upload(self, array: Any) -> Any:
            self.log.append(("upload", array.tobytes()))
            return super().upload(array)

    def uploads(cells: Any, seed: int) -> list[Any]:
        log = measure_cells(Recording(), cells, seed=seed).device.log
        return [e[1] for e in log if e[0] == "upload"]

    assert uploads([FIRST], 1) == uploads(OTHERS, 1)
    assert uploads([FIRST], 1) != uploads([FIRST], 2)


@pytest.mark.parametrize(
    ("resident", "broken", "blocks"),
    [
        ({"a": 3, "b": 2}, "", 12),  # the first variant decides
        ({"a": 3, "b": 2}, "a", 8),  # or the first that compiles
        ({"a": 0, "b": 2}, "", 8),  # and tells
        ({"a": 3, "b": 2}, "ab", 4),
        ({"a": 0, "b": 0}, "", 4),
    ],
)
def test_axes_follow_occupancy(resident: dict[str, int], broken: str, blocks: int) -> None:
    cells = plan(FakeDevice(broken_variants=frozenset(broken), resident=resident), (0, 1))
    assert {blocks, blocks + 1, 2 * blocks} <= {c["chunks"] for c in cells}
    assert max(c["chunks"] for c in cells) == 2 * blocks


def test_shards_of_a_job_share_out_its_cells() -> None:
    parts = [plan(FakeDevice(), (i, 2)) for i in range(2)]
    keys = [c.key for part in parts for c in part]
    assert sorted(keys) == sorted(c.key for c in plan(FakeDevice(), (0, 1)))
    assert [{c.problem.height for c in part} for part in parts] == [{8}, {4}]


def plan(device: FakeDevice, shard: tuple[int, int]) -> list[Cell]:
    """The cells of a shard whose one axis goes up to two waves of resident blocks."""
    variants, problems = ["a", "b"], [Problem(4, 8), Problem(8, 8)]
    builds = built(device)
    axes = {"threads": 1, "chunks": {"to_resident": 2.0, "points": 1}}
    space = ShardSpace("float", variants, problems, ["warm"], axes, *shard)
    values = axis_values(device, FOLDER, builds, versions_of(FOLDER.workload, space), space)
    return plan_cells(FOLDER, space, values)[0]


def test_an_axis_stops_at_its_largest_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """A share of 150 % would count elements twice."""
    chunks = {c["chunks"] for c in plan(FakeDevice(), (0, 1))}
    monkeypatch.setattr(type(FOLDER.workload), "most", {"chunks": 3}, raising=False)
    assert max(chunks) > 3
    assert {c["chunks"] for c in plan(FakeDevice(), (0, 1))} == {c for c in chunks if c <= 3}


WARM = Reading(1980, 3201, 40, 300.0, ())
CAPPED = Reading(1700, 3201, 60, 700.0, ("sw_power_cap",))
HOT = Reading(900, 3201, 90, 500.0, ("sw_thermal_slowdown",))


def test_rounds_under_throttling_are_taken_again_at_no_cost() -> None:
    # Two readings a round: the second round begins sound and ends hot, the third begins hot.
    device = FakeDevice(states=[WARM, WARM, WARM, HOT, HOT, WARM, WARM])
    outcome = measure_cells(device, make_cells())
    assert {str(r.status) for r in outcome.runs} == {"ok"}
    assert {len(r.samples_s) for r in outcome.runs} == {6}
    assert {len(r.sampled_at_s) for r in outcome.runs} == {6}
    # Six rounds that count and two that do not, and a sample before of what was verified alone.
    sampled = sum(entry[0] == "sample" for entry in device.log)
    assert sampled == len(outcome.runs) * (6 + 2) + 2
    check_progress(outcome)
    for states in ([WARM], [WARM, WARM, WARM, HOT, HOT, WARM, WARM]):
        rule = StoppingRule(2, 9, 0.01, 4.5e-3)
        outcome = measure_cells(FakeDevice(states=[*states]), make_cells(), rule)
        # Of a millisecond each.
        assert {len(run.samples_s) for run in outcome.runs} == {5}


@pytest.mark.parametrize(("state", "status", "samples"), [(HOT, "throttled", 0), (CAPPED, "ok", 6)])
def test_only_heat_is_held_against_cells(state: Reading, status: str, samples: int) -> None:
    outcome = measure_cells(FakeDevice(states=[state]), make_cells())
    assert {(str(r.status), len(r.samples_s)) for r in outcome.runs} == {(status, samples)}
    assert {reading for _, reading in outcome.result.readings} == {state}
    assert {reading for _, reading in outcome.result.readings} == {state}
    check_progress(outcome)


STRAYS = [
    ("past", "wrote 3 words past the end of 'dst'"),
    ("before", "wrote 1 word before the beginning of 'dst'"),
    ("input", "changed its input 'src'"),
]


@pytest.mark.parametrize(("kind", "said"), STRAYS)
@pytest.mark.parametrize("nth", [0, 1])
def test_strays_are_a_wrong_result_of_their_cell(kind: str, said: str, nth: int) -> None:
    outcome = measure_cells(FakeDevice(faults=[Fault(cell_tag(FIRST), "run", nth, kind)]), CELLS)
    assert outcome[FIRST].status is Status.WRONG_RESULT
    # The copy of a changed input is right: only the sum of the input tells.
    assert outcome[FIRST].message == said
    assert {outcome[c].status for c in OTHERS} == {Status.OK}


@pytest.mark.parametrize(("kind", "said"), STRAYS)
def test_strays_of_timed_launches(kind: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def proof(self: Tiny, cell: Cell) -> Launch:
        return replace(self.launch(cell), tiles=PROOF_TILES)

    monkeypatch.setattr(Tiny, "proof", proof)
    outcome = measure_cells(FakeDevice(faults=[Fault(cell_tag(FIRST), "run", 0, kind)]), CELLS)
    assert (outcome[FIRST].status, outcome[FIRST].message) == (Status.WRONG_RESULT, said)
    assert outcome[FIRST].samples_s == []
    assert {outcome[c].status for c in OTHERS} == {Status.OK}


def test_a_wrong_word_is_named_with_its_place_and_values() -> None:
    outcome = measure_cells(FakeDevice(faults=[Fault(cell_tag(FIRST), "run", 0, "wrong")]), [FIRST])
    said = r"1 of \d+ words differ, the first at \[0, 3\]: expected 0\.\d+, found 0\.\d+"
    assert re.match(said, str(outcome[FIRST].message))
    lazy = measure_cells(FakeDevice(faults=[Fault(cell_tag(FIRST), "run", 0, "lazy")]), [FIRST])
    said = r"the first at \[0, 0\]: .* found nan \(never written\)$"
    assert re.search(said, str(lazy[FIRST].message))


@pytest.mark.parametrize(
    ("due", "got", "hint"),
    [
        (np.float32(249.47139), np.float32(249.47137), "rounding? fused multiply-add? 1 ulp"),
        (np.float32(1000), np.float32(1000.0022), "another order? 36 ulp off; ulp, rtol or atol"),
        (np.float32(0.0), np.float32(-0.0), "sign of zero"),
        (np.float32(1.0), np.float32(1.1), ""),
        (np.float64(1.0), np.float64("nan"), ""),
        (np.int32(1034), np.int32(1033), "added to an output that nothing had cleared?"),
        (np.uint8(7), np.uint8(8), "rounding? fused multiply-add?"),
    ],
)
def test_a_wrong_value_says_what_it_looks_like(due: Any, got: Any, hint: str) -> None:
    found = hint_of(got, due)
    assert hint in found if hint else not found
