"""The streamed dot product on both backends: right for every size, and wrong when it is."""

from __future__ import annotations

import itertools
import math
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy.typing as npt
import pytest
from conftest import ROOT
from covering import CHOSEN, Choice, covering, edited, integers, pairs_of
from dot_products.summation import reference_dot
from dot_products.workloads import PUBLISHED
from gpushmoo.core.dtypes import DTYPES
from gpushmoo.core.schema import Status
from gpushmoo.core.space import Cell, Problem, enumerate_cells
from gpushmoo.devices.base import Device, Program
from gpushmoo.measuring import rounds
from gpushmoo.measuring.buffers import FedSpace, open_space
from gpushmoo.measuring.builds import build_variants
from gpushmoo.measuring.events import CellRun, Ended, Event
from gpushmoo.measuring.rounds import ShardRun
from gpushmoo.measuring.settings import MeasureSettings, StoppingRule
from gpushmoo.measuring.verify import CellSteps
from gpushmoo.workloads.host_fed import HostFedWorkload
from gpushmoo.workloads.loader import KernelFolder, load_kernel

Array = npt.NDArray[Any]

FOLDER = load_kernel(ROOT / "kernels/dot_streamed")
AXES = {
    "streams": [1, 3, 64],
    "min_per_stream": [1],
    "blocks_per_stream": [3],
    "threads": [1, 33, 96, 1000],
    "chunk": [0],
    "host_percent": [0, 37, 100],
}


@pytest.fixture(autouse=True)
def _unsettled(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test waits for threads of earlier cells to come to rest; no time matters here."""
    monkeypatch.setattr(rounds, "SETTLE_S", 0.0)


def workload() -> HostFedWorkload:
    assert isinstance(FOLDER.workload, HostFedWorkload)
    return FOLDER.workload


# The variant that does as printed has a test of its own.
CUT = tuple(v for v in workload().variants if v != PUBLISHED)


def chunks(n: int) -> list[int]:
    """All at once, and in about 40 pieces none of which is a whole number of groups of four."""
    return [0, n // 40 // 4 * 4 + 3]


def cells(n: int, dtype: str, variant: str, axes: dict[str, list[int]]) -> list[Cell]:
    return enumerate_cells(FOLDER.name, dtype, [variant], [Problem(1, n)], axes)


_PROGRAMS: dict[tuple[str, str], Program] = {}


def program(device: Device, dtype: str) -> Program:
    """Every variant is the same code."""
    key = (device.info.backend, dtype)
    if key not in _PROGRAMS:
        _PROGRAMS[key] = device.build(FOLDER.path, DTYPES[dtype], {})
    return _PROGRAMS[key]


def value(device: Device, space: FedSpace, cell: Cell) -> float:
    """The number that a proof gives; the workload's own judgement of it is asserted."""
    proof = space.bind_proof(program(device, cell.dtype), cell)
    proof.run()
    found = space.verdict(cell, proof)
    assert (found.wrong_words, found.message) == (0, None), cell
    return proof.value


SIZES = [0, 1, 3, 5, 1000, 65537]


@pytest.mark.parametrize(
    ("dtype", "variant"), [*(("float", variant) for variant in CUT), ("double", CUT[0])]
)
@pytest.mark.parametrize("n", SIZES)
@CHOSEN
def test_every_cell_is_right(
    device: Device, chosen: Choice, n: int, variant: str, dtype: str
) -> None:
    random = open_space(device, workload(), Problem(1, n), dtype, variant, seed=3)
    assert isinstance(random, FedSpace)
    exact = FedSpace(device, workload(), integers(n, dtype))
    expected = sum((1 + i % 7) * (1 + i % 5) for i in range(n))
    for cell in chosen(cells(n, dtype, variant, AXES | {"chunk": chunks(n)})):
        assert value(device, exact, cell) == expected, cell
        # Random numbers, by the workload's own measure.
        value(device, random, cell)


def test_chosen_cells_hold_every_pair_of_values() -> None:
    every = cells(1000, "float", "pinned-pooled", AXES | {"chunk": chunks(1000)})
    some = covering(every)
    assert set().union(*map(pairs_of, some)) == set().union(*map(pairs_of, every))
    assert len(some) <= len(every) // 4


# What IEEE 754 says

N = 1003  # 250 groups of four, and three elements more
INSIDE = 4 * 77 + 2
SPECIAL = [
    pytest.param({"x": math.nan}, math.nan, id="NaN"),
    pytest.param({"y": math.nan}, math.nan, id="NaN in y"),
    pytest.param({"x": math.inf}, math.inf, id="inf"),
    pytest.param({"y": -math.inf}, -math.inf, id="-inf in y"),
    pytest.param({"x": -math.inf, "y": -math.inf}, math.inf, id="-inf times -inf"),
    pytest.param({"x": 0.0, "y": math.inf}, math.nan, id="0 times inf"),
]
AXES_OF_SPECIAL = AXES | {"threads": [33], "chunk": [0, 27]}


def same(a: float, b: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b))


