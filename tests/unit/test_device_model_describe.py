"""What launches ask of a device, from cells: what is told, and of which kernels nothing can be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from conftest import ROOT
from described import FACTS, cells, code_paths, described, part, workloads
from gpushmoo.core.code_path import CodePath
from gpushmoo.core.schema import GROUP
from gpushmoo.core.space import Cell, Problem
from gpushmoo.model import launches
from gpushmoo.model.launches import COLUMNS, Describer, device_facts
from gpushmoo.storage.dataset import as_frame
from gpushmoo.storage.store import read_shard
from gpushmoo.workloads.loader import load_kernel
from synthetic import GPU, write_shard

KEY = ("block_eq_partition", "float", "exact", "copy_exact")


def asked(cell: Cell, path: CodePath | None = None, resident: int = 4) -> Mapping[str, float]:
    """What `cell` asks, of a kernel whose machine code is `path`."""
    codes = {key: path or own for key, own in code_paths().items()}
    told = Describer(workloads(), codes, FACTS).launch(cell, resident, 20)
    assert not isinstance(told, str), told
    return told


def partitions(num: int, width: int = 64 * 40, height: int = 8) -> Cell:
    """Persistent blocks that share out width / 64 tiles of 8 rows."""
    params = (("num_partition", num),)
    return Cell("block_eq_partition", "float", "exact", Problem(height, width), params)


# What is told


def test_blocks_take_all_bytes_and_no_more() -> None:
    table = described()
    moved = table[["bytes_read", "bytes_written"]].max(axis=1)
    taken = table["blocks"] * table["block_bytes"]
    persistent = table["persistent"] > 0
    tile = 4 * 512
    assert np.all(taken[~persistent] == moved[~persistent])
    # The one that takes most speaks for all persistent blocks.
    assert np.all(taken[persistent] >= moved[persistent])
    assert np.all((taken - moved)[persistent] < (table["blocks"] * tile)[persistent])


def test_what_is_told_of_a_launch() -> None:
    like = next(c for c in cells() if c.kernel == "global_copy" and c.cache_state == "flushed")
    axes = (("block_x", 512), ("passes", 4), ("unroll", 8))
    cell = replace(like, params=axes, problem=Problem(2048, 2048))
    told = asked(cell, resident=3)
    assert (told["blocks"], told["warps"], told["resident"]) == (256, 16, 3)
    assert (told["turns"], told["waits"], told["loads_a_wait"]) == (4, 4, 8)
    assert (told["load_lines"], told["store_lines"]) == (16 * 32, 16 * 32)
    assert (told["bytes_read"], told["bytes_written"]) == (2**24, 2**24)
    assert (told["in_a_sample"], told["flushed"]) == (1, 1)
    warm = asked(replace(cell, cache_state="warm"), resident=3)
    assert (warm["in_a_sample"], warm["flushed"]) == (20, 0)
    assert set(told) == set(COLUMNS)


@pytest.mark.parametrize(
    ("path", "turns", "waits", "instructions"),
    [
        # 10 passes, one a turn.
        (CodePath(part(25), part(20, 1, 1, 1)), 10, 10, 25 + 10 * 20),
        # 4 a turn: two turns, and the two that are left outside of the loop.
        (CodePath(part(40, 2, 2, 1), part(60, 4, 4, 1)), 2, 2 + 1, 40 + 2 * 60),
        # Of four outside of the loop two are not run.
        (CodePath(part(80, 4, 4, 2), part(60, 4, 4, 1)), 2, 2 + 1, 80 - 2 * 15 + 2 * 60),
        # The rest in the same loop, as if it were a part of a turn.
        (CodePath(part(25), part(60, 4, 4, 1)), 2, 2 + 1, 25 + 2 * 60 + 2 * 15),
        # No loop: what the code says, however many passes there are.
        (CodePath(part(30, 1, 1, 1), part(0)), 0, 1, 30),
    ],
    ids=["plain", "unrolled", "half of a rest", "unrolled without a rest", "no loop"],
)
def test_turns_and_waits_of_a_thread_in_ten_passes(
    path: CodePath, turns: int, waits: int, instructions: int
) -> None:
    told = asked(partitions(4), path)
    assert (told["turns"], told["waits"]) == (turns, waits)
    assert told["instructions"] == pytest.approx(instructions)


def test_the_persistent_block_with_the_most_tiles_is_told() -> None:
    plain = CodePath(part(25), part(20, 1, 1, 1))
    assert [asked(partitions(n), plain)["turns"] for n in (1, 3, 39, 40, 41)] == [40, 14, 2, 1, 1]


# From shards


def frame(path: Path, kernel: str, **options: Any) -> tuple[pd.DataFrame, dict[str, Any]]:
    table, provenance = read_shard(write_shard(path, kernel, "float", **options))
    return as_frame(table).copy(), provenance


COUNTS = {"num_partition": [1, 4]}


def test_only_verified_cells_are_told(tmp_path: Path) -> None:
    mine, provenance = frame(tmp_path / "a.parquet", KEY[0], axes=COUNTS, variants=("exact",))
    mine.loc[0, "status"] = "wrong_result"
    describer = Describer(workloads(), code_paths(), device_facts([provenance]))
    table, why = describer.table(mine)
    assert why == {}
    assert table["cell_key"].tolist() == mine["cell_key"].tolist()[1:]
    assert table["measured_s"].tolist() == mine["median_s"].tolist()[1:]
    assert list(table.columns) == [*GROUP, "cell_key", "measured_s", *COLUMNS]
    assert describer.device.clock_hz == GPU.core_clock_mhz * 1e6


@pytest.mark.parametrize(
    ("change", "codes", "said"),
    [
        ({}, {}, "its machine code was not read"),
        (
            {"resident_per_unit": None},
            code_paths(),
            "its device does not tell how many blocks a multiprocessor holds",
        ),
        ({"kernel": "no_such"}, code_paths(), "nothing of it is timed on the device alone"),
        ({"kernel": "dot_streamed"}, code_paths(), "nothing of it is timed on the device alone"),
        ({"kernel": "dot_host"}, code_paths(), "nothing of it is timed on the device alone"),
    ],
    ids=["no machine code", "no occupancy", "unknown", "host-fed", "on the host"],
)
def test_kernels_of_which_nothing_can_be_said_are_left_out_and_it_is_said_why(
    tmp_path: Path, change: Mapping[str, Any], codes: launches.Codes, said: str
) -> None:
    mine, _ = frame(tmp_path / "a.parquet", KEY[0], axes=COUNTS, variants=("exact",))
    mine = mine.assign(**change)
    others = {n: load_kernel(ROOT / "kernels" / n).workload for n in ("dot_streamed", "dot_host")}
    table, why = Describer({**workloads(), **others}, codes, FACTS).table(mine)
    assert table.empty
    assert why == {mine["kernel"].iloc[0]: said}
    assert list(table.columns) == [*GROUP, "cell_key", "measured_s", *COLUMNS]


def test_a_kernel_that_does_not_say_what_its_threads_take_is_left_out() -> None:
    workload = load_kernel(ROOT / "kernels" / "gather_stride").workload
    axes = (("stride", 2), ("threads", 128))
    cell = Cell(workload.name, "float", workload.variants[0], Problem(64, 64), axes)
    key = cell.kernel, cell.dtype, workload.version(cell).name, workload.launch(cell).entry
    codes = {key: CodePath(part(20, 1, 1, 1), part(0))}
    told = Describer({workload.name: workload}, codes, FACTS).launch(cell, 4, 20)
    assert told == "it does not tell which elements a thread takes"


def test_paths_are_those_that_shards_tell(tmp_path: Path) -> None:
    _, shard = frame(tmp_path / "a.parquet", KEY[0], axes=COUNTS, variants=("exact",))
    path = code_paths()[KEY]
    entries = [{"entry": "copy_exact", "path": path.to_json()}, {"entry": "old", "path": None}]
    newer = shard | {"machine_code": {"variants": {"exact": {"entries": entries}, "bad": {}}}}
    assert launches.code_paths([shard, newer]) == {KEY: path}
