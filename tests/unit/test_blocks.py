"""What a block costs: the formula, its fit to cells made by it, and the stage."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from conftest import ROOT
from gpushmoo.analysis.models import blocks as blocks_module
from gpushmoo.analysis.models.blocks import (
    LIMITS,
    NAMES,
    NONE,
    BlockFit,
    Blocks,
    Hypothesis,
    fit_blocks,
)
from gpushmoo.analysis.models.footprint import LAYOUTS, footprint
from gpushmoo.analysis.models.shapes import SHAPE_SCHEMA, fit_shapes
from gpushmoo.core.space import Problem, enumerate_cells
from gpushmoo.workloads.loader import load_kernel

UNITS = 132
TRUTH = {
    "launch_s": 80e-9,
    "life_s": 290e-9,
    "warp_s": 6.3e-9,
    "issue_s": 7.7e-9,
    "sector_s": 1.6e-9,
    "overlap": 8.0,
}
WITHOUT_MEMORY = {n: v for n, v in TRUTH.items() if n != "sector_s"}
# One whose warps share sectors, and ask for each of them in vain.
REQUEST_BOUND = {**TRUTH, "issue_s": 3e-9, "request_s": 2.4e-9}
# A kernel whose blocks spend most of their time on sectors.
MEMORY_BOUND = {**TRUTH, "life_s": 100e-9, "warp_s": 2e-9, "issue_s": 3e-9, "sector_s": 3e-9}
SIDES = (4, 5, 8, 12, 16, 22, 32, 45, 64)
WORKLOADS = {
    n: load_kernel(ROOT / "kernels" / n).workload
    for n in ("surf2d_memset", "tex2d_sum", "global_load")
}


def requests(layout: str) -> str:
    """The column of a warp's sectors."""
    return f"{layout}_of_warp"


