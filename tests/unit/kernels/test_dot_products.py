"""Dot products on both backends: right for every size, or called wrong."""

import itertools
import math
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from bench import ended
from conftest import ROOT
from covering import CHOSEN, Choice, covering, edited, integers
from dot_products.summation import reference_dot
from dot_products.workloads import PUBLISHED, StreamedDot
from gpushmoo.core.dtypes import DTYPES
from gpushmoo.core.errors import LaunchConfigError
from gpushmoo.core.schema import Status
from gpushmoo.core.space import Cell, Condition, Problem, Version, enumerate_cells
from gpushmoo.devices.base import Device, bind_library
from gpushmoo.measuring import rounds
from gpushmoo.measuring.cell_memory import FedSpace, ReducedSpace, Verdict
from gpushmoo.measuring.programs import programs_for
from gpushmoo.planning.sweeps import read_sweep
from gpushmoo.workloads.contract import LibraryCall
from gpushmoo.workloads.loader import KernelFolder, load_kernel

Array = npt.NDArray[Any]

FOLDERS = {
    name: load_kernel(ROOT / "kernels" / name)
    for name in ("dot_resident", "dot_cublas", "dot_square", "dot_streamed")
}
STREAMED = FOLDERS["dot_streamed"]
AXES: dict[str, dict[str, list[int]]] = {
    "dot_resident": {"threads": [1, 33, 256, 1000], "grid": [1, 3, 700], "unroll": [1, 2, 4, 8]},
    "dot_cublas": {},
    "dot_square": {
        "streams": [1, 3],
        "min_per_stream": [1],
        "blocks_per_stream": [3],
        "threads": [33, 1000],
        "chunk": [0],
        "host_percent": [0, 37],
    },
    "dot_streamed": {
        "streams": [1, 3, 64],
        "min_per_stream": [1],
        "blocks_per_stream": [3],
        "threads": [1, 33, 96, 1000],
        "chunk": [0],
        "host_percent": [0, 37, 100],
    },
}


