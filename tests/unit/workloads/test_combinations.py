"""Spaces of very many combinations of which few are valid."""

import io
import itertools
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gpushmoo
import numpy as np
import pytest
from bench import Bench
from calls import grouped
from conftest import ROOT
from gpushmoo.analysis.aggregate import fault_of
from gpushmoo.core.errors import WorkloadError
from gpushmoo.core.run_plan import SweepPlan
from gpushmoo.core.schema import UNLISTED
from gpushmoo.core.space import Cell, Problem, ShardSpace
from gpushmoo.devices.select import DeviceChoice
from gpushmoo.interactive.arguments import checked, loaded, read_request
from gpushmoo.measuring import process
from gpushmoo.measuring.events import Candidates, Opened, Working
from gpushmoo.planning.config import default_config, load_config
from gpushmoo.planning.plan import plan_shards, run_plan
from gpushmoo.planning.sweeps import MAX_COMBINATIONS, SweepConfig, size_sentence
from gpushmoo.storage.store import read_shard
from gpushmoo.workloads.call import Call, CallWorkload, called
from gpushmoo.workloads.combinations import MAX_ROWS, look_through
from gpushmoo.workloads.loader import values_of
from jobs import assignment_of, job_of

RAW = default_config()
N = 64
X = np.arange(N, dtype=np.float32)
COPY = """
__kernel void copy(__global float *y, __global const float *x)
{
    int i = get_global_id(0);
    y[i] = x[i] + 0 * (A + B + C);
}
"""
# Of 21,952 combinations.
MANY = {"block_x": [N], **dict.fromkeys("ABC", range(1, 29))}
FEW_OF_MANY = "A <= 2 and B <= 2 and C <= 2"


def workload_of(valid: Sequence[Any], **axes: Sequence[int]) -> CallWorkload:
    return called("f", Call("f", (), (N,), {}, (), valid=valid), axes, "float", "FLOP")


def space_of(workload: CallWorkload) -> ShardSpace:
    axes = dict(workload.axes)
    return ShardSpace("float", ("f",), [Problem(1, N), Problem(1, 8)], ["warm"], axes, 0, 1)


def tuned(**asked: Any) -> gpushmoo.Tuned:
    asked = {"axes": MANY, "valid": FEW_OF_MANY, "expect": [X, None], **asked}
    usual = {"backend": "opencl", "max_samples": 6, "min_samples": 6}
    return gpushmoo.tune(COPY, "copy", [np.zeros_like(X), X], N, **grouped(**{**usual, **asked}))


def test_cells_at_places_are_those_of_the_whole_space() -> None:
    space = ShardSpace(
        dtype="float",
        variants=["a", "b"],
        sizes=[Problem(1, 8), Problem(2, 8)],
        cache_states=["warm", "flushed"],
        axes={"y": 1, "x": 1},
        index=1,
        count=2,
    )
    values = {"y": [1, 3], "x": [2, 4, 8]}
    cells = space.cells("k", values)
    assert len(set(cells)) == len(cells) == 2 * 2 * 2 * 3
    assert space.cells_at("k", values, range(len(cells))) == cells
    assert space.cells_at("k", values, [5, 2]) == [cells[5], cells[2]]
    first = Cell("k", "float", "a", space.rounds[0][0], (("x", 2), ("y", 1)), *space.rounds[0][1])
    assert (cells[0], cells[0].key) == (first, first.key)


@pytest.mark.parametrize(
    "valid",
    [
        ["p == q"],
        ["p < q", "q % 2 == 0  # even"],
        ["p * height >= q", "any(p == k * q for k in (1, 2))"],
        ["q % p == 0"],
        ["p != 0 and q % p == 0"],
        ["None if p == 3 else p < q"],
        [],
    ],
)
def test_texts_together_say_the_same_as_each_by_itself(valid: list[str]) -> None:
    workload = workload_of(valid, p=[0, 1, 2, 3, 4], q=[0, 1, 2, 3])
    space = space_of(workload)
    found = look_through(workload, space, values_of(space))
    ended = [[], [], []]
    for place, cell in enumerate(space.cells("f", values_of(space))):
        try:
            ended[workload.valid(cell) is not None].append(place)
        except WorkloadError:
            ended[2].append(place)
    assert [*found.places] == sorted([*ended[0], *ended[2]])
    assert [*found.refused] == ended[1]
    assert (found.invalid, found.failed) == (len(ended[1]), len(ended[2]))


