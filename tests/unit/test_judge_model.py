"""What the judge of a device's model holds out, and what its bands cover."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType

import numpy as np
import pandas as pd
import pytest
from conftest import ROOT

CACHE_BYTES = 1000


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = spec_from_file_location("judge_holdouts", ROOT / "tests/benchmarks/judge_holdouts.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def cells() -> pd.DataFrame:
    rows = [
        ("block_eq_partition", "float", "warm", 100, 100, 264),
        ("block_eq_partition", "float", "warm", 100, 299, 265),
        ("block_eq_partition", "double", "warm", 200, 200, 1),
        ("global_copy", "float4", "flushed", 100, 100, np.nan),
        ("tex2d_sum", "half", "warm", 1500, 0, np.nan),
        ("tex2d_sum", "float", "warm", 1501, 0, np.nan),
        ("tex2d_sum", "float", "flushed", 9000, 0, np.nan),
    ]
    names = "kernel dtype cache_state bytes_read bytes_written num_partition"
    return pd.DataFrame(rows, columns=names.split())


def test_every_region_is_held_out_whole_and_nothing_else(
    script: ModuleType, cells: pd.DataFrame
) -> None:
    kept = {n: np.flatnonzero(k).tolist() for n, k in script.hold_outs(cells, CACHE_BYTES).items()}
    assert kept == {
        "nothing": [],
        "copies of double": [2],
        "copies of float": [0, 1],
        "copies of float4": [3],
        "kernel block_eq_partition": [0, 1, 2],
        "kernel global_copy": [3],
        "kernel tex2d_sum": [4, 5, 6],
        "num_partition above 264": [1],
        "inside": [0, 1],
        "outside": [5],
        "flushed": [3, 6],
    }
    assert script.regions(cells, CACHE_BYTES)[[2, 4]].tolist() == ["around", "around"]


def test_what_is_the_same_for_all_cells_is_not_held_out(
    script: ModuleType, cells: pd.DataFrame
) -> None:
    one = cells[cells["kernel"] == "tex2d_sum"].drop(columns="num_partition")
    assert set(script.hold_outs(one, CACHE_BYTES)) == {"nothing", "outside", "flushed"}


def test_a_cell_is_learned_from_or_judged_and_never_both(script: ModuleType) -> None:
    training = np.array([True, True, False, False])
    region = np.array([True, False, True, False])
    trained, judged = script.split(training, region)
    assert trained.tolist() == [False, True, False, False]
    assert judged.tolist() == region.tolist()
    trained, judged = script.split(training, np.zeros(4, bool))
    assert trained.tolist() == training.tolist()
    assert judged.tolist() == (~training).tolist()


def test_errors_are_of_the_measured_time_and_of_what_was_predicted(script: ModuleType) -> None:
    # Predicted twice, and half of, what was measured; one cell has no prediction.
    residuals = np.log([1 / 2, 2, np.nan])
    assert script.errors(residuals) == [2, 0.75, 0.975, 1.0]
    assert script.errors(np.array([np.nan])) == [0]


def residuals_of(scales: list[float], each: int, seed: int) -> dict[str, pd.Series]:
    """Regions of `each` cells with normal residuals of these scales, no cell in two of them."""
    draw = np.random.default_rng(seed)
    return {
        f"region {i}": pd.Series(draw.normal(0, s, each), index=range(i * each, (i + 1) * each))
        for i, s in enumerate(scales)
    }


def test_bands_of_like_regions_hold_what_they_promise(script: ModuleType) -> None:
    residuals = residuals_of([0.05] * 6, 4000, seed=1)
    known = residuals_of([0.05], 4000, seed=2)["region 0"]
    found = script.coverage(script.bands(residuals, known, 0.9))
    for kind in ("narrow", "conformal"):
        assert found[kind]["mean_coverage"] == pytest.approx(0.9, abs=0.02)
    assert found["wide"]["mean_coverage"] == pytest.approx(0.91, abs=0.02)


def test_bands_of_known_cells_do_not_hold_in_regions_not_seen(script: ModuleType) -> None:
    residuals = residuals_of([0.02, 0.05, 0.1, 0.12, 0.15, 0.15], 4000, seed=3)
    known = residuals_of([0.02], 4000, seed=4)["region 0"]
    found = script.coverage(script.bands(residuals, known, 0.9))
    assert found["conformal"]["mean_coverage"] < 0.6 < found["narrow"]["mean_coverage"]
    assert found["narrow"]["mean_coverage"] < found["wide"]["mean_coverage"]
    assert found["conformal"]["worst_coverage"] < found["wide"]["worst_coverage"]


def test_a_band_is_not_made_of_the_cells_that_it_is_judged_by(script: ModuleType) -> None:
    residuals = residuals_of([0.01, 0.02, 0.04], 1000, seed=5)
    # The same cells under another name, and far off: they would make every band wide.
    residuals["again"] = residuals["region 2"] + 9
    found = script.bands(residuals, residuals["region 0"], 0.9)
    assert found["region 2"]["wide"]["half_width"] < 0.1
    assert found["region 0"]["wide"]["half_width"] > 0.1


def test_regions_of_a_few_cells_make_no_band(script: ModuleType) -> None:
    residuals = residuals_of([0.01] * 3, script.FEWEST - 1, seed=6)
    assert script.bands(residuals, residuals["region 0"], 0.9) == {}


def test_split_conformal_takes_one_residual_more_than_the_quantile(script: ModuleType) -> None:
    # Of 9, ⌈10 · 0.9⌉ = 9: the largest; of 19 the 18th.
    assert script.conformal_half_width(-np.arange(1.0, 10.0), 0.9) == 9
    assert script.conformal_half_width(np.arange(1.0, 20.0), 0.9) == 18
    assert script.conformal_half_width(np.arange(1.0, 9.0), 0.9) == np.inf