@pytest.fixture(autouse=True)
def _unsettled(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test waits for threads of earlier cells to come to rest; no time matters here."""
    monkeypatch.setattr(rounds, "SETTLE_S", 0.0)


def streamed(name: str = "dot_streamed") -> StreamedDot:
    found = FOLDERS[name].workload
    assert isinstance(found, StreamedDot)
    return found


# Variants that cut the elements by the axes.
CUT = tuple(v for v in streamed().variants if v != PUBLISHED)


def cells(name: str, n: int, dtype: str, variant: str | None = None, **axes: Any) -> list[Cell]:
    variant = variant or FOLDERS[name].workload.variants[0]
    every = AXES[name] | axes
    if "chunk" in every and "chunk" not in axes:
        # All at once, and in about 40 pieces none of which is a whole number of groups of four.
        every["chunk"] = [0, max(27, n // 40 // 4 * 4 + 3)]
    return enumerate_cells(name, dtype, [variant], [Problem(1, n)], every)


def space(
    device: Device, folder: KernelFolder, dtype: str, data: dict[str, Array]
) -> FedSpace | ReducedSpace:
    """Holds `data` instead of the workload's own."""
    mine = {name: data[name] for name in folder.workload.operands}
    if isinstance(folder.workload, StreamedDot):
        return FedSpace(device, folder.workload, mine)
    problem = Problem(1, len(mine["x"]))
    own = folder.workload.inputs(problem, dtype, np.random.default_rng(1))
    return ReducedSpace(device, folder.workload, problem, dtype, lambda: own | mine)


def verdicts(
    device: Device,
    folder: KernelFolder,
    mine: list[Cell],
    data: dict[str, Array],
    exact: float | None = None,
) -> list[Verdict]:
    """Of every cell, each on poisoned memory; numbers that pass the host must be `exact`."""
    dtype, variant = mine[0].dtype, mine[0].variant
    builds = programs_for(device, folder, dtype, [Version(variant)])
    assert not builds.failures
    here, found = space(device, folder, dtype, data), []
    for cell in mine:
        program = builds.programs[variant]
        proof: Any = here.bind_proof(program, cell) or here.bind(program, cell)
        here.poison()
        proof.run()
        found.append(here.verdict(cell, proof))
        assert exact is None or not isinstance(here, FedSpace) or proof.value == exact, cell
    return found


def skip_without_library(device: Device, name: str) -> None:
    if name == "dot_cublas" and device.info.backend != "cuda":
        pytest.skip("cuBLAS is CUDA's")


RIGHT = [
    *(("dot_streamed", variant, "float") for variant in CUT),
    ("dot_streamed", CUT[0], "double"),
    *((name, None, d) for name in FOLDERS if name != "dot_streamed" for d in ("float", "double")),
]


@pytest.mark.parametrize(("name", "variant", "dtype"), RIGHT)
@pytest.mark.parametrize("n", [0, 1, 3, 5, 1000, 65537])
@CHOSEN
def test_every_cell_is_right(
    device: Device, chosen: Choice, name: str, variant: str | None, n: int, dtype: str
) -> None:
    skip_without_library(device, name)
    if n == 0 and name != "dot_streamed":
        pytest.skip("needs an element")
    mine = chosen(cells(name, n, dtype, variant))
    rng, scalar = np.random.default_rng(n), DTYPES[dtype].scalar
    data = integers(n, dtype)
    x, y = (data[operand].astype(float) for operand in streamed_operands(name))
    everything: list[tuple[dict[str, Array], float | None]] = [
        (data, float(x @ y)),
        ({v: rng.standard_normal(n).astype(scalar) for v in ("x", "y")}, None),
        (STREAMED.workload.inputs(Problem(1, n), dtype, rng), None),
    ]
    for inputs, exact in everything:
        assert verdicts(device, FOLDERS[name], mine, inputs, exact) == [Verdict(0, None)] * len(
            mine
        )


def streamed_operands(name: str) -> tuple[str, str]:
    operands = FOLDERS[name].workload.operands
    return operands[0], operands[-1]


N = 1003  # 250 groups of four, and three elements more
INSIDE = 4 * 77 + 2
PLACES = [0, INSIDE, N - 3, N - 1]  # first, in the vector loop, in its tail, last
SPECIAL = {
    "-inf in y": {"y": {INSIDE: -math.inf}},
    "-inf times -inf": {"x": {0: -math.inf}, "y": {0: -math.inf}},
    "0 times inf": {"x": {N - 3: 0.0}, "y": {N - 3: math.inf}},
    **{f"NaN at {place}": {"x": {place: math.nan}} for place in PLACES},
    **{f"inf at {place}": {"x": {place: math.inf}} for place in PLACES},
    **{
        f"both at {one}, {other}": {"x": {one: math.inf, other: -math.inf}}
        for one, other in itertools.combinations(PLACES, 2)
    },
}


@pytest.mark.filterwarnings("ignore:invalid value")  # NumPy's word for a NaN that comes about
@pytest.mark.parametrize("name", ["dot_streamed", "dot_resident", "dot_square"])
@pytest.mark.parametrize("changes", SPECIAL.values(), ids=SPECIAL)
def test_special_values(device: Device, name: str, changes: dict[str, dict[int, float]]) -> None:
    data = integers(N, "float")
    for operand, values in changes.items():
        for place, special in values.items():
            data[operand][place] = special
    mine = covering(cells(name, N, "float", threads=[33]))
    assert verdicts(device, FOLDERS[name], mine, data) == [Verdict(0, None)] * len(mine)


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf, 0.0])
def test_special_number_is_a_fault_where_the_sum_is_finite(wrong: float) -> None:
    (cell, *_) = cells("dot_streamed", N, "float")
    inputs = integers(N, "float")
    known = streamed().known(inputs)
    assert streamed().fault(reference_dot(inputs["x"], inputs["y"]).value, cell, known) is None
    assert str(wrong) in str(streamed().fault(wrong, cell, known))