def expect(device: Device, inputs: dict[str, Array], dtype: str, expected: float) -> None:
    """Of every cell, by the number itself and by the workload's measure."""
    space = FedSpace(device, workload(), inputs)
    for cell in covering(cells(N, dtype, "pinned-pooled", AXES_OF_SPECIAL)):
        assert same(value(device, space, cell), expected), cell


@pytest.mark.filterwarnings("ignore:invalid value")  # NumPy's word for a NaN that comes about
@pytest.mark.parametrize("place", [0, INSIDE, N - 3, N - 1])
@pytest.mark.parametrize(("changes", "expected"), SPECIAL)
def test_special_values_come_through_from_everywhere(
    device: Device, changes: dict[str, float], expected: float, place: int
) -> None:
    """First, in the vector loop, in its tail, and last: the host's, where it has a part."""
    inputs = integers(N, "float")
    for name, special in changes.items():
        inputs[name][place] = special
    expect(device, inputs, "float", expected)


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("dtype", ["float", "double"])
@pytest.mark.parametrize("places", [*itertools.combinations([0, INSIDE, N - 3, N - 1], 2)])
def test_infinities_of_both_signs_make_nan_wherever_they_are(
    device: Device, places: tuple[int, int], dtype: str
) -> None:
    inputs = integers(N, dtype)
    inputs["x"][list(places)] = [math.inf, -math.inf]
    expect(device, inputs, dtype, math.nan)


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf, 0.0])
def test_special_number_is_a_fault_where_the_sum_is_finite(wrong: float) -> None:
    (cell, *_) = cells(N, "float", "pinned-pooled", AXES)
    inputs = integers(N, "float")
    known = workload().known(inputs)
    assert workload().fault(reference_dot(inputs["x"], inputs["y"]).value, cell, known) is None
    message = workload().fault(wrong, cell, known)
    assert str(wrong) in message


# Whatever is wrong becomes a row

EDITS = {
    "an element": [("i < n;", "i < n - 1;")],
    "a group": [("i < n / 4;", "i < n / 4 - 1;")],
    "a block": [
        ("if (thread == 0)", "if (thread == 0 && get_group_id(0) != 1)"),
        ("if (threadIdx.x == 0)", "if (threadIdx.x == 0 && blockIdx.x != 1)"),
    ],
    "threads": [
        ("width < threads;", "2 * width < threads;"),
        ("width < blockDim.x;", "2 * width < blockDim.x;"),
    ],
    "the fraction": [("= sums[0];", "= (int)sums[0];")],
}


def ended(
    device: Device, folder: KernelFolder, cells: list[Cell], limit: int | None = 1024
) -> list[CellRun]:
    """How measuring says that the cells end."""
    events: list[Event] = []
    rule = StoppingRule(min_samples=6, max_samples=6, relative_half_width=0.5, budget_s=1.0)
    asked = MeasureSettings(1, limit, 0, 10.0, rule)
    variants = sorted({c.variant for c in cells})
    builds = build_variants(device, folder, cells[0].dtype, variants)
    assert not builds.failures
    ShardRun(CellSteps(device, folder, builds, asked, events.append)).measure(cells)
    runs = [e.run for e in events if isinstance(e, Ended)]
    assert len(runs) == len(cells)
    return runs


def few_cells(*sizes: tuple[int, int], host_percent: int = 0) -> list[Cell]:
    """Of all that cut; N elements have two blocks or more in every stream."""
    axes = AXES | {"streams": [1, 4], "threads": [16, 33], "host_percent": [host_percent]}
    problems = [Problem(*size) for size in sizes]
    return enumerate_cells(FOLDER.name, "float", CUT, problems, axes)


def test_sound_kernel_is_measured_and_verified(device: Device) -> None:
    runs = ended(device, FOLDER, few_cells((1, N), (1, 0), (1, 3), host_percent=10))
    assert {(r.status, r.message) for r in runs} == {(Status.OK, None)}
    assert {(r.verified_words, r.wrong_words) for r in runs} == {(1, 0)}
    assert {len(r.samples_s) for r in runs} == {6}