@cache
def shapes_of(kernel: str = "surf2d_memset") -> pd.DataFrame:
    """Cells of all mappings and many shapes as the dataset has them, without times."""
    workload = WORKLOADS[kernel]
    axes = {"block_x": SIDES, "block_y": SIDES}
    problem = Problem(2048, 2048)
    rows = []
    for cell in enumerate_cells(kernel, "float", workload.mappings, [problem], axes):
        launch = workload.launch(cell)
        touched = footprint(workload, cell)
        if launch.threads > 1024 or touched is None:
            continue
        read, written = workload.bytes_moved(cell)
        rows.append(
            {
                "cell_key": cell.key,
                "kernel": kernel,
                "dtype": "float",
                "variant": cell.variant,
                "height": problem.height,
                "width": problem.width,
                "cache_state": "warm",
                "launch_kind": "back_to_back",
                "device_name": "NVIDIA H200",
                "backend": "cuda",
                "status": "ok",
                "bytes_read": read,
                "bytes_written": written,
                "blocks": launch.blocks,
                "units": UNITS,
                "resident_per_unit": min(32, 64 // touched.warps),
                "threads": launch.threads,
                "warps": touched.warps,
                **{name: t.sectors_per_block for name, t in touched.traffic.items()},
                **{requests(n): t.sectors_per_warp for n, t in touched.traffic.items()},
                **dict(cell.params),
            }
        )
    return pd.DataFrame(rows)


def variant_of(mapping: str) -> str:
    """The surface kernel's variant of this mapping."""
    return next(v for v in WORKLOADS["surf2d_memset"].mappings if v.startswith(mapping))


def blocks_of(rows: pd.DataFrame) -> Blocks:
    columns = (rows[n].to_numpy() for n in ("blocks", "threads", "warps", "resident_per_unit"))
    return Blocks(
        UNITS,
        *columns,
        {name: (rows[requests(name)] * rows["warps"]).to_numpy() for name in LAYOUTS},
        {name: rows[name].to_numpy() for name in LAYOUTS},
    )


def measured(
    truth: Mapping[str, float],
    layout: str,
    seed: int = 0,
    noise: float = 0.01,
    kernel: str = "surf2d_memset",
) -> pd.DataFrame:
    """The cells with times that the formula gives, and noise."""
    rows = shapes_of(kernel)
    rng = np.random.default_rng(seed)
    times = blocks_of(rows).total_s(truth, layout) * np.exp(noise * rng.standard_normal(len(rows)))
    return rows.assign(median_s=times)


def fitted(truth: Mapping[str, float], layout: str, seed: int = 0, noise: float = 0.01) -> BlockFit:
    return _fitted(tuple(truth.items()), layout, seed, noise)


@cache
def _fitted(truth: tuple[tuple[str, float], ...], layout: str, seed: int, noise: float) -> BlockFit:
    rows = measured(dict(truth), layout, seed, noise)
    return fit_blocks(blocks_of(rows), rows["median_s"].to_numpy(), 0.25, seed)


# The formula


def one(warps: int = 8, resident: int = 4, sectors: float = 50.0, blocks: int = 1320) -> Blocks:
    counts = (np.array([n]) for n in (blocks, 32 * warps, warps, resident))
    of_warps = {"rows": np.array([1.5 * sectors]), "tiled": np.array([3 * sectors])}
    return Blocks(
        UNITS, *counts, of_warps, {"rows": np.array([sectors]), "tiled": np.array([2 * sectors])}
    )


def test_limits_are_what_they_say() -> None:
    values = {
        "launch_s": 3.0,
        "life_s": 10.0,
        "warp_s": 0.25,
        "issue_s": 0.5,
        "request_s": 0.02,
        "sector_s": 0.01,
        "overlap": 1.0,
    }
    found = {n: float(v[0]) for n, v in one().limits(values, "tiled").items()}
    assert found == {
        "launch": 3.0,
        "residency": 3.0,
        "issue": 4.0,
        "requests": 3.0,
        "memory": 1.0,
    }
    rows = one().limits(values, "rows")
    assert (float(rows["requests"][0]), float(rows["memory"][0])) == (1.5, 0.5)
    # Ten blocks for each multiprocessor, which cost the sum of all limits each.
    assert one().total_s(values, "tiled") == pytest.approx(10 * 14.0)
    assert one().dominant(values, "tiled") == ["issue"]


def test_with_much_overlap_the_largest_limit_alone_counts() -> None:
    values = {**TRUTH, "overlap": 32.0}
    assert one(sectors=1e4).total_s(values, "tiled") == pytest.approx(10 * 2e4 * 1.6e-9)
    assert one(sectors=1e4).dominant(values, "tiled") == ["memory"]
    assert one(warps=1, resident=32, sectors=1).dominant(values, "tiled") == ["launch"]
    assert one(warps=22, resident=2, sectors=1).dominant(values, "tiled") == ["residency"]
    # Limits without parameters are absent; extremes neither overflow nor vanish.
    assert set(one().limits(WITHOUT_MEMORY, NONE)) == {"launch", "residency", "issue"}
    assert one().total_s({"launch_s": 2.0, "overlap": 3.0}, NONE) == pytest.approx(20.0)
    for overlap in (1.0, 32.0):
        values = {**TRUTH, "overlap": overlap, "sector_s": 1e-30, "life_s": 1e3}
        assert np.isfinite(one().total_s(values, "tiled")).all()


@pytest.mark.parametrize(
    "free", [NAMES, tuple(TRUTH), tuple(WITHOUT_MEMORY), ("life_s", "warp_s", "overlap")]
)
def test_derivatives_are_those_of_the_residuals(free: Sequence[str]) -> None:
    rows = measured(TRUTH, "tiled")
    seconds = rows["median_s"].to_numpy()
    seen = blocks_module._Seen(blocks_of(rows), seconds, "tiled", list(free))
    x = np.array([2.5 if n == "overlap" else 1.2 for n in free])
    found = seen.jacobian(x)
    for i in range(len(free)):
        step = np.zeros(len(free))
        step[i] = 1e-6
        slope = (seen.residuals(x + step) - seen.residuals(x - step)) / 2e-6
        assert found[:, i] == pytest.approx(slope, abs=1e-7)


# The fit


@pytest.mark.parametrize("seed", [0, 10])
def test_known_parameters_are_recovered_and_each_limit_is_missed(seed: int) -> None:
    fit = fitted(TRUTH, "tiled", seed)
    assert fit.best == "tiled"
    found = fit.hypotheses["tiled"]
    assert found.converged
    within = {"launch_s": 0.01, "life_s": 0.1, "warp_s": 0.2, "issue_s": 0.03, "sector_s": 0.02}
    for name, rel in {**within, "overlap": 0.3}.items():
        assert found.values[name] == pytest.approx(TRUTH[name], rel=rel), name
    assert found.held_out.median < 0.012
    assert found.held_out.p95 < 0.03
    # Requests, which made no times, cost no parameter.
    assert "request_s" not in found.estimates
    assert set(fit.without) == set(LIMITS) - {"requests"}
    for limit, other in fit.without.items():
        assert not set(LIMITS[limit]) & set(other.values)
        assert other.train.p95 > 1.5 * found.train.p95, limit


def test_fit_of_exact_data_is_exact() -> None:
    found = fitted(TRUTH, "tiled", noise=0.0).hypotheses["tiled"]
    assert found.values == pytest.approx(TRUTH, rel=1e-4)


def test_intervals_cover_the_truth_about_as_often_as_they_say() -> None:
    covered = []
    for seed in range(10, 14):
        for name, e in fitted(TRUTH, "tiled", seed).hypotheses["tiled"].estimates.items():
            assert e.identified
            covered.append(e.low <= TRUTH[name] <= e.high)
    assert np.mean(covered) > 0.8


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_layout_that_made_the_times_explains_them_best(layout: str) -> None:
    fit = fitted(MEMORY_BOUND, layout)
    assert fit.best == layout
    errors = {n: h.held_out.p95 for n, h in fit.hypotheses.items() if h.held_out is not None}
    assert set(errors) == {NONE, "rows", "tiled"}
    assert all(e > 2 * errors[layout] for n, e in errors.items() if n != layout)
    assert f"'{layout}' show" in fit.reason
    assert fit.without["memory"] == fit.hypotheses[NONE]


def test_without_a_memory_term_the_simplest_hypothesis_wins() -> None:
    fit = fitted(WITHOUT_MEMORY, NONE)
    assert fit.best == NONE
    assert "do not show" in fit.reason
    assert set(fit.without) == {"launch", "residency", "issue"}
    assert "sector_s" not in fit.hypotheses[NONE].estimates
    assert set(blocks_of(shapes_of()).dominant(fit.hypotheses[NONE].values, NONE)) == {
        "launch",
        "residency",
        "issue",
    }


def test_requests_of_warps_are_believed_where_they_made_the_times() -> None:
    fit = fitted(REQUEST_BOUND, "tiled")
    found = fit.hypotheses["tiled"]
    assert fit.best == "tiled"
    assert found.values["request_s"] == pytest.approx(REQUEST_BOUND["request_s"], rel=0.02)
    assert set(fit.without) == set(LIMITS)
    assert fit.without["requests"].judged.p95 > 2 * found.judged.p95
    limits = blocks_of(shapes_of()).dominant(found.values, "tiled")
    assert limits.count("requests") > len(limits) / 4
    # Estimates name every parameter.
    assert list(found.estimates) == list(NAMES)
    assert set(NAMES) == set(blocks_module.UNITS) == set(REQUEST_BOUND)
    assert all(
        set(asdict(e)) == {"value", "low", "high", "identified"} for e in found.estimates.values()
    )


def test_a_layout_that_does_as_well_is_named_beside_the_best() -> None:
    rows = measured(MEMORY_BOUND, "tiled")
    both = replace(blocks_of(rows), sectors={n: rows["tiled"].to_numpy() for n in LAYOUTS})
    fit = fit_blocks(both, rows["median_s"].to_numpy(), 0.25, 1)
    assert fit.best in LAYOUTS
    assert all(name in fit.reason for name in LAYOUTS)


def test_whole_numbers_of_threads_are_held_out_and_the_extremes_are_not() -> None:
    rows = measured(TRUTH, "tiled")
    held = rows.assign(held=fitted(TRUTH, "tiled").held_out).groupby("threads")["held"]
    assert (held.nunique() == 1).all()
    assert 0.2 < held.first().mean() < 0.3
    assert not held.first().iloc[[0, -1]].any()


def test_fit_is_deterministic_and_its_split_follows_the_seed() -> None:
    rows = measured(TRUTH, "tiled")
    cells, seconds = blocks_of(rows), rows["median_s"].to_numpy()
    a, b = fitted(TRUTH, "tiled"), fit_blocks(cells, seconds, 0.25, 0)
    assert a.hypotheses == b.hypotheses
    assert (a.held_out == b.held_out).all()
    assert (a.held_out != fitted(TRUTH, "tiled", 10).held_out).any()


def test_without_held_out_cells_the_seen_ones_decide_and_outliers_do_not_bend_the_fit() -> None:
    rows = measured(TRUTH, "tiled")
    seconds = rows["median_s"].to_numpy().copy()
    seconds[::50] *= 2.0
    fit = fit_blocks(blocks_of(rows), seconds, 0.0, 1)
    found = fit.hypotheses["tiled"]
    assert found.values["sector_s"] == pytest.approx(TRUTH["sector_s"], rel=0.02)
    assert found.values["launch_s"] == pytest.approx(TRUTH["launch_s"], rel=0.02)
    rows = measured(MEMORY_BOUND, "tiled")
    fit = fit_blocks(blocks_of(rows), rows["median_s"].to_numpy(), 0.0, 1)
    found = fit.hypotheses["tiled"]
    assert fit.best == "tiled"
    assert found.held_out is None
    assert found.judged == found.train


@pytest.mark.parametrize("n", [0, 1, 6])
def test_too_few_cells_are_reported(n: int) -> None:
    rows = measured(TRUTH, "tiled").iloc[:n]
    fit = fit_blocks(blocks_of(rows), rows["median_s"].to_numpy(), 0.0, 1)
    assert fit.best is None
    assert f"{n} points are too few for 5 parameters" in fit.reason
    assert not any(h.converged or h.values for h in fit.hypotheses.values())
    assert fit.without == {}


def test_a_memory_term_may_lack_points_that_the_rest_has() -> None:
    rows = measured(TRUTH, "tiled").iloc[::30].iloc[:7]
    fit = fit_blocks(blocks_of(rows), rows["median_s"].to_numpy(), 0.0, 1)
    assert fit.hypotheses[NONE].converged
    assert fit.best == NONE
    assert "too few" in fit.hypotheses["tiled"].message


def test_optimiser_that_does_not_converge_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def stuck(_: Any, start: Any, **options: Any) -> Any:
        return SimpleNamespace(status=0, x=start, cost=1.0, message="evaluations exceeded")

    monkeypatch.setattr(blocks_module.scipy.optimize, "least_squares", stuck)
    rows = measured(TRUTH, "tiled")
    fit = fit_blocks(blocks_of(rows), rows["median_s"].to_numpy(), 0.25, 0)
    assert fit.best is None
    assert "evaluations exceeded" in fit.reason


def test_where_only_a_memory_term_converges_it_is_believed() -> None:
    good = fitted(MEMORY_BOUND, "tiled").hypotheses
    bad = Hypothesis(False, "stopped", {}, {}, None, None)
    best, reason = blocks_module._choose({**good, NONE: bad})
    assert best == "tiled"
    assert "unknown without them" in reason


# The stage


def stage(cells: pd.DataFrame, folder: Path) -> tuple[dict[str, Any], pd.DataFrame]:
    fit_shapes(cells, WORKLOADS, 0.25, 1, folder / "s.json", folder / "s.parquet")
    assert pq.read_schema(folder / "s.parquet").remove_metadata() == SHAPE_SCHEMA
    return json.loads((folder / "s.json").read_text()), pd.read_parquet(folder / "s.parquet")


@pytest.fixture(scope="module")
def cells() -> pd.DataFrame:
    """Of both kernels; the axes of another kernel are null."""
    memory = measured(MEMORY_BOUND, "tiled")
    texture = measured(WITHOUT_MEMORY, NONE, kernel="tex2d_sum")
    both = pd.concat([memory, texture], ignore_index=True).assign(unroll=np.nan)
    return both.drop(columns=["threads", "warps", *LAYOUTS, *map(requests, LAYOUTS)])


@pytest.fixture(scope="module")
def staged(
    cells: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, Any], pd.DataFrame]:
    """What the stage made of the cells."""
    return stage(cells, tmp_path_factory.mktemp("stage"))


