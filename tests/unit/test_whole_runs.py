"""Odd configurations: refused by a sentence before anything runs, else run to their report."""

from __future__ import annotations

import copy
import tempfile
from contextlib import chdir
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from conftest import ROOT, examples
from dot_products.resident import ResidentSum
from gpushmoo.core.errors import LaunchRefusedError
from gpushmoo.core.schema import FAULTS, Status
from gpushmoo.core.space import Cell, Problem, Residency, count_cells, enumerate_cells, expand_axis
from gpushmoo.planning.config import RunConfig, default_config, load_config
from gpushmoo.planning.config_schema import ConfigError
from gpushmoo.storage.dataset import read_cells
from gpushmoo.workloads.contract import Workload
from gpushmoo.workloads.host_fed import HostFedWorkload
from gpushmoo.workloads.loader import find_kernels, load_kernel
from hypothesis import HealthCheck, assume, given, reject, settings
from hypothesis import strategies as st
from whole_run import run_all

DEFAULT = default_config()
FOLDERS = find_kernels([ROOT / "kernels"])
# cuBLAS is CUDA's.
KERNELS = sorted(set(FOLDERS) - {"dot_cublas"})
# A busy CPU takes ten million turns of a kernel's loop in less than `cell_timeout_s`; a piece of a
# pipeline costs it as much as some thousand of them.
MANY_STEPS = 10**7
STEPS_TO_QUEUE = 10**4
HUNT = not settings.default.derandomize
MOST_CELLS = 150 if HUNT else 40
# Cells that may time out in one configuration: each takes all cores until then. Hunts have one.
MOST_LONG = int(HUNT)
# Turns of all cells of a configuration together, each of which is launched some ten times: in a
# hunt any number, else a second of a core.
MOST_STEPS = 10**12 if HUNT else 10**6
# Each launch of such a cell fills twice what the last cache holds: where that is half a gigabyte,
# a cell takes some seconds.
MOST_FLUSHED = MOST_CELLS if HUNT else 2
# No OpenCL runtime of a CPU takes larger blocks.
MOST_THREADS = 8192
SIZES = [1, 2, 3, 31, 32, 33, 64, 100, [1, 7], [7, 1], [48, 70], [33, 1000]]
LENGTHS = [0, 1, 2, 63, 64, 1000, 4096, 4097]
VALUES = [1, 2, 3, 7, 8, 31, 32, 33, 64, 100, 1000, 1024, 1025, 9999]
LARGE = [2**16, 2**20, 2**28]


def some(values: Any, most: int = 3) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.sampled_from(list(values)), min_size=1, max_size=most, unique_by=str)


def possible(w: Workload, axis: str) -> list[int]:
    least, most = 0 if axis in w.zero_axes else 1, w.most.get(axis, 2**28)
    return [v for v in (0, *VALUES, *LARGE) if least <= v <= most]


@st.composite
def axes(draw: st.DrawFn, w: Workload, axis: str) -> Any:
    """An axis with a few values, some of which no launch can have."""
    most = w.most.get(axis, 2**28)
    if axis in ("unroll", "block_rows"):
        # There is an entry of the kernel for each; of another one its cell says that there is none.
        return draw(some(w.axes[axis]))
    # Blocks of the loading kernel are of whole warps.
    step = 32 if w.ceiling == "load" and axis == "block_x" else 1
    values = [v for v in possible(w, axis) if v % step == 0]
    kind = draw(st.sampled_from(["list", "list", "value", "range", "resident"]))
    if kind == "value":
        return draw(st.sampled_from(values))
    if kind == "range":
        first = draw(st.sampled_from([v for v in values if v < 2000 and v < most]))
        step *= draw(st.integers(1, 5))
        return {"from": first, "to": min(most, first + draw(st.integers(0, 12))), "step": step}
    if kind == "resident" and step == 1:
        waves = draw(st.sampled_from([0.01, 0.5, 1.0, 16.0]))
        return {"to_resident": waves, "points": draw(st.integers(1, 3))}
    return draw(some(values))


@st.composite
def sweep(draw: st.DrawFn, kernel: str) -> dict[str, Any]:
    w = load_kernel(FOLDERS[kernel]).workload
    lengths = isinstance(w, HostFedWorkload | ResidentSum)
    return {
        "dtypes": draw(some(w.dtypes, 2)),
        "variants": draw(some(w.variants)),
        "sizes": draw(some(LENGTHS[not isinstance(w, HostFedWorkload) :] if lengths else SIZES, 4)),
        "cache": draw(some(["warm", "flushed"], 2)),
        "axes": {axis: draw(axes(w, axis)) for axis in w.axes},
    }