STREAMED_EDITS = {
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
PUBLISHED_EDITS = {
    "a vector": [("i < vectors;", "i < vectors - 1;")],
    "a printed block": [
        ("if (thread < 1)", "if (thread < 1 && get_group_id(0) != 1)"),
        ("if (threadIdx.x < 1)", "if (threadIdx.x < 1 && blockIdx.x != 1)"),
    ],
    "half a tree": [("width > 0;", "width > 1;")],
}
RESIDENT_EDITS = {
    "a block's sum": [
        (
            "partials[get_group_id(0)] = total;",
            "if (get_group_id(0)) partials[get_group_id(0)] = total;",
        ),
        ("partials[blockIdx.x] = total;", "if (blockIdx.x) partials[blockIdx.x] = total;"),
    ],
    "the result": [("*dst = total;", ""), ("*dst = rest;", "")],
}


def edits() -> list[Any]:
    # In every stream are two blocks or more, each with something to add.
    axes = {"streams": [1, 4], "threads": [16, 33], "host_percent": [0], "chunk": [0]}
    cut = cells("dot_streamed", N, "float", **axes)
    resident = cells("dot_resident", N, "float", threads=[33], grid=[3])
    printed = [printed_cell(4096, **SMALL)]
    cases = [(STREAMED_EDITS, cut), (PUBLISHED_EDITS, printed), (RESIDENT_EDITS, resident)]
    return [pytest.param(e, mine, id=what) for every, mine in cases for what, e in every.items()]


def printed_cell(n: int, kernel: str = "dot_streamed", dtype: str = "float", **axes: int) -> Cell:
    every = {**PRINTED, "chunk": 0, "host_percent": 0, **axes}
    return Cell(kernel, dtype, PUBLISHED, Problem(1, n), tuple(sorted(every.items())))


# The document's own parameters.
PRINTED = {"streams": 64, "min_per_stream": 1 << 12, "blocks_per_stream": 32, "threads": 1024}
# Fewer, so that a few thousand elements use all of them.
SMALL = {"streams": 4, "min_per_stream": 64, "blocks_per_stream": 2, "threads": 16}


@pytest.mark.parametrize(("changes", "mine"), edits())
def test_a_kernel_that_leaves_something_out_is_called_wrong(
    device: Device, tmp_path: Path, changes: list[tuple[str, str]], mine: list[Cell]
) -> None:
    folder = edited(FOLDERS[mine[0].kernel], tmp_path, changes)
    if folder.name == "dot_resident":
        # Entries that are not launched here take a compiler seconds each.
        for unroll in {1, 2, 4, 8} - {c["unroll"] for c in mine}:
            for source in folder.path.glob("kernel.c*"):
                source.write_text(source.read_text().replace(f"\nDOT({unroll})\n", "\n"))
    rng = np.random.default_rng(1)
    data = FOLDERS[folder.name].workload.inputs(mine[0].problem, "float", rng)
    found = verdicts(device, folder, mine, data)
    assert {v.wrong_words for v in found} == {1}
    assert all("the bound of this order of summation" in str(v.message) for v in found)


def few_cells(*sizes: tuple[int, int], host_percent: int = 0) -> list[Cell]:
    """Of all that cut; N elements have two blocks or more in every stream."""
    axes = {"streams": [1, 4], "threads": [16, 33], "host_percent": [host_percent]}
    problems = [Problem(*size) for size in sizes]
    return enumerate_cells(
        STREAMED.name, "float", CUT, problems, AXES[STREAMED.name] | {"chunk": [0]} | axes
    )


def test_a_sweep_without_a_configuration_runs() -> None:
    axes = {n: np.atleast_1d(v).tolist() for n, v in read_sweep("", {}, STREAMED).axes.items()}
    for cell in enumerate_cells(STREAMED.name, "float", CUT, [Problem(1, N)], axes):
        assert STREAMED.workload.pipeline(cell).host_end == N


def test_wrong_cells_are_not_timed(device: Device, tmp_path: Path) -> None:
    runs = ended(device, STREAMED, few_cells((1, N), (1, 0), (1, 3), host_percent=10))
    assert {(r.status, r.message) for r in runs} == {(Status.OK, None)}
    assert {(r.verified_words, r.wrong_words) for r in runs} == {(1, 0)}
    assert {len(r.samples_s) for r in runs} == {6}
    runs = ended(device, edited(STREAMED, tmp_path, STREAMED_EDITS["a block"]), few_cells((1, N)))
    assert {r.status for r in runs} == {Status.WRONG_RESULT}
    assert {(r.verified_words, r.wrong_words, *r.samples_s) for r in runs} == {(1, 1)}


def test_earlier_threads_come_to_rest(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    rests: list[float] = []
    clock = SimpleNamespace(sleep=rests.append, monotonic=time.monotonic)
    monkeypatch.setattr(rounds, "time", clock)
    monkeypatch.setattr(rounds, "SETTLE_S", 12.5)
    ended(device, STREAMED, few_cells((1, N), (1, 3)))
    assert rests == [12.5, 12.5]


@pytest.mark.parametrize("variant", CUT)
def test_what_is_left_is_no_result(device: Device, tmp_path: Path, variant: str) -> None:
    """A kernel that writes nothing finds, in the same memory, what the sound one wrote there."""
    nobody = [("thread == 0)", "thread == 4096)"), ("threadIdx.x == 0)", "threadIdx.x == 4096)")]
    lazy = device.build(edited(STREAMED, tmp_path, nobody).path, DTYPES["float"], {})
    sound = device.build(STREAMED.path, DTYPES["float"], {})
    here = FedSpace(device, streamed(), integers(N, "float"))
    for cell in cells("dot_streamed", N, "float", variant, threads=[33], host_percent=[0, 37]):
        for program, wrong in ((sound, 0), (lazy, 1)):
            proof = here.bind_proof(program, cell)
            proof.run()
            assert here.verdict(cell, proof).wrong_words == wrong, cell
            here.bind(sound, cell).run()


@pytest.mark.parametrize("mode", ["pooled", "fresh"])
@pytest.mark.parametrize(
    ("room", "four_streams"),
    [
        pytest.param(4 * N, Status.OUT_OF_RESOURCES, id="not even the copy fits"),
        pytest.param(4 * 9000 // 4, Status.OK, id="a piece of a quarter fits"),
    ],
)
def test_problem_too_large_costs_its_own_cells_and_the_next_is_measured(
    device: Device, monkeypatch: pytest.MonkeyPatch, room: int, four_streams: Status, mode: str
) -> None:
    """What is longer than `room` is asked for 2^30 times as long: the runtime itself refuses it."""
    with device.streams.open() as stream:
        kind: Any = type(stream)
    allocate = kind.allocate

    def so_much(self: Any, nbytes: int) -> Any:
        return allocate(self, nbytes if nbytes <= room else nbytes * 2**30)

    monkeypatch.setattr(kind, "allocate", so_much)
    sizes = [(1, N), (1, 9000), (2, 500)]
    runs = ended(device, STREAMED, [c for c in few_cells(*sizes) if c.variant.endswith(mode)])
    found = Counter((r.cell.problem, r.cell["streams"], r.status) for r in runs)
    assert found == {
        (Problem(1, N), 1, Status.OK): 4,
        (Problem(1, N), 4, Status.OK): 4,
        (Problem(1, 9000), 1, Status.OUT_OF_RESOURCES): 4,
        (Problem(1, 9000), 4, four_streams): 4,
        (Problem(2, 500), 1, Status.OK): 4,
        (Problem(2, 500), 4, Status.OK): 4,
    }
    assert all(
        "does not fit" in str(r.message) for r in runs if r.status is Status.OUT_OF_RESOURCES
    )


def test_arrays_that_the_host_cannot_hold(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    kind: Any = type(device.streams)
    host_array = kind.host_array

    def short(self: Any, array: Array, pinned: bool) -> Array:
        if array.size == N and pinned:
            raise MemoryError("no more pages")
        return host_array(self, array, pinned)

    monkeypatch.setattr(kind, "host_array", short)
    runs = ended(device, STREAMED, few_cells((1, N), (1, 500)))
    found = {(r.cell.problem.width, r.status) for r in runs}
    assert found == {(N, Status.OUT_OF_RESOURCES), (500, Status.OK)}
    refused = [str(r.message) for r in runs if r.status is Status.OUT_OF_RESOURCES]
    assert all("does not fit this host's memory (no more pages)" in text for text in refused)


@pytest.mark.parametrize("limit", [1024, None])
def test_a_block_without_room_is_never_launched(device: Device, limit: int | None) -> None:
    """The kernel holds a sum for each of 1024 threads; a CPU would run blocks of more."""
    axes = {"threads": [1024, 1025], "streams": [1], "host_percent": [0], "chunk": [0]}
    runs = ended(device, STREAMED, cells("dot_streamed", 10**6, "double", **axes), limit)
    over = (limit or device.info.max_threads_per_block) < 1025
    refused = Status.TOO_MANY_THREADS if over else Status.OUT_OF_RESOURCES
    statuses = {r.cell["threads"]: (r.status, r.message or "") for r in runs}
    assert statuses[1024] == (Status.OK, "")
    assert statuses[1025][0] is refused
    assert "1025 threads a block" in statuses[1025][1]


def test_without_streams_a_kernel_that_is_fed_costs_its_cells(
    opencl_device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opencl_device, "streams", None)
    runs = ended(opencl_device, STREAMED, few_cells((1, 500)))
    assert {r.status for r in runs} == {Status.OUT_OF_RESOURCES}
    assert {r.message for r in runs} == {"The device has no streams, which feed it from the host."}


def test_library_takes_samples_of_several_calls_and_refuses_others(device: Device) -> None:
    with pytest.raises(LaunchConfigError, match="'sort'"):
        bind_library(device, LibraryCall("sort", ("x", "y"), "dst", "float"), {})
    skip_without_library(device, "dot_cublas")
    folder, n = FOLDERS["dot_cublas"], 2**20
    here = space(
        device,
        folder,
        "float",
        folder.workload.inputs(Problem(1, n), "float", np.random.default_rng(1)),
    )
    (cell,) = cells("dot_cublas", n, "float")
    program = programs_for(device, folder, "float", [Version("library")]).programs["library"]
    assert 1e-7 < here.bind(program, cell).sample(16) < 1e-3
    in_graph = here.bind(program, cell).sample(16, Condition("warm", "graph"))
    assert 1e-7 < in_graph < 1e-3


@pytest.mark.parametrize(
    ("n", "axes", "streams", "share", "blocks"),
    [
        (10_000, {}, 2, 4096, 1),
        (2**28, {}, 64, 2**22, 32),
        (1000, {**SMALL, "streams": 3, "blocks_per_stream": 4}, 3, 128, 2),
    ],
)
def test_the_printed_formulas(
    n: int, axes: dict[str, int], streams: int, share: int, blocks: int
) -> None:
    """By hand, from the listing: powers of two, each rounded down; the host has the rest."""
    found = streamed().pipeline(printed_cell(n, **axes))
    ranges = [(i, i * share, (i + 1) * share) for i in range(streams)]
    assert [(p.stream, p.begin, p.end) for p in found.pieces] == ranges
    launches = [p.launch for p in found.pieces if p.launch is not None]
    assert {launch.grid for launch in launches} == {(blocks, 1, 1)}
    assert [int(v.args[-1]) for v in launches] == [i * blocks for i in range(streams)]
    assert (found.partials, found.host_begin) == (4 * streams * blocks, streams * share)


@pytest.mark.parametrize(
    ("n", "params", "message"),
    [
        (3, {}, "2 elements a stream; the printed program launches no block for fewer than 4."),
        (4096, {"chunk": 8}, "chunk is 8; the printed program does not have it."),
        (4096, {"host_percent": 20}, "host_percent is 20; the printed program does not have it."),
        (4096, {"threads": 96}, "96 threads a block; the printed program takes powers of two."),
    ],
)
def test_what_is_not_printed_is_refused(n: int, params: dict[str, int], message: str) -> None:
    with pytest.raises(LaunchConfigError) as caught:
        streamed().pipeline(printed_cell(n, **params))
    assert str(caught.value) == message


@pytest.mark.parametrize("kernel", ["dot_square", "dot_streamed"])
@pytest.mark.parametrize("dtype", ["float", "double"])
def test_every_length_of_the_printed_loop_is_right(device: Device, kernel: str, dtype: str) -> None:
    for n in (4, 5, 64, 1000, 4095, 4096, 65537):
        data = integers(n, dtype)
        x, y = (data[operand].astype(float) for operand in streamed_operands(kernel))
        axes = (SMALL, SMALL | {"streams": 3, "threads": 64}, SMALL | {"streams": 1})
        mine = [printed_cell(n, kernel, dtype, **params) for params in axes for _ in range(2)]
        assert {v.message for v in verdicts(device, FOLDERS[kernel], mine, data, float(x @ y))} == {
            None
        }


def test_sums_are_added_one_after_another_in_their_own_type() -> None:
    """2^24 + 1 + 1 … stays 2^24 in float when the ones come singly; there may be none."""
    assert streamed().pipeline(printed_cell(0)).pieces == ()
    partials = np.zeros((5, 4), np.float32)
    partials[0], partials[1:, 2] = [2.0**24, 0, 0, 0], 1.0
    single, double = printed_cell(64), printed_cell(64, dtype="double")
    assert streamed().total(single, partials.reshape(-1), 0.0) == 2.0**24
    assert streamed().total(double, partials.reshape(-1).astype(float), 3.0) == 2.0**24 + 7