def test_stage_fits_each_series_and_says_what_it_found(
    staged: tuple[dict[str, Any], pd.DataFrame],
) -> None:
    found, table = staged
    assert found["left_out"] == []
    surface, texture = found["fits"]
    assert (surface["kernel"], texture["kernel"]) == ("surf2d_memset", "tex2d_sum")
    assert (surface["best"], texture["best"]) == ("tiled", NONE)
    assert (surface["dtype"], surface["height"], surface["units"]) == ("float", 2048, UNITS)
    sector = surface["hypotheses"]["tiled"]["parameters"]["sector_s"]
    assert sector["value"] == pytest.approx(MEMORY_BOUND["sector_s"], rel=0.03)
    assert sector["low"] < sector["value"] < sector["high"]
    assert sector["unit"] == "s"
    assert set(surface["without"]) == set(LIMITS) - {"requests"}
    for fit in (surface, texture):
        assert fit["points"] == (table["kernel"] == fit["kernel"]).sum()
        assert set(fit["mappings"]) == set(WORKLOADS[fit["kernel"]].mappings)
        for mapping in fit["mappings"].values():
            assert sum(mapping["limits"].values()) == pytest.approx(1)
            assert abs(mapping["bias"]) < 0.02
        assert abs(fit["worst"]["error"]) < 0.06
    row, tile = (surface["mappings"][variant_of(m)]["limits"] for m in ("row", "tile8"))
    assert row["memory"] > 1.2 * tile["memory"]


