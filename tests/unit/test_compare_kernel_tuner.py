"""What tests/gpu/compare_kernel_tuner.py says about sweeps, and how it reads them; no device."""

from __future__ import annotations

import importlib.util
import json
import sys
from itertools import product
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import ROOT
from gpushmoo.core.space import Problem, enumerate_cells
from gpushmoo.planning.config import load_config
from gpushmoo.planning.plan import plan_shards
from gpushmoo.workloads.loader import load_kernel
from snakemake.utils import update_config


def load(name: str) -> ModuleType:
    """The script `name` of tests/gpu as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / f"tests/gpu/{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


script = load("compare_kernel_tuner")


def sweep(wall_s: float, *seconds: float, device: str = "GPU") -> Any:
    """A sweep whose cells x=0, x=1, … have these medians."""
    return script.Sweep(wall_s, device, {(("x", i),): s for i, s in enumerate(seconds)}, {})


def test_speed_counts_valid_cells() -> None:
    assert script.speed(sweep(2.0, 1e-3, 1e-3, 1e-3, 1e-3)) == {
        "wall_s": 2.0,
        "cells": 4,
        "cells_per_s": 2.0,
        "ms_per_cell": 500.0,
    }


def test_repeatability_is_relative_to_the_mean_and_knows_no_direction() -> None:
    first = {(1, 1): 0.9, (1, 2): 1.0, (1, 3): 2.0, (9, 9): 7.0}
    second = {(1, 1): 1.1, (1, 2): 1.0, (1, 3): 2.0}
    found = script.repeatability(first, second)
    assert found == script.repeatability(second, first)
    assert found["median"] == 0.0
    # Differences 0, 0 and 0.2: the 95th percentile lies 0.9 of the way from the second to the last.
    assert found["p95"] == pytest.approx(0.18)


def test_agreement_is_ours_over_theirs_after_the_median_of_the_rounds() -> None:
    ours = [sweep(1, 1.0, 2.0), sweep(1, 1.2, 2.4)]
    theirs = [sweep(1, 1.0, 4.0), sweep(1, 1.0, 4.0)]
    found = script.agreement(ours, theirs)
    assert found["median"] == pytest.approx((0.1 - 0.45) / 2)
    assert found["median_abs"] == pytest.approx((0.1 + 0.45) / 2)


def test_a_difference_is_told_apart_into_a_constant_and_a_share() -> None:
    ours = [sweep(1, 10e-6, 20e-6, 40e-6, 80e-6)] * 2
    later = [3e-6 + 1.01 * s for s in (10e-6, 20e-6, 40e-6, 80e-6)]
    found = script.difference(ours, [sweep(1, *later)] * 2)
    assert found["constant_us"] == pytest.approx(3.0)
    assert found["share"] == pytest.approx(0.01)
    assert found["short_us"] == pytest.approx(3.15)
    assert found["long_us"] == pytest.approx(3.6)


def test_ratio_is_taken_within_a_round() -> None:
    ours, theirs = [sweep(1, 1.0), sweep(2, 1.0)], [sweep(10, 1.0), sweep(12, 1.0)]
    ratio = script.compare(ours, theirs, 5.0)["ratio"]
    assert (ratio["median"], ratio["least"], ratio["greatest"]) == (8.0, 6.0, 10.0)


def test_each_tools_fastest_cell_is_held_against_the_other_tools_times() -> None:
    ours, theirs = [sweep(1, 1.0, 1.1, 3.0)] * 2, [sweep(1, 1.25, 1.0, 3.0)] * 2
    result = script.compare(ours, theirs, 1.0)
    assert result["fastest"] == {
        "gpushmoo": {"cell": {"x": 0}, "slower_by_the_other": 0.25},
        "kernel_tuner": {"cell": {"x": 1}, "slower_by_the_other": pytest.approx(0.1)},
        "shared_of_ten": 3,
    }
    line = "fastest by gpushmoo: x=0; by kernel_tuner 25.00% slower than its fastest"
    assert line in script.lines(result)


@pytest.mark.parametrize(
    ("ours", "theirs", "complaint"),
    [
        pytest.param([(1, 1.0), (1, 1.0)], [(9, 1.0), (9, 1.1)], None, id="holds"),
        pytest.param([(2, 1.0), (2, 1.0)], [(9, 1.0), (9, 1.1)], "below 5", id="slow"),
        pytest.param([(1, 1.0), (1, 1.2)], [(9, 1.0), (9, 1.1)], "repeats worse", id="unsteady"),
        pytest.param([(1, 1.0), (1, 1.0)], [(9, 1.0, 1.0)] * 2, "different valid", id="cells"),
    ],
)
def test_complaints(
    ours: list[tuple[float, ...]], theirs: list[tuple[float, ...]], complaint: str | None
) -> None:
    result = script.compare([sweep(*s) for s in ours], [sweep(*s) for s in theirs], 5.0)
    found = script.complaints(result)
    assert any(complaint in c for c in found) if complaint else found == []
    assert len(script.lines(result)) == 9
    # One round repeats nothing.
    result = script.compare(*([sweep(*tool[0])] for tool in (ours, theirs)), 5.0)
    assert (result["repeatability"], len(script.lines(result))) == ({}, 7)
    assert not any("repeats" in c for c in script.complaints(result))
    # Sweeps on two devices are no comparison.
    result = script.compare([sweep(1, 1.0, device="A")] * 2, [sweep(9, 1.0, device="B")] * 2, 5.0)
    assert script.complaints(result) == ["the sweeps ran on several devices: A, B"]


# What is swept of a copy, and one cell of it.
BLOCKS = script.SPACES["copy2d_coalesced"].axes
CELL = (("block_x", 32), ("block_y", 8))


def test_kernel_tuner_gives_the_median_of_its_times_in_seconds(tmp_path: Path) -> None:
    file = tmp_path / "sweep.json"
    cell = {"block_x": 32, "block_y": 8, "times_ms": [2.0, 1.0, 30.0]}
    file.write_text(json.dumps({"device": "GPU", "versions": {"cupy": "14"}, "cells": [cell]}))
    found = script.read_kernel_tuner(file, BLOCKS, 3.0)
    assert (found.wall_s, found.device, found.medians) == (3.0, "GPU", {CELL: 2e-3})
    assert found.facts == {"versions": {"cupy": "14"}, "samples": 3}


def test_gpushmoo_gives_its_valid_cells_alone(tmp_path: Path) -> None:
    told = {
        "gpushmoo": "1",
        "device": {"name": "GPU", "runtime": "CUDA", "driver": "13.0"},
        "host": {"python": "3.12"},
        "params": {},
    }
    table = pa.table(
        {
            "status": ["ok", "too_many_threads"],
            "block_x": [32, 64],
            "block_y": [8, 64],
            "median_s": [1e-3, None],
            "samples_s": [[1e-3, 1e-3], []],
        }
    ).replace_schema_metadata({"gpushmoo": json.dumps(told)})
    (tmp_path / "float").mkdir()
    pq.write_table(table, tmp_path / "float/0000-of-0001.parquet")
    found = script.read_shards(tmp_path, BLOCKS, 3.0)
    assert (found.device, found.medians) == ("GPU", {CELL: 1e-3})
    assert found.facts["samples"] == 2


@pytest.mark.parametrize("kernel", script.SPACES)
def test_the_sweep_is_one_shard_of_one_kernel(raw_config: dict[str, Any], kernel: str) -> None:
    asked = script.Asked(kernel, script.SPACES[kernel].axes, 8192, "none")
    update_config(raw_config, script.sweep_config(asked))
    config = load_config(raw_config, ROOT)
    assert [s.path for s in plan_shards(config)] == [f"{kernel}/float/0000-of-0001.parquet"]
    assert config.simulations == config.chapters == {}


def test_a_step_thins_an_axis_and_the_small_sweep_has_its_ends() -> None:
    space = script.SPACES["copy2d_coalesced"]
    assert space.every(2)["block_x"] == list(range(4, 65, 2))
    assert space.ends["block_y"] == [4, 64]


@pytest.fixture
def tuner(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """kernel_tuner_sweep.py, where tune_kernel times no cell and gives back what it was told."""

    def tune_kernel(**told: Any) -> tuple[list[Any], dict[str, Any]]:
        return [], {"device_name": told}

    observers = SimpleNamespace(BenchmarkObserver=object)
    tuner = SimpleNamespace(tune_kernel=tune_kernel, __version__="1.5", observers=observers)
    stubs = {"kernel_tuner": tuner, "kernel_tuner.observers": observers}
    for name, stub in {**stubs, "cupy": SimpleNamespace(__version__="14")}.items():
        monkeypatch.setitem(sys.modules, name, stub)
    return load("kernel_tuner_sweep")


@pytest.mark.parametrize(("kernel", "cells"), [("copy2d_coalesced", 2021), ("transpose", 603)])
def test_kernel_tuner_is_told_of_the_same_launches(
    tuner: ModuleType, kernel: str, cells: int
) -> None:
    """Its restrictions, block and grid, as its manual words them, give what our workload gives."""
    space, size = script.SPACES[kernel], 96
    workload = load_kernel(ROOT / "kernels" / kernel).workload
    told = tuner.sweep(kernel, space.axes, size, "host", Path("cache"))["device"]
    theirs = {}
    for values in product(*told["tune_params"].values()):
        p = dict(zip(told["tune_params"], values, strict=True))
        if all(eval(r, dict(p)) for r in told["restrictions"]):
            grid = [-(-size // p[told[f"grid_div_{d}"][0]]) for d in "xy"]
            theirs[script.point_of(p, space.axes)] = (
                (p[told["block_size_names"][0]], p[told["block_size_names"][1]], 1),
                (*grid, 1),
            )
    ours = {}
    for cell in enumerate_cells(
        kernel, "float", [space.variant], [Problem(size, size)], space.axes
    ):
        if workload.valid(cell) is None and (launch := workload.launch(cell)).threads <= 1024:
            point = script.point_of(dict(cell.params), space.axes)
            ours[point] = (launch.block, launch.grid)
            entry = launch.entry
    assert theirs == ours
    assert (len(ours), told["kernel_name"]) == (cells, entry)
    # Only a source that no axis is compiled into may stay the same, to be compiled once.
    assert ("defines" in told) == (not workload.compile_axes)
    src = told["arguments"][1]
    assert (told["answer"][0] == workload.reference({"src": src})).all()
    assert told["verify"](told["answer"], [told["answer"][0].copy()], atol=None)
    assert not told["verify"](told["answer"], told["arguments"])