def test_threads_of_earlier_cells_come_to_rest_before_those_of_each_problem(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    rests: list[float] = []
    clock = SimpleNamespace(sleep=rests.append, monotonic=time.monotonic)
    monkeypatch.setattr(rounds, "time", clock)
    monkeypatch.setattr(rounds, "SETTLE_S", 12.5)
    ended(device, FOLDER, few_cells((1, N), (1, 3)))
    assert rests == [12.5, 12.5]


@pytest.mark.parametrize("what", EDITS)
def test_kernel_that_leaves_something_out_is_called_wrong(
    device: Device, tmp_path: Path, what: str
) -> None:
    runs = ended(device, edited(FOLDER, tmp_path, EDITS[what]), few_cells((1, N)))
    assert {r.status for r in runs} == {Status.WRONG_RESULT}
    for run in runs:
        assert (run.verified_words, run.wrong_words) == (1, 1)
        assert "the bound of this order of summation" in str(run.message)
        assert run.samples_s == []


@pytest.mark.parametrize("variant", CUT)
def test_what_another_launch_left_does_not_pass_for_a_result(
    device: Device, tmp_path: Path, variant: str
) -> None:
    """A kernel that writes nothing finds, in the same memory, what the sound one wrote there."""
    nobody = [("thread == 0)", "thread == 4096)"), ("threadIdx.x == 0)", "threadIdx.x == 4096)")]
    lazy = device.build(edited(FOLDER, tmp_path, nobody).path, DTYPES["float"], {})
    space = FedSpace(device, workload(), integers(N, "float"))
    for cell in cells(N, "float", variant, AXES | {"threads": [33], "host_percent": [0, 37]}):
        value(device, space, cell)
        space.bind(program(device, "float"), cell).run()
        proof = space.bind_proof(lazy, cell)
        proof.run()
        assert space.verdict(cell, proof).wrong_words == 1, cell


@pytest.mark.parametrize("mode", ["pooled", "fresh"])
@pytest.mark.parametrize(
    ("room", "four_streams"),
    [
        pytest.param(4 * N, Status.RESOURCES, id="not even the copy fits"),
        pytest.param(4 * 9000 // 4, Status.OK, id="a piece of a quarter fits"),
    ],
)
def test_problem_too_large_costs_its_own_cells_and_the_next_is_measured(
    device: Device, monkeypatch: pytest.MonkeyPatch, room: int, four_streams: Status, mode: str
) -> None:
    """What is longer than `room` is asked for 2^30 times as long: the runtime itself refuses it."""
    with device.open_stream() as stream:
        kind: Any = type(stream)
    allocate = kind.allocate

    def so_much(self: Any, nbytes: int) -> Any:
        return allocate(self, nbytes if nbytes <= room else nbytes * 2**30)

    monkeypatch.setattr(kind, "allocate", so_much)
    sizes = [(1, N), (1, 9000), (2, 500)]
    runs = ended(device, FOLDER, [c for c in few_cells(*sizes) if c.variant.endswith(mode)])
    found = Counter((r.cell.problem, r.cell["streams"], r.status) for r in runs)
    assert found == {
        (Problem(1, N), 1, Status.OK): 4,
        (Problem(1, N), 4, Status.OK): 4,
        (Problem(1, 9000), 1, Status.RESOURCES): 4,
        (Problem(1, 9000), 4, four_streams): 4,
        (Problem(2, 500), 1, Status.OK): 4,
        (Problem(2, 500), 4, Status.OK): 4,
    }
    assert all("does not fit" in str(r.message) for r in runs if r.status is Status.RESOURCES)


def test_arrays_that_the_host_cannot_hold_cost_their_own_cells(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind: Any = type(device)
    host_array = kind.host_array

    def short(self: Any, array: Array, pinned: bool) -> Array:
        if array.size == N and pinned:
            raise MemoryError("no more pages")
        return host_array(self, array, pinned)

    monkeypatch.setattr(kind, "host_array", short)
    runs = ended(device, FOLDER, few_cells((1, N), (1, 500)))
    found = {(r.cell.problem.width, r.status) for r in runs}
    assert found == {(N, Status.RESOURCES), (500, Status.OK)}
    refused = [str(r.message) for r in runs if r.status is Status.RESOURCES]
    assert all("does not fit this host's memory (no more pages)" in text for text in refused)


@pytest.mark.parametrize("limit", [1024, None])
def test_block_larger_than_the_kernels_room_is_never_launched(
    device: Device, limit: int | None
) -> None:
    """The kernel holds a sum for each of 1024 threads; a CPU would run blocks of more."""
    axes = AXES | {"threads": [1024, 1025], "streams": [1], "host_percent": [0]}
    mine = cells(10**6, "double", "pinned-pooled", axes)
    runs = ended(device, FOLDER, mine, limit)
    over = (limit or device.info.max_threads_per_block) < 1025
    refused = Status.TOO_MANY_THREADS if over else Status.RESOURCES
    statuses = {r.cell["threads"]: (r.status, r.message or "") for r in runs}
    assert statuses[1024] == (Status.OK, "")
    assert statuses[1025][0] is refused
    assert "1025 threads a block" in statuses[1025][1]
