"""The formula of persistent blocks and its fit, on cells of a known device and of a real one."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from conftest import record
from gpushmoo.analysis.aggregate import aggregate
from gpushmoo.core.schema import GROUP
from gpushmoo.model.fit import COLUMNS, fit_partitions, partition_table, seconds
from gpushmoo.model.fit_stage import DEVICE_MODEL_SCHEMA
from gpushmoo.storage.dataset import read_cells

UNITS, RESIDENT, TILES = 132, 4, 131072
CAPACITY = UNITS * RESIDENT
# Seconds before the first tile, of a tile, and of the bus for it; how far both overlap.
TRUTH = (6e-6, 1.3e-6, 4e-9, 3.0)
BLOCKS = np.array(
    sorted({*range(1, 33), *range(16, 1057, 16), *(132 * k for k in range(1, 9)), 529, 1056})
)


def took(blocks: Any, tiles: int = TILES, capacity: int = CAPACITY, *values: float) -> Any:
    return seconds(np.asarray(blocks, np.float64), tiles, capacity, *(values or TRUTH))


def cells(blocks: Any = BLOCKS, noise: float = 0.01, seed: int = 1, **others: Any) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    plain = {"kernel": "k", "dtype": "float", "variant": "v", "height": 8192, "width": 8192}
    plain |= {"cache_state": "warm", "timing_mode": "batched", "device_name": "d"}
    plain |= {"status": "ok", "tiles": TILES, "multiprocessors": UNITS, "resident_blocks": RESIDENT}
    plain |= {"bytes_read": 2**28, "bytes_written": 2**28}
    times = took(blocks) * np.exp(noise * rng.standard_normal(len(blocks)))
    table = pd.DataFrame({"blocks": blocks, "median_s": times, "cell_key": map(str, blocks)})
    return table.assign(**plain | others)


def test_tiles_are_taken_in_turn_and_further_blocks_wait_for_a_wave() -> None:
    assert took([1], TILES, CAPACITY, 5e-6, 1e-6, 0.0, 2.0) == pytest.approx(5e-6 + TILES * 1e-6)
    few = took([6, 7, 1000], 6, 8)
    assert (few == few[0]).all()
    assert took([529]) > 1.15 * took([528])
    # The first document's step from 30 to 32 blocks is the same rule.
    assert took([32], 1024, 30) > 1.3 * took([30], 1024, 30)


@pytest.mark.parametrize("seed", range(3))
def test_known_parameters_are_found_again_and_points_left_out_predicted(seed: int) -> None:
    [(fit, table)] = fit_partitions(cells(seed=seed))
    assert fit["fitted"] + fit["left_out"] == len(BLOCKS)
    assert fit["left_out"] == pytest.approx(len(BLOCKS) / 4, abs=1)
    assert fit["errors"]["median"] < 0.015
    assert fit["errors"]["worst"] < 0.06
    for name, truth, rel in zip(
        ("tile_s", "bus_s", "overlap"), TRUTH[1:], (0.03, 0.06, 0.3), strict=True
    ):
        assert fit["values"][name] == pytest.approx(truth, rel=rel)
        assert fit["half_widths"][name] < fit["values"][name]
    assert table["trained"].sum() == fit["fitted"]


def test_an_outlier_does_not_bend_the_curve_and_untold_occupancy_is_one_block() -> None:
    bent = cells()
    bent.loc[40, "median_s"] *= 3
    [(fit, _)] = fit_partitions(bent)
    assert fit["values"]["bus_s"] == pytest.approx(TRUTH[2], rel=0.05)
    blocks = np.arange(1, 41)
    told = cells(blocks, multiprocessors=8).assign(median_s=took(blocks, TILES, 8))
    for untold in (told.assign(resident_blocks=1), told.assign(resident_blocks=None)):
        [(fit, _)] = fit_partitions(untold)
        assert fit["errors"]["worst"] < 0.01


def test_too_few_points_say_so_and_the_table_is_the_models() -> None:
    few = cells(np.arange(1, 8))
    [(fit, rows)] = fit_partitions(few)
    assert fit["why"] == "7 points are too few for 4 parameters"
    assert rows.empty
    [(eight, _)] = fit_partitions(cells(np.arange(1, 9)))
    assert "values" in eight
    assert partition_table(few).empty
    assert fit_partitions(cells(status="wrong_result")) == []
    table = partition_table(cells())
    assert list(table) == list(COLUMNS)
    assert set(COLUMNS) <= set(DEVICE_MODEL_SCHEMA.names)
    assert table["measured_gbs"].iloc[0] == pytest.approx(2**29 / cells()["median_s"][0] * 1e-9)


def test_a_real_gpus_points_are_predicted(tmp_path_factory: pytest.TempPathFactory) -> None:
    dataset = tmp_path_factory.mktemp("recorded") / "dataset"
    aggregate(sorted(record("nvidia-h200/block_eq_partition").rglob("*.parquet")), dataset)
    # Far outside the L2 cache.
    fits = fit_partitions(read_cells(dataset, {"height": 8192, "cache_state": "warm"}))
    assert len(fits) == 8
    assert all(set(GROUP) <= set(fit) and fit["errors"]["median"] < 0.03 for fit, _ in fits)