@st.composite
def timelines(draw: st.DrawFn) -> Any:
    w = load_kernel(FOLDERS["dot_streamed"]).workload
    return {
        name: {
            "kernel": "dot_streamed",
            "dtype": draw(st.sampled_from(w.dtypes)),
            "variant": draw(st.sampled_from(w.variants)),
            "size": draw(st.sampled_from(LENGTHS[1:])),
            "axes": {axis: draw(st.sampled_from(possible(w, axis))) for axis in w.axes},
        }
        for name in draw(some(["a", "b " * 40, "#c", "<d>"], 3))
    }


SIDES = [32, 33, 64, 96, 128, 256]
BLOCKS = [1, 2, 7, 8, 30, 32, 33, 5000]
SIMULATED = st.fixed_dictionaries(
    {"levels": some(["bus", "partitions", "banks"])}, optional={"measured": st.booleans()}
)
DOCUMENT = st.fixed_dictionaries(
    {},
    optional={
        "tables": st.fixed_dictionaries({"sizes": some(SIDES), "num_partition": some(BLOCKS)}),
        "questions": st.one_of(st.none(), some(SIDES, 2)),
        "latency_cycles": st.one_of(st.none(), some([400, 401, 600], 2)),
        "figures": st.sampled_from([False, False, True]),
    },
)
MEASURE = st.fixed_dictionaries(
    {
        "repeats": st.sampled_from([1, 1, 1, 2]),
        "min_samples": st.integers(6, 8),
        "max_samples": st.integers(6, 9),
        "lock_clocks": st.none(),
        "relative_half_width": st.sampled_from([1e-9, 0.5, 1.0]),
        "cell_budget_s": st.sampled_from([1e-9, 0.01]),
        "cell_timeout_s": st.just(10.0),
        "warmup": st.sampled_from([0, 1, 3]),
        "search": st.fixed_dictionaries(
            {
                "mode": st.sampled_from(["all", "all", "race", "guided"]),
                "tolerance": st.sampled_from([0.01, 1.0]),
                "better_probability": st.sampled_from([0.05, 0.99]),
                "most_share": st.sampled_from([0.1, 1.0]),
                "transfer": st.none(),
            }
        ),
        "cells_per_shard": st.sampled_from([60, 1000]),
        "max_cells": st.just(100_000),
        "max_builds": st.just(1000),
    }
)


RIVALS = {"lengths": [64], "share_lengths": [64], "parameter_lengths": [], "between": [64]} | {
    "rounds": 6
}


@st.composite
def configurations(draw: st.DrawFn) -> dict[str, Any]:
    """Small ones, most of them possible."""
    config: dict[str, Any] = copy.deepcopy(DEFAULT)
    kernels = draw(some(KERNELS, 2))
    machines = draw(some(["tesla-c1060", "gtx280", "gtx260", "gtx295", "nvidia-h200"], 1))
    simulated = {m: dict(draw(SIMULATED)) for m in machines if draw(st.booleans())}
    for spec in simulated.values():
        if draw(st.booleans()):
            spec |= {"sizes": draw(some(SIDES)), "num_partition": draw(some(BLOCKS))}
    errors = {
        "sizes": draw(some(LENGTHS[1:])),
        "conditions": draw(some([2, 1e5, 1e25]) | st.just([])),
        "condition_size": draw(st.sampled_from([64, 65, 1000])),
    }
    return config | {
        "run": "odd",
        "seed": draw(st.sampled_from([0, 1, 2**32 - 1])),
        "backend": "opencl",
        "thread_limit": draw(st.sampled_from([None, 1, 32, 1024, 10**9])),
        "only": kernels,
        "kernels": {k: draw(sweep(k)) for k in kernels},
        "measure": draw(MEASURE),
        "chapters": {
            "streamed_dot": {
                "timeline": draw(st.none() | timelines()),
                "errors": draw(st.sampled_from([None, errors])),
                "rivals": draw(st.sampled_from([None, RIVALS])),
            },
            # Simulations take most of a run's time, and depend on no cell.
            "tesla_c1060": draw(st.none() | st.just({"simulate": simulated} | draw(DOCUMENT)))
            if HUNT
            else None,
        },
    }


