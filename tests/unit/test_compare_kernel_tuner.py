"""What tests/gpu/compare_kernel_tuner.py says about sweeps, and how it reads them; no device."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import ROOT
from gpushmoo.planning.config import load_config
from gpushmoo.planning.plan import plan_shards
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
    """A sweep whose cells (0, 0), (1, 0), … have these medians."""
    return script.Sweep(wall_s, device, {(i, 0): s for i, s in enumerate(seconds)}, {})


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


def test_agreement_is_ours_over_theirs_after_the_median_of_the_passes() -> None:
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


def test_ratio_is_taken_within_a_pass() -> None:
    ours, theirs = [sweep(1, 1.0), sweep(2, 1.0)], [sweep(10, 1.0), sweep(12, 1.0)]
    ratio = script.compare(ours, theirs)["ratio"]
    assert (ratio["median"], ratio["least"], ratio["greatest"]) == (8.0, 6.0, 10.0)


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
    result = script.compare([sweep(*s) for s in ours], [sweep(*s) for s in theirs])
    found = script.complaints(result)
    assert any(complaint in c for c in found) if complaint else found == []
    assert len(script.lines(result)) == 6
    # Sweeps on two devices are no comparison.
    result = script.compare([sweep(1, 1.0, device="A")] * 2, [sweep(9, 1.0, device="B")] * 2)
    assert script.complaints(result) == ["the sweeps ran on several devices: A, B"]


def test_kernel_tuner_gives_the_median_of_its_times_in_seconds(tmp_path: Path) -> None:
    file = tmp_path / "sweep.json"
    cell = {"block_x": 32, "block_y": 8, "times_ms": [2.0, 1.0, 30.0]}
    file.write_text(json.dumps({"device": "GPU", "versions": {"cupy": "14"}, "cells": [cell]}))
    found = script.read_kernel_tuner(file, 3.0)
    assert (found.wall_s, found.device, found.medians) == (3.0, "GPU", {(32, 8): 2e-3})
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
    found = script.read_shards(tmp_path, 3.0)
    assert (found.device, found.medians) == ("GPU", {(32, 8): 1e-3})
    assert found.facts["samples"] == 2


@pytest.mark.parametrize("step", [1, script.WARM_UP_STEP])
def test_the_sweep_is_one_shard_of_one_kernel(raw_config: dict[str, Any], step: int) -> None:
    update_config(raw_config, script.sweep_config(step, 8192))
    config = load_config(raw_config, ROOT)
    assert [s.path for s in plan_shards(config)] == ["copy2d_coalesced/float/0000-of-0001.parquet"]
    assert config.simulations == config.chapters == {}
