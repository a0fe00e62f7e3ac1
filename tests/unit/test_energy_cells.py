"""Which cells of a run have their energy measured."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from gpushmoo.analysis.aggregate import aggregate
from gpushmoo.analysis.best import best_table, write_best
from gpushmoo.analysis.ceiling import write_ceiling
from gpushmoo.analysis.edges import Limits
from gpushmoo.analysis.energy_cells import energy_cells, write_energy_cells
from gpushmoo.core.space import Problem
from gpushmoo.storage.dataset import read_cells
from gpushmoo.studies import energy
from synthetic import write_shard
from test_advice import group

TIMES = {
    (64, 4): 1.0,
    (32, 8): 1.0005,
    (16, 64): 1.0008,
    (256, 1): 1.03,
    (16, 16): 1.05,
    (8, 8): 1.4,
}


def roles(*groups: pd.DataFrame) -> dict[tuple[int, tuple[int, ...]], str]:
    cells = pd.concat(groups, ignore_index=True)
    found = energy_cells(cells, best_table(cells).to_pandas())
    return {(c.cell.problem.height, tuple(dict(c.cell.params).values())): c.role for c in found}


def test_the_best_the_least_like_it_and_the_usual_blocks_are_chosen() -> None:
    assert roles(group(TIMES)) == {
        (8192, (64, 4)): "fastest",
        (8192, (16, 64)): "tied, least like it",
        (8192, (32, 8)): "32 × 8",
        (8192, (256, 1)): "256 × 1",
        (8192, (16, 16)): "16 × 16",
    }


def test_in_cache_the_best_there_and_what_memory_advises_are_chosen() -> None:
    inside = group({(32, 8): 0.02, (64, 4): 0.03}, side=1024)
    found = roles(group(TIMES), inside)
    assert found[1024, (32, 8)] == "fastest in cache"
    # Of the tied ones for memory the one that loses least in cache.
    assert found[8192, (32, 8)] == "advised"


def test_a_kernel_without_usual_blocks_has_one_of_median_speed() -> None:
    renamed = {"block_x": "P", "block_y": "Q"}
    found = roles(group({(1, 1): 1.0, (2, 1): 1.5, (3, 1): 2.0}).rename(columns=renamed))
    assert found == {(8192, (1, 1)): "fastest", (8192, (2, 1)): "median"}


def test_what_moves_nothing_and_what_is_flushed_is_not_chosen() -> None:
    nothing = group(TIMES, kernel="n", bytes_read=0, bytes_written=0)
    assert roles(nothing, group(TIMES, cache_state="flushed")) == {}


@pytest.mark.parametrize(("left_out", "controls"), [([], {}), (["copy2d_coalesced"], {})])
def test_the_file_holds_cells_of_the_run_by_their_keys(
    left_out: list[str], controls: dict[str, list[str]], tmp_path: Path
) -> None:
    axes = {"block_x": [16, 32, 64], "block_y": [4, 8, 16]}
    options = {"problems": [Problem(2048, 2048)], "variants": ["element"]}
    shard = write_shard(tmp_path / "s.parquet", "copy2d_coalesced", "float", axes=axes, **options)
    aggregate([shard], tmp_path / "dataset")
    write_ceiling([], tmp_path / "ceiling.json")
    best = tmp_path / "best.parquet"
    write_best(tmp_path / "dataset", tmp_path / "ceiling.json", [], Limits(), best)
    out = tmp_path / "cells.json"
    write_energy_cells(tmp_path / "dataset", best, left_out, controls, out)
    found = energy.read_cells(out)
    keys = set(read_cells(tmp_path / "dataset")["cell_key"])
    assert {one.cell.key for one in found} <= keys
    assert bool(found) == (not left_out)
    assert "fastest" in {one.role for one in found} or left_out
