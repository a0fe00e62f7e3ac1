"""What judges a chaos run sees what is wrong; a judge that finds nothing would be worth nothing."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from damage import damage
from growth import Sample, judge_growth
from judge import judge_dataset
from processes import JOB, SNAKEMAKE, WORKER, role_of
from strikes import SCENARIOS, Strike, draw_round
from sweeps import BASE, EDITS, planned_cells, shard_paths
from terminal import foreign_lines, raw_exceptions

Row = dict[str, Any]


def row_of(cell: Any) -> Row:
    """A row as it must be, of a run with two repeats."""
    samples = [1e-3 * (1 + 0.01 * i) for i in range(6)]
    median = float(np.median(samples))
    return {
        "cell_key": cell.key,
        "variant": cell.variant,
        "height": cell.height,
        "width": cell.width,
        "cache_state": cell.cache_state,
        "block_x": None,
        "block_y": None,
        **dict(cell.axes),
        "status": "ok",
        "message": None,
        "samples_s": samples * 2,
        "sampled_at_s": [0.0] * 12,
        "repeat_samples": [6, 6],
        "repeat_medians_s": [median] * 2,
        "median_s": median,
        "median_low_s": 0.9 * median,
        "median_high_s": 1.1 * median,
        "bytes_read": cell.bytes_each_way,
        "bytes_written": cell.bytes_each_way,
        "bandwidth_gbs": 2 * cell.bytes_each_way * 1e-9 / median,
        "verified_words": 1,
        "wrong_words": 0,
        "device_uuid": "one",
    }


def write_dataset(folder: Path, change: Callable[[list[Row]], object]) -> Path:
    """The data set of BASE, complete but for what `change` does to the rows."""
    cells = planned_cells(BASE)
    rows = [row_of(cell) for cell in cells]
    sweeps = [cell.sweep for cell in cells]
    change(rows)
    sweeps += sweeps[-1:] * (len(rows) - len(sweeps))
    for sweep in set(sweeps):
        part = folder / f"kernel={sweep}" / "dtype=float" / "part-0.parquet"
        part.parent.mkdir(parents=True)
        own = [row for row, s in zip(rows, sweeps, strict=False) if s == sweep]
        pq.write_table(pa.Table.from_pylist(own), part)
    return folder


def blame(row: Row, message: str) -> None:
    row |= {"status": "launch_failed", "message": message}


CHANGES: dict[str, tuple[str, Callable[[list[Row]], object]]] = {
    "missing": ("wrong rows", lambda rows: rows.pop()),
    "doubled": ("wrong rows", lambda rows: rows.append(dict(rows[-1]))),
    "foreign": ("wrong rows", lambda rows: rows[-1].update(cell_key="0" * 16)),
    "another cell's axis": ("wrong rows", lambda rows: rows[0].update(block_x=7)),
    "a repeat missing": ("wrong rows", lambda rows: rows[0].update(repeat_samples=[12])),
    "a median of its own": ("wrong rows", lambda rows: rows[0].update(median_s=1.0)),
    "not verified": ("wrong rows", lambda rows: rows[0].update(verified_words=0)),
    "two devices": ("wrong rows", lambda rows: rows[0].update(device_uuid="two")),
    "blamed": ("innocent cell blamed", lambda rows: blame(rows[0], "was ended by SIGTERM")),
    "blamed for SIGSEGV": (
        "cell blamed for a signal that faults send, too",
        lambda rows: blame(rows[0], "the measuring process was ended by SIGSEGV"),
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_is_wrong_with_a_data_set_is_found(name: str, tmp_path: Path) -> None:
    kind, change = CHANGES[name]
    assert {f.kind for f in judge_dataset(write_dataset(tmp_path, change), BASE)} == {kind}


def test_a_right_data_set_passes(tmp_path: Path) -> None:
    assert list(judge_dataset(write_dataset(tmp_path, lambda rows: None), BASE)) == []


def test_raw_exceptions_are_told_from_sentences() -> None:
    said = "gpushmoo: 'a.parquet' holds a cell twice.\nshard 1/2 x: 3 cells\nRuleException:"
    assert raw_exceptions(said) == []
    assert foreign_lines(said) == []
    raw = 'Traceback (most recent call last):\n  File "x.py", line 3, in f\nKeyError: 7'
    assert len(raw_exceptions(raw)) == 3
    assert raw_exceptions("gpushmoo: KeyError: '1a3' (details: logs/aggregate.log)") != []
    assert foreign_lines("Segmentation fault (core dumped)") != []


def test_a_round_is_drawn_the_same_again_and_rounds_differ() -> None:
    rounds = [draw_round("7", n) for n in range(1, 60)]
    assert rounds == [draw_round("7", n) for n in range(1, 60)]
    assert {r.scenario for r in rounds} == set(SCENARIOS)
    assert rounds[0].strikes != draw_round("8", 1).strikes


def test_every_edit_leaves_cells_and_shards_to_measure() -> None:
    config, rng = deepcopy(BASE), Random(1)
    for _ in range(200):
        EDITS[rng.choice(sorted(EDITS))](config, rng)
        cells = planned_cells(config)
        assert 1 <= len({c.key for c in cells}) == len(cells) <= 64
        assert shard_paths(config)


@pytest.mark.parametrize(("kind", "left"), [("truncated to half", 50), ("last byte cut off", 99)])
def test_damage_is_done_and_its_healing_seen(kind: str, left: int, tmp_path: Path) -> None:
    (tmp_path / "report.pdf").write_bytes(bytes(100))
    done = damage(tmp_path, Strike(kind, "report", keeps_time=True), tmp_path)
    assert (tmp_path / "report.pdf").stat().st_size == left
    assert done.is_left
    (tmp_path / "report.pdf").write_bytes(bytes(100))
    assert not done.is_left


def test_roles_are_told_by_the_command_line() -> None:
    assert role_of("python -m gpushmoo.measuring.worker 6") == WORKER
    assert role_of("python /x/.snakemake/scripts/tmp1.measure.py") == JOB
    assert role_of("python -m snakemake --cores all") == SNAKEMAKE


def test_memory_that_grows_with_cells_is_found() -> None:
    def samples(bytes_per_cell: int) -> list[Sample]:
        rss = [10**8 + bytes_per_cell * 100 * i for i in range(100)]
        return [Sample(float(i), WORKER, 5, 1, 100 * i, rss[i], 20, 3, 0) for i in range(100)]

    assert judge_growth(samples(0), 10)["broken"] == []
    assert judge_growth(samples(50), 10)["worker"]["bytes_per_cell"] == 50
    assert judge_growth(samples(5000), 10)["broken"] != []
