"""The simulated device against the measured one of its name, on the recorded cells of an H200."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from conftest import ROOT, record
from gpushmoo.analysis.aggregate import aggregate
from gpushmoo.storage.store import read_table
from matplotlib.figure import Figure
from tesla_c1060.figures.simulated import same_machine
from tesla_c1060.pages import same_machine_page
from tesla_c1060.simulation.compare_measured import compare_with_measured, points, predicted_gbs
from tesla_c1060.simulation.machine import Level, Machine, Tiling, load_machine
from tesla_c1060.simulation.run import SAME_MACHINE_SCHEMA, simulate_tiles
from test_figures import assert_readable

DEVICE = ROOT / "reports/chapters/tesla_c1060/devices" / "nvidia-h200.yaml"


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recorded cells of block_eq_partition."""
    out = tmp_path_factory.mktemp("recorded") / "dataset"
    folders = (record(f"nvidia-h200/block_eq_partition/{name}") for name in ("float", "double"))
    aggregate([path for folder in folders for path in sorted(folder.glob("*.parquet"))], out)
    return out


@pytest.fixture(scope="module")
def machine() -> Machine:
    return load_machine(DEVICE)


@pytest.fixture(scope="module")
def compared(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    out = tmp_path_factory.mktemp("compared") / "points.parquet"
    asked = {"file": DEVICE, "levels": ["partitions", "banks"]}
    compare_with_measured(asked, dataset, out, 2)
    return read_table(out, SAME_MACHINE_SCHEMA).to_pandas()


def test_every_point_has_its_error(compared: pd.DataFrame) -> None:
    wanted = [1, 2, 4, 8, 16, 32, 132, 264, 265, 528, 529, 1056]
    for _, part in compared.groupby(["level", "dtype"]):
        assert list(part["num_partition"]) == wanted
    again = compared["simulated_gbs"] / compared["measured_gbs"] - 1
    assert (again - compared["error"]).abs().max() < 1e-12


def test_the_doubling_law_is_predicted(compared: pd.DataFrame) -> None:
    few = compared[(compared["num_partition"] <= 32) & (compared["level"] == "banks")]
    assert few["error"].abs().max() < 0.12
    for _, part in few.groupby("dtype"):
        for column in ("measured_gbs", "simulated_gbs"):
            gains = part[column].to_numpy()[1:] / part[column].to_numpy()[:-1]
            assert gains == pytest.approx(2, rel=0.07)


def test_the_cliff_at_529_blocks_is_predicted(compared: pd.DataFrame) -> None:
    """A block more than the device holds waits for a second wave."""
    banks = compared[compared["level"] == "banks"].set_index(["dtype", "num_partition"])
    for dtype in ("float", "double"):
        fall = {
            column: banks.loc[(dtype, 529), column] / banks.loc[(dtype, 528), column]
            for column in ("measured_gbs", "simulated_gbs")
        }
        assert fall["measured_gbs"] < 0.8
        assert fall["simulated_gbs"] == pytest.approx(fall["measured_gbs"], abs=0.05)


def test_banks_predict_better_than_partitions_alone(compared: pd.DataFrame) -> None:
    median = compared["error"].abs().groupby(compared["level"]).median()
    assert median["banks"] < median["partitions"] < 0.13
    assert median["banks"] < 0.11


def test_some_tiles_of_each_block_tell_the_time_of_all(machine: Machine) -> None:
    """The steady state that the prediction relies on, on a smaller device."""
    small = replace(machine, n_sm=4, partitions=8, bus_bytes=32)
    tiling = Tiling.partition_wide(small, 1024, 4)
    [point] = [p for p in _points(small, tiling) if p.blocks == 8]
    whole = simulate_tiles(small, tiling, 8, Level.BANKS).drained_bandwidth_gbs
    assert predicted_gbs(small, point, Level.BANKS) == pytest.approx(whole, rel=0.02)


def _points(machine: Machine, tiling: Tiling) -> list[Any]:
    rows = [
        {
            "kernel": "block_eq_partition",
            "device_name": machine.name,
            "status": "ok",
            "variant": variant,
            "dtype": "float",
            "width": width,
            "height": width,
            "cache_state": state,
            "launch_kind": "back_to_back",
            "num_partition": blocks,
            "bandwidth_gbs": float(blocks + (state == "warm")),
        }
        for variant in ("exact", "reciprocal")
        for width in (tiling.width // 2, tiling.width)
        for state in ("warm", "flushed")
        for blocks in (1, 3, 4, 8, 16)
    ]
    return points(machine, pd.DataFrame(rows))


def test_points_are_of_the_largest_size_and_the_documents_variant(machine: Machine) -> None:
    small = replace(machine, n_sm=4)
    found = _points(small, Tiling.partition_wide(small, 1024, 4))
    # Three blocks are neither a doubling nor a multiple of the device.
    assert [p.blocks for p in found] == [1, 4, 8, 16]
    assert all(p.tiling.width == 1024 for p in found)
    # Of two states the flushed one.
    assert [p.measured_gbs for p in found] == [1.0, 4.0, 8.0, 16.0]


def test_another_device_has_nothing_to_compare(dataset: Path, tmp_path: Path) -> None:
    c1060 = ROOT / "reports/chapters/tesla_c1060/devices" / "tesla-c1060.yaml"
    asked = {"file": c1060, "levels": ["bus"]}
    compare_with_measured(asked, dataset, tmp_path / "none.parquet", 1)
    empty = pd.read_parquet(tmp_path / "none.parquet")
    assert empty.empty
    same_machine(empty, tmp_path / "none.svg")


def test_figure_and_page_tell_the_errors(
    compared: pd.DataFrame, drawn: list[Figure], tmp_path: Path
) -> None:
    same_machine(compared, tmp_path / "x.svg")
    assert_readable(drawn[0])
    caption = json.loads((tmp_path / "x.json").read_text())["caption"]
    median = compared[compared["level"] == "banks"]["error"].abs().median()
    assert f"off by less than {100 * median:.1f} %" in caption
    assert "From 528 to 529 blocks float falls to 67 % measured" in caption
    page = same_machine_page(compared)
    assert page["dtypes"] == ["float", "double"]
    assert [r["blocks"] for r in page["rows"]][-3:] == ["528", "529", "1056"]
    assert all(len(r["cells"]) == 8 for r in page["rows"])