def test_table_stands_beside_what_was_measured(
    cells: pd.DataFrame, staged: tuple[dict[str, Any], pd.DataFrame]
) -> None:
    _, table = staged
    both = table.merge(cells, on="cell_key", suffixes=("", "_cell"))
    assert len(both) == len(table) == len(cells)
    assert (both["measured_s"] == both["median_s"]).all()
    assert (both["block_x"] == both["block_x_cell"]).all()
    assert (both["threads"] == both["block_x"] * both["block_y"]).all()
    error = both["predicted_s"] / both["measured_s"] - 1
    assert error.abs().median() < 0.02
    assert both["measured_gbs"].to_numpy() == pytest.approx(
        2048**2 * 4e-9 / both["measured_s"].to_numpy()
    )
    plain = both[(both["block_x"] == 16) & (both["block_y"] == 16)]
    row = plain[plain["variant"] == variant_of("row")].iloc[0]
    assert (row["tiled_sectors_per_warp"], row["rows_sectors_per_warp"]) == (8, 4)
    assert set(table["limit"]) <= set(LIMITS)


def test_cells_that_say_nothing_are_left_out(cells: pd.DataFrame, tmp_path: Path) -> None:
    mine = cells[cells["kernel"] == "tex2d_sum"].copy()
    wrong = mine.iloc[:5].assign(status="wrong_result", cell_key="w")
    linear = mine.iloc[:5].assign(variant="block-linear-clamp", cell_key="l")
    other = mine.iloc[:5].assign(kernel="global_load", cell_key="g")
    _, table = stage(pd.concat([mine, wrong, linear, other]), tmp_path)
    assert set(table["cell_key"]) == set(mine["cell_key"])


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"backend": "opencl"}, "opencl does not tell how many blocks"),
        ({"resident_per_unit": None}, "no cell tells how many blocks"),
        ({}, "which element a thread takes"),
    ],
)
def test_series_that_cannot_be_fitted_are_left_out_with_a_reason(
    cells: pd.DataFrame,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: dict[str, Any],
    why: str,
) -> None:
    if not change:
        monkeypatch.setattr(type(WORKLOADS["surf2d_memset"]), "texels", lambda *_: None)
    mine = cells[cells["kernel"] == "surf2d_memset"].assign(**change)
    found, table = stage(mine, tmp_path)
    assert found["fits"] == []
    (left,) = found["left_out"]
    assert why in left["why"]
    assert (left["kernel"], left["width"]) == ("surf2d_memset", 2048)
    assert table.empty


def test_a_series_too_short_keeps_its_rows_without_predictions(
    cells: pd.DataFrame, tmp_path: Path
) -> None:
    found, table = stage(cells.iloc[:4], tmp_path)
    (fit,) = found["fits"]
    assert fit["best"] is None
    assert "too few" in fit["reason"]
    assert (fit["mappings"], fit["worst"], fit["without"]) == ({}, None, {})
    assert len(table) == 4
    assert table[["predicted_s", "predicted_gbs", "limit"]].isna().all(axis=None)