def cells_of(config: RunConfig) -> list[Cell]:
    """About: axes that ask the device are of one with two units. Rejects what is too many."""
    found: list[Cell] = []
    for s in config.sweeps.values():
        grids = {axis: expand_axis(spec, Residency(2, 1)) for axis, spec in s.axes.items()}
        each = count_cells(grids, len(s.problems), len(s.variants), len(s.cache_states))
        assume(len(found) + each * len(s.dtypes) <= MOST_CELLS)
        for dtype in s.dtypes:
            kernel, names = s.folder.name, (s.variants, s.problems)
            found += enumerate_cells(kernel, dtype, *names, grids, s.cache_states)
    return found


def steps(cell: Cell) -> int:
    """What a launch of `cell` costs a CPU, which has no threads of a GPU: turns of its loops."""
    w = load_kernel(FOLDERS[cell.kernel]).workload
    n, passes = cell.problem.height * cell.problem.width, dict(cell.params).get("passes", 1)
    try:
        if not isinstance(w, HostFedWorkload):
            launch = w.launch(cell)
            return n + launch.blocks * launch.threads * passes
        pipeline = w.pipeline(cell)
    except LaunchRefusedError:
        return 0
    launches = [p.launch for p in pipeline.pieces if p.launch is not None]
    return n + sum(STEPS_TO_QUEUE + x.blocks * x.threads for x in launches)


def may_time_out(cell: Cell) -> bool:
    """Whether the configuration itself asks for more than a busy CPU does within the time."""
    return steps(cell) > MANY_STEPS


def runs_long(cell: Cell) -> bool:
    """Whether one of those is launched and not refused for its threads."""
    launch = load_kernel(FOLDERS[cell.kernel]).workload.launch
    return may_time_out(cell) and launch(cell).threads <= MOST_THREADS


def of_row(row: pd.Series) -> Cell:
    """The cell of a row of the data set."""
    axes = load_kernel(FOLDERS[row["kernel"]]).workload.axes
    values = tuple((axis, int(row[axis])) for axis in sorted(axes))
    problem = Problem(int(row["height"]), int(row["width"]))
    return Cell(row["kernel"], row["dtype"], row["variant"], problem, values, row["cache_state"])


def unexcused(cells: pd.DataFrame) -> pd.DataFrame:
    """Faults, but for timeouts that the configuration asks for."""
    late = cells["status"] == Status.TIMEOUT
    asked = [index for index, row in cells[late].iterrows() if may_time_out(of_row(row))]
    return cells[cells["status"].isin(FAULTS)].drop(asked)


@settings(max_examples=examples(3), suppress_health_check=list(HealthCheck))
@given(config=configurations())
def test_a_configuration_is_refused_at_once_or_runs_to_its_report(
    opencl_cache: Path, config: dict[str, Any]
) -> None:
    try:
        taken = load_config(config, ROOT)
    except ConfigError as err:
        assert len(str(err).splitlines()) == 1  # noqa: PT017
        reject()
    cells = cells_of(taken)
    assume(sum(cell.cache_state == "flushed" for cell in cells) <= MOST_FLUSHED)
    assume(sum(map(runs_long, cells)) <= MOST_LONG)
    assume(sum(map(steps, cells)) <= MOST_STEPS)
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        flow = run_all(config, opencl_cache)
        assert Path(flow.path("report.pdf")).stat().st_size > 0
        wrong = unexcused(read_cells(Path(flow.path("dataset"))))
        assert wrong.empty, wrong[["status", "message"]]


@pytest.mark.parametrize(("passes", "asked"), [(2**28, True), (16, False)])
def test_a_timeout_is_excused_only_where_the_configuration_asks_for_it(
    passes: int, asked: bool
) -> None:
    axes = {"block_x": 32, "unroll": 1, "passes": passes}
    row = {"kernel": "global_load", "dtype": "float", "variant": "plain", "cache_state": "warm"}
    row |= {"height": 1, "width": 1, **axes, "message": "one launch took 11 s"}
    cells = pd.DataFrame([row | {"status": s.value} for s in (Status.TIMEOUT, Status.WRONG_RESULT)])
    assert list(unexcused(cells)["status"]) == (["timeout"] * (not asked) + ["wrong_result"])
