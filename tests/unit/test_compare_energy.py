"""What tests/gpu/compare_energy.py says of two measurements of energy, and the H200's cells."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from conftest import ROOT
from gpushmoo.core.energy_schema import ENERGY_SCHEMA
from gpushmoo.storage.store import write_parquet
from gpushmoo.studies import energy
from test_compare_kernel_tuner import load

script = load("compare_energy")

CELLS = ROOT / "tests/gpu/energy_cells_h200.json"


def row(key: str, watts: list[float], dtype: str = "float") -> dict[str, Any]:
    """A cell that moves 2 GB/s in windows of one second; J/GB is half of the watts."""
    return {
        "cell_key": key,
        "kernel": "copy2d_coalesced",
        "dtype": dtype,
        "height": 64,
        "width": 32,
        "params": f"block_x={len(key)} block_y=4",
        "window_j": watts,
        "window_s": [1.0] * len(watts),
        "window_gbs": [2.0] * len(watts),
        "joules_per_gb": sum(watts) / len(watts) / 2,
        "gbs": 2.0,
    }


def tuned(**joules_per_gb: float) -> dict[str, Any]:
    return {k: {"joules_per_gb": j, "power_w": 1.0, "gbs": 2.0} for k, j in joules_per_gb.items()}


def test_rounds_decide_by_pairs_where_their_common_drift_is_larger() -> None:
    a, b = row("a", [100.0, 110.0, 120.0]), row("b", [101.0, 111.2, 121.1])
    assert (script.decided(a, b), script.decided(b, a)) == (-1, 1)
    assert script.decided(a, row("c", [101.0, 108.0, 122.0])) == 0
    assert script.decided(row("a", [100.0]), row("b", [200.0])) == 0


def test_tau_counts_pairs_in_order_less_those_that_are_not() -> None:
    assert script.tau([(1, 1), (2, 2), (3, 3)]) == 1
    assert script.tau([(1, 3), (2, 2), (3, 1)]) == -1
    assert script.tau([(1, 1), (2, 3), (3, 2)]) == pytest.approx(1 / 3)
    assert script.tau([(1, 1), (2, 1)]) == 0
    assert script.tau([(1, 1)]) is None


def test_a_decided_pair_in_the_other_order_is_named_and_an_open_one_is_not() -> None:
    rows = [row("a", [100.0, 100.1]), row("bb", [150.0, 150.1]), row("ccc", [150.0, 150.3])]
    result = script.compared(rows, tuned(a=75.0, bb=70.0, ccc=80.0))
    found = result["agreement"]["float"]
    assert (found["pairs"], found["not_decided"], found["cells"]) == (3, 1, 3)
    [opposed] = found["opposed"]
    assert opposed["cells"] == [
        "float 64x32 block_x=1 block_y=4",
        "float 64x32 block_x=2 block_y=4",
    ]
    assert opposed["gpushmoo"] == pytest.approx(-1 / 3, abs=1e-3)
    assert opposed["kernel_tuner"] == pytest.approx(75 / 70 - 1)
    assert any("of 2 pairs that our rounds decide 1 stand" in line for line in script.lines(result))


def test_cells_that_only_one_side_has_are_not_compared() -> None:
    result = script.compared([row("a", [1.0, 1.0]), row("b", [1.0, 2.0])], tuned(a=1.0, z=2.0))
    assert [c["row"]["cell_key"] for c in result["cells"]] == ["a"]
    assert result["agreement"]["all"]["tau"] is None


def test_our_side_is_read_from_the_studys_table(tmp_path: Path) -> None:
    good = {f.name: [] if pa.types.is_list(f.type) else 1 for f in ENERGY_SCHEMA}
    texts = {f.name: "x" for f in ENERGY_SCHEMA if f.type == pa.string()}
    good |= texts | {"kernel": "copy2d_coalesced", "message": None, "throttled": False}
    rows = [good, good | {"message": "failed"}, good | {"kernel": "global_load"}]
    write_parquet(pa.Table.from_pylist(rows, ENERGY_SCHEMA), tmp_path / "e.parquet", {"plan": {}})
    found, metadata = script.read_rows(tmp_path / "e.parquet")
    assert [r["message"] for r in found] == [None]
    assert metadata["plan"] == {}


def test_the_cells_for_an_h200_are_some_that_their_kernels_have() -> None:
    chosen = energy.read_cells(CELLS)
    folders = energy.named_folders({one.cell.kernel for one in chosen})
    for one in chosen:
        workload = folders[one.cell.kernel].workload
        energy.check_cell(one, workload)
        assert workload.footprint(one.cell.problem, one.cell.dtype) <= 4 * 2**30
    assert len({one.cell.key for one in chosen}) == len(chosen)
    copies = [c.cell for c in chosen if c.cell.kernel == script.KERNEL]
    assert {dtype: sum(c.dtype == dtype for c in copies) for dtype in ("float", "float4")} == {
        "float": 8,
        "float4": 8,
    }
    assert script.params_of({"params": "block_x=64 block_y=4"}) == {"block_x": 64, "block_y": 4}
    assert json.loads(CELLS.read_text(encoding="utf-8"))["sha256"]