def test_what_is_kept_of_very_many_is_little() -> None:
    workload = workload_of(["p == q", "r == 1"], p=range(60), q=range(60), r=range(10))
    space = space_of(workload)
    told: list[str] = []
    found = look_through(workload, space, values_of(space), told.append)
    assert (len(found.places), found.invalid) == (120, 72_000 - 120)
    assert len(found.refused) <= MAX_ROWS
    assert (len(found.places_of_rows), found.unlisted) == (120, 72_000 - 120)
    assert len(told) >= 3
    assert "of 72,000 combinations" in told[-1]


def test_few_invalid_ones_have_rows() -> None:
    workload = workload_of(["p == q"], p=range(50), q=range(50))
    space = space_of(workload)
    found = look_through(workload, space, values_of(space))
    assert (len(found.places_of_rows), found.unlisted) == (5_000, 0)


def test_few_valid_versions_of_very_many_are_compiled_and_measured(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Refused ones have no row, and no limit counts them."""
    result = tuned(max_builds=8, max_cells=8, repeats=2)
    assert result.statuses == {"ok": 8, "invalid": 21_952 - 8}
    assert len(result.cells) == 8
    assert set(result.cells["A"]) | set(result.cells["C"]) == {1, 2}
    assert "21944 invalid" in repr(result)
    err = capsys.readouterr().err
    assert "8 of 21,952 combinations are valid, 8 versions to compile" in err
    assert "8 cells to measure" in err
    assert "of 21952 cells" not in err
    with pytest.raises(gpushmoo.ConfigError, match=r"^8 versions to compile.*may have 7"):
        tuned(max_builds=7)
    with pytest.raises(gpushmoo.ConfigError, match=r"^8 cells, .*may have 7"):
        tuned(max_cells=7)


@pytest.mark.parametrize("more", [{"search": "guided"}, {"budget": 2.0, "search": "race"}])
def test_searches_and_budgets_see_the_valid_ones_alone(more: dict[str, Any]) -> None:
    axes = {"block_x": [8, 16, 32, 64], "A": range(1, 80), "B": range(1, 80), "C": [0]}
    source = COPY.replace("A + B + C", "1")
    asked = {"axes": axes, "valid": "A == B and A <= 8", "expect": [X, None], "progress": False}
    result = gpushmoo.tune(
        source,
        "copy",
        [np.zeros_like(X), X],
        N,
        **grouped(**{**asked, "grid": "n // block_x + 0 * C", **more, "backend": "opencl"}),
    )
    assert result.statuses["invalid"] == 4 * 79 * 79 - 32
    assert len(result.cells) == 32
    assert set(result.searches["candidates"]) == {32}


@pytest.mark.parametrize("axes", [MANY, {**MANY, "C": [1], "B": [1]}])
def test_a_condition_that_never_holds_is_refused(axes: Any) -> None:
    with pytest.raises(gpushmoo.ConfigError, match=r"refuses every cell.*A > 40") as caught:
        tuned(axes=axes, valid="A > 40")
    assert "\n" not in str(caught.value)


def test_a_condition_that_fails_names_itself_the_combination_and_a_remedy() -> None:
    axes = {"block_x": [N], "A": [0, 1], "B": [1], "C": [1, 2]}
    with pytest.warns(UserWarning, match="2 of 4 combinations were not launched"):
        result = tuned(axes=axes, valid="C % A == 0", progress=False)
    assert result.statuses == {"ok": 2, "workload_failed": 2}
    failed = result.cells[result.cells["A"] == 0]["message"].iloc[0]
    for part in ("'C % A == 0'", "ZeroDivisionError", "A=0, B=1, C=1", "leave the value out"):
        assert part in failed
    with pytest.raises(gpushmoo.ConfigError, match=r"'C % A == 0'.*A=0, B=1.*leave the value out"):
        tuned(axes={**axes, "A": [0]}, valid="C % A == 0")


def test_a_condition_that_fails_for_very_many_is_refused() -> None:
    with pytest.raises(gpushmoo.ConfigError, match=r"fails for more than 10,000 .*A=1, B=1, C=1"):
        tuned(valid="A % (B - B) == 0")


def test_more_than_can_be_looked_through_is_refused_at_once() -> None:
    axes = {"block_x": [N], **dict.fromkeys("ABC", range(1, 2000))}
    assert MAX_COMBINATIONS < 1999**3
    with pytest.raises(gpushmoo.ConfigError, match=r"too many to look through.*fewer values"):
        tuned(axes=axes)


@pytest.fixture
def diagonal(make_kernel: Callable[..., Path]) -> Path:
    """A kernel folder whose rule lets 64 of 20,480 combinations pass."""
    body = "void copy_good(%s) { %s if (i < n) dst[i] = src[i]; }"
    opencl = "__kernel " + body % (
        "__global float *dst, __global const float *src, ulong n",
        "ulong i = get_global_id(0);",
    )
    cuda = 'extern "C" __global__ ' + body % (
        "float *dst, const float *src, unsigned long long n",
        "unsigned long long i = threadIdx.x + (unsigned long long)blockDim.x * blockIdx.x;",
    )
    folder = make_kernel("diagonal", cuda, opencl)
    text = (folder / "workload.py").read_text()
    rule = """    def valid(self, cell):
        return None if cell["p"] == cell["q"] and cell["p"] <= 32 else "not p = q"

    def launch"""
    text = text.replace("    def launch", rule).replace(
        '{"block_x": [32, 64, 2048]}', '{"block_x": [32, 64], "p": RANGE, "q": RANGE}'
    )
    whole = '{"from": 1, "to": 101}'
    (folder / "workload.py").write_text(text.replace("RANGE", whole))
    return folder


# 2 * 101 * 101.
DIAGONAL = 20_402


def test_a_folders_rule_is_asked_once_and_its_cells_are_handed_over(
    diagonal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0
    looked = SweepConfig.combinations

    def counted(sweep: SweepConfig, dtype: str, *args: Any) -> Any:
        nonlocal asked
        asked += dtype not in sweep._found
        return looked(sweep, dtype, *args)

    monkeypatch.setattr(SweepConfig, "combinations", counted)
    result = gpushmoo.sweep(diagonal, backend="opencl", max_samples=6, min_samples=6)
    assert result.statuses == {"ok": 64, "invalid": DIAGONAL - 64}
    assert (len(result.cells), asked) == (64, 1)


def test_pairs_of_a_large_space_are_its_valid_ones(diagonal: Path) -> None:
    result = gpushmoo.ab(diagonal, diagonal, backend="opencl", pairs=4, progress=False)
    assert len(result.cells) == 4
    assert set(result.cells["status"]) == {"ok"}
    assert result.alone == (0, 0)


@pytest.mark.parametrize(
    ("of_b", "sizes", "times"),
    [
        ({}, None, 1),
        ({}, {"of_cache": 0.5, "on_cpu": 64}, 1),
        ({"A user's kernel": "B"}, None, 2),
        ({"sizes = (64,)": "sizes = (64, 128)"}, None, 2),
    ],
    ids=["same rule", "size of a device", "another rule", "more sizes"],
)
def test_a_rule_is_asked_once_for_each_combination_of_a_pair(
    diagonal: Path, tmp_path: Path, of_b: dict[str, str], sizes: Any, times: int
) -> None:
    """Of both versions in all processes; measuring asks again for the few cells that it has."""
    asked = tmp_path / "asked"
    text = (diagonal / "workload.py").read_text()
    counted = f'cell):\n        open({str(asked)!r}, "ab", 0).write(b".")\n        return None if'
    text = text.replace("cell):\n        return None if", counted)
    (diagonal / "workload.py").write_text(text)
    other = tmp_path / "theirs" / diagonal.name
    shutil.copytree(diagonal, other)
    for old, new in of_b.items():
        text = text.replace(old, new)
    (other / "workload.py").write_text(text)
    result = gpushmoo.ab(
        diagonal, other, backend="opencl", pairs=4, rounds=4, sizes=sizes, progress=False
    )
    assert set(result.cells["status"]) == {"ok"}
    assert times * DIAGONAL <= asked.stat().st_size < times * DIAGONAL + 100


def test_a_job_looks_through_its_shard_itself(
    diagonal: Path, opencl_choice: DeviceChoice, tmp_path: Path
) -> None:
    """As one of a Snakemake run does, whose rows are then checked against their number."""
    axes = {"block_x": [32, 64], **{axis: {"from": 1, "to": 101} for axis in "pq"}}
    bench = Bench(opencl_choice, diagonal, tmp_path)
    rows = bench.measure(["good"], axes=axes)
    assert len(rows) == 64
    assert f"{DIAGONAL - 64} invalid, 64 ok" in bench.terminal.getvalue()
    assert "64 cells to measure" in bench.terminal.getvalue()
    out = tmp_path / "shard.parquet"
    table, metadata = read_shard(out)
    assert metadata[UNLISTED] == DIAGONAL - 64
    assert fault_of(out, table, metadata, None) is None
    assert "63 of 64 cells" in str(fault_of(out, table.slice(1), metadata, None))
    elsewhere = {**metadata, "params": {**metadata["params"], "sizes": [[64, 32]]}}
    assert "not in the plan" in str(fault_of(out, table, elsewhere, None))


def test_a_run_counts_valid_cells(diagonal: Path) -> None:
    raw = {
        **RAW,
        "backend": "opencl",
        "only": ["diagonal"],
        "kernel_folders": [str(diagonal.parent)],
        "kernels": {"diagonal": {"sizes": [64, 128]}},
        "measure": {**RAW["measure"], "max_cells": 128, "repeats": 1},
    }
    config = load_config(raw, ROOT)
    said = size_sentence(config.sweeps, "opencl")
    assert said.startswith("128 cells (40,676 combinations are invalid), 1 versions")
    assert len(plan_shards(config)) == 1
    [[plan]] = [run.values() for run in run_plan(config, "opencl", "auto").sweeps.values()]
    assert plan.planned_cells == 128


def test_a_plan_without_a_number_of_rows_counts_combinations() -> None:
    job = job_of(variants=["a"], sizes=[[1, 8], [1, 9]], axes={"x": [1, 2]}, shard=[0, 2])
    assert SweepPlan(job).planned_cells == 2.0


class Clock:
    """A clock that moves on by a minute with each look."""

    def __init__(self) -> None:
        self.minutes = itertools.count()

    def __call__(self) -> float:
        return 60.0 * next(self.minutes)


def test_what_a_process_does_before_the_first_cell_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = [Candidates(((0, "a"),)), Working("k: compiling, 340 of 2,376 versions done"), None]

    class Worker:
        def hear(self, _: float) -> Any:
            return messages.pop(0)

        def lease(self, *_: Any) -> None:
            pass

    terminal = io.StringIO()
    session = process.Session(assignment_of(tmp_path), "", terminal, process.Workers())
    monkeypatch.setattr(session, "_locked", lambda _: (0, None))
    news = process.News
    monkeypatch.setattr(process, "News", lambda *a, **k: news(*a, **k, clock=Clock()))
    worker: Any = Worker()
    assert session._opened(worker)[1] is None
    assert "340 of 2,376" in terminal.getvalue()


def test_a_process_that_follows_need_not_look_through_all_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload = workload_of(["p == q"], p=range(120), q=range(120))
    space = space_of(workload)
    found = look_through(workload, space, values_of(space))
    info: Any = type("Info", (), {"kind": "cpu"})
    opened = Opened(info, {}, {}, None, {}, [], {}, found)
    session = process.Session(assignment_of(tmp_path), "", io.StringIO(), process.Workers())
    monkeypatch.setattr(session, "_taken", lambda: None)
    monkeypatch.setattr(session, "_opened", lambda _: (None, opened))
    session.begin()
    assert session._assignment.found is found


def test_a_request_reports_how_far_it_is(diagonal: Path) -> None:
    told: list[str] = []
    request = read_request(loaded(diagonal), checked({}), told.append)
    assert (request.sweep.n_cells, request.sweep.n_invalid) == (64, DIAGONAL - 64)
    assert re.search(r"looked through 20,000 of 20,402 combinations, \d+ are valid", told[-1])
