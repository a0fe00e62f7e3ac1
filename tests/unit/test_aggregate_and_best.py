"""From shards to conclusions: one dataset for every reader, tied sets, honest counts."""

from __future__ import annotations

import io
import itertools
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pyarrow.parquet as pq
import pytest
from conftest import environment
from fakes import FOLDER, INFO
from gpushmoo.analysis.aggregate import AggregateError, aggregate
from gpushmoo.analysis.best import best_of_dataset, best_table, read_best, tied_best
from gpushmoo.analysis.fastest import axes_of
from gpushmoo.analysis.run_quality import (
    MEANING,
    FailedSweepError,
    StrictError,
    dataset_provenance,
    faults,
    status_counts,
    verdict,
    write_verdict,
)
from gpushmoo.core.schema import FAULTS, SAMPLE_COUNT, Status
from gpushmoo.core.space import Cell, Problem
from gpushmoo.measuring.events import CellRun, ShardResult
from gpushmoo.measuring.shard_file import cell_table
from gpushmoo.storage.dataset import (
    matching,
    partitions,
    read_cells,
    read_medians,
    with_axes_noted,
)
from gpushmoo.storage.store import BadParquetError, read_shard, write_parquet
from gpushmoo.workloads.contract import Launch
from hypothesis import given
from hypothesis import strategies as st
from synthetic import flipped_in_a_page, shard_metadata, shard_params

SAMPLES = [1.0e-3, 1.1e-3, 1.2e-3, 1.3e-3, 1.4e-3, 1.5e-3]


def write_shard(
    path: Path,
    kernel: str = "tiny",
    dtype: str = "float",
    axis: str = "x",
    values: tuple[int, ...] = (1, 2, 3),
    statuses: Mapping[int, Status] = {},
    uuid: str = "fake-0",
    state: str = "warm",
    model: str = INFO.name,
) -> Path:
    """A shard of cells over one axis; the launch gets slower with the axis' value."""
    runs = {}
    for value in values:
        cell = Cell(kernel, dtype, "v", Problem(4, 8), ((axis, value),), state)
        run = CellRun(cell, Launch("v", (value, 1, 1), (32, 1, 1), (), 7))
        run.status = statuses.get(value, Status.OK)
        run.samples_s = [value * s for s in SAMPLES]
        run.sampled_at_s = [float(i) for i in range(len(SAMPLES))]
        run.launches, run.verified_words, run.wrong_words = 1, 32, 0
        runs[cell.key] = run
    info = replace(INFO, uuid=uuid, name=model)
    table = cell_table(ShardResult(runs), FOLDER.workload, info, [axis])
    sweep = {"axes": {axis: list(values)}, "sizes": [[4, 8]], "variants": ["v"]}
    params = shard_params(f"kernels/{kernel}", dtype, sweep | {"cache_states": [state]}, info)
    write_parquet(table, path, shard_metadata(params, info))
    return path


@pytest.fixture
def shards(tmp_path: Path) -> list[Path]:
    return [
        write_shard(tmp_path / "1.parquet", values=(1, 2, 3)),
        write_shard(tmp_path / "2.parquet", values=(4,), statuses={4: Status.TIMEOUT}),
        write_shard(tmp_path / "3.parquet", dtype="double"),
        write_shard(tmp_path / "4.parquet", kernel="other", axis="y", values=(7, 8)),
    ]


@pytest.fixture
def dataset(shards: list[Path], tmp_path: Path) -> Path:
    aggregate(shards, tmp_path / "dataset")
    return tmp_path / "dataset"


@pytest.fixture
def cells(dataset: Path) -> pd.DataFrame:
    return read_cells(dataset)


# The dataset


def test_pandas_and_duckdb_read_the_same_rows(dataset: Path) -> None:
    ours = pd.read_parquet(dataset)
    sql = f"select * from read_parquet('{dataset}/**/*.parquet', hive_partitioning=true)"
    theirs = duckdb.sql(sql).to_arrow_table().to_pandas()
    assert set(theirs.columns) == set(ours.columns)
    assert len(ours) == 9
    columns = ["cell_key", "kernel", "dtype", "status", "median_s", "x", "y"]
    for frame in (ours, theirs):
        frame[["kernel", "dtype"]] = frame[["kernel", "dtype"]].astype(str)
    one, two = (f[columns].sort_values("cell_key", ignore_index=True) for f in (ours, theirs))
    pd.testing.assert_frame_equal(one, two, check_dtype=False)
    assert {str(ours[axis].dtype) for axis in "xy"} == {"Int64"}
    samples = (f.set_index("cell_key").sort_index()["samples_s"] for f in (ours, theirs))
    assert all(list(a) == list(b) for a, b in zip(*samples, strict=True))


def test_every_file_has_the_union_of_axes_with_nulls(dataset: Path, cells: pd.DataFrame) -> None:
    schemas = [pq.read_schema(p).remove_metadata() for p in dataset.rglob("*.parquet")]
    assert len(schemas) == 3
    assert all(s.equals(schemas[0]) for s in schemas)
    other = cells["kernel"] == "other"
    assert cells.loc[other, "x"].isna().all()
    assert set(cells.loc[other, "y"]) == {7, 8}
    assert cells.loc[~other, "y"].isna().all()


def test_dataset_holds_the_provenance_of_every_shard(dataset: Path) -> None:
    found = [(p["params"]["folder"], p["axes"]) for p in dataset_provenance(dataset)]
    assert sorted(found) == [("kernels/other", ["y"])] + 3 * [("kernels/tiny", ["x"])]


def test_dataset_does_not_depend_on_the_order_of_shards(
    shards: list[Path], dataset: Path, tmp_path: Path
) -> None:
    aggregate(shards[::-1], tmp_path / "again")
    pd.testing.assert_frame_equal(read_cells(dataset), read_cells(tmp_path / "again"))


def test_aggregating_again_replaces_the_dataset(dataset: Path, shards: list[Path]) -> None:
    aggregate(shards[:1], dataset)
    assert len(read_cells(dataset)) == 3
    leftovers = [p.name for p in dataset.parent.iterdir() if p.is_dir() and p != dataset]
    assert leftovers == []


def test_same_cell_of_another_device_is_no_double_and_a_shard_may_have_no_cell(
    shards: list[Path], tmp_path: Path
) -> None:
    other = write_shard(tmp_path / "other.parquet", uuid="fake-1")
    empty = write_shard(tmp_path / "empty.parquet", values=())
    aggregate([*shards, other, empty], tmp_path / "dataset")
    assert len(read_cells(tmp_path / "dataset")) == 12


def test_models_are_mixed_only_where_they_were_recorded(shards: list[Path], tmp_path: Path) -> None:
    other = write_shard(tmp_path / "other.parquet", values=(5,), uuid="fake-1", model="Other GPU")
    aggregate([*shards, other], tmp_path / "dataset")
    assert len(read_cells(tmp_path / "dataset")) == 10
    aggregate(shards, tmp_path / "mine", one_model=True)
    with pytest.raises(AggregateError) as caught:
        aggregate([*shards, other], tmp_path / "mine", one_model=True)
    assert f"measured on '{INFO.name}', but '{other}' on 'Other GPU'" in str(caught.value)
    assert "ask the scheduler for one model" in str(caught.value)
    assert len(read_cells(tmp_path / "mine")) == 9


def test_a_flipped_bit_of_a_partition_is_refused_by_who_reads_it(dataset: Path) -> None:
    path = dataset / "kernel=tiny/dtype=float/part-0.parquet"
    path.write_bytes(flipped_in_a_page(path.read_bytes()))
    for read in (read_cells, read_medians):
        assert len(read(dataset, {"dtype": "double"})) == 3
        with pytest.raises(BadParquetError, match=f"^'{dataset}' cannot be read: .*CRC"):
            read(dataset, {"kernel": ["tiny"], "dtype": "float", "status": "ok"})


def test_all_that_cannot_be_used_is_named_and_the_old_dataset_stays(
    dataset: Path, shards: list[Path], tmp_path: Path
) -> None:
    def refused(paths: list[Path], bad: list[Path]) -> str:
        with pytest.raises(AggregateError) as caught:
            aggregate(paths, dataset)
        assert set(caught.value.files) == set(bad)
        assert [p for p in paths if str(p) in str(caught.value)] == bad
        assert len(read_cells(dataset)) == 9
        return str(caught.value)

    # A cell twice: either file may be the wrong one.
    twin = write_shard(tmp_path / "twin.parquet", values=(3,))
    key = read_shard(twin)[0].column("cell_key")[0].as_py()
    assert key in refused([*shards, twin], [shards[0], twin])
    shards[1].write_bytes(shards[1].read_bytes()[:-1])
    shards[2].write_bytes(b"PAR1")
    refused(shards, shards[1:3])


def test_a_damaged_dataset_is_set_aside_whole(dataset: Path, tmp_path: Path) -> None:
    log = tmp_path / "logs/best.log"
    code = f"""
from pathlib import Path
from gpushmoo.storage.dataset import read_cells
from gpushmoo.storage.joblog import job_log
with job_log({str(log)!r}):
    read_cells(Path({str(dataset)!r}))
"""
    part = dataset / "kernel=tiny/dtype=float/part-0.parquet"
    part.write_bytes(part.read_bytes()[:-1])
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 1
    aside = tmp_path / "quarantine/dataset"
    assert done.stderr.startswith(f"gpushmoo: '{dataset}' cannot be read: ")
    assert done.stderr.endswith(f" Set aside as '{aside}'; start the run again to make it anew.\n")
    assert aside.is_dir()
    assert not dataset.exists()


def test_failing_write_leaves_the_old_dataset_and_nothing_else(
    dataset: Path, shards: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full_disk(*_: Any, **options: Any) -> None:
        raise OSError(28, "No space left on device")

    before = sorted(dataset.parent.iterdir())
    monkeypatch.setattr("gpushmoo.analysis.aggregate.pq.ParquetWriter.write_table", full_disk)
    with pytest.raises(OSError, match="No space"):
        aggregate(shards[:1], dataset)
    assert sorted(dataset.parent.iterdir()) == before
    assert len(read_cells(dataset)) == 9


def test_nothing_to_aggregate_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AggregateError, match="no shards"):
        aggregate([], tmp_path / "dataset")


def test_a_stage_reads_the_rows_and_columns_it_asks_for(dataset: Path, cells: pd.DataFrame) -> None:
    found = read_cells(dataset, {"kernel": ["tiny"], "status": "ok"}, ["cell_key", "median_s"])
    assert list(found.columns) == ["cell_key", "median_s", "x", "y"]
    expected = cells[(cells["kernel"] == "tiny") & (cells["status"] == "ok")]
    assert list(found["cell_key"]) == list(expected["cell_key"])
    assert len(read_cells(dataset, {"dtype": "double", "x": 2})) == 1
    assert read_cells(dataset, {"kernel": []}).empty
    with pytest.raises(KeyError):
        read_cells(dataset, {"no_such_column": 1})


def test_medians_have_the_number_of_samples_in_the_place_of_the_samples(
    dataset: Path, cells: pd.DataFrame
) -> None:
    found = read_medians(dataset)
    lists = {"samples_s", "sampled_at_s"}
    assert list(found[SAMPLE_COUNT]) == [len(s) for s in cells["samples_s"]]
    left = [c for c in cells.columns if c not in lists]
    pd.testing.assert_frame_equal(found[left], cells[left])


def test_the_number_of_samples_is_no_axis(dataset: Path) -> None:
    """Taken for one, only launches with as many samples were compared in float and double."""
    assert axes_of(read_medians(dataset, {"kernel": "tiny"})) == ["x"]


def test_partitions_are_those_of_the_dataset(dataset: Path) -> None:
    assert [(p["kernel"], p["dtype"]) for p in partitions(dataset)] == [
        ("other", "float"),
        ("tiny", "double"),
        ("tiny", "float"),
    ]


# Best sets


def frame(intervals: list[tuple[float, float, float]], status: str = "ok") -> pd.DataFrame:
    """Cells with (low, median, high); the key is the place in the list."""
    rows = [
        {"cell_key": f"{i}", "status": status, "own_low_s": a, "median_s": m, "own_high_s": b}
        for i, (a, m, b) in enumerate(intervals)
    ]
    return pd.DataFrame(rows)


def keys(found: pd.DataFrame) -> list[str]:
    return list(found["cell_key"])


def test_tied_are_those_whose_interval_overlaps_that_of_the_fastest() -> None:
    touching, apart, fastest = (12.0, 13.0, 14.0), (12.1, 12.5, 14.0), (9.0, 10.0, 12.0)
    assert keys(tied_best(frame([touching, apart, fastest]))) == ["2", "0"]


def test_tie_is_with_the_fastest_not_with_its_neighbour() -> None:
    chain = frame([(9.0, 10.0, 11.0), (10.5, 11.5, 12.5), (12.0, 13.0, 14.0)])
    assert keys(tied_best(chain)) == ["0", "1"]


def test_only_ok_cells_can_win() -> None:
    good, bad = frame([(9.0, 10.0, 11.0)]), frame([(1.0, 2.0, 3.0)], status="wrong_result")
    assert list(tied_best(pd.concat([bad, good]))["median_s"]) == [10.0]
    assert tied_best(bad).empty


PARTS = st.tuples(st.floats(0.0, 0.3), st.floats(1.0, 2.0), st.floats(0.0, 0.3))


def widened(parts: list[tuple[float, float, float]], factor: float) -> pd.DataFrame:
    return frame([(m * (1 - factor * a), m, m * (1 + factor * b)) for a, m, b in parts])


@given(parts=st.lists(PARTS, min_size=1, max_size=12), factor=st.floats(1.0, 3.0))
def test_wider_intervals_never_shrink_the_set(
    parts: list[tuple[float, float, float]], factor: float
) -> None:
    narrow, wide = (tied_best(widened(parts, f)) for f in (1.0, factor))
    assert set(narrow["cell_key"]) <= set(wide["cell_key"])
    for found in (narrow, wide):
        medians = list(found["median_s"])
        assert medians == sorted(medians)
        assert medians[0] == min(m for _, m, _ in parts)


def test_best_table_ranks_each_group_for_itself(
    dataset: Path, cells: pd.DataFrame, tmp_path: Path
) -> None:
    table, path = best_table(cells), tmp_path / "best.parquet"
    assert best_of_dataset(dataset).equals(table)
    write_parquet(table.cast(with_axes_noted(table.schema)), path, {})
    best = pd.read_parquet(path)
    named = read_best(path, ["x", "y"])
    pd.testing.assert_frame_equal(named.drop(columns="params"), best)
    assert set(named["params"]) == {"x=1", "y=7", "y=8"}
    fastest = best[best["is_fastest"]].set_index(["kernel", "dtype"])
    assert fastest[["x", "y"]].astype(object).T.to_dict("list") == {
        ("other", "float"): [None, 7],
        ("tiny", "double"): [1, None],
        ("tiny", "float"): [1, None],
    }
    # Four cells of tiny float, one of them timed out.
    assert fastest.loc[("tiny", "float"), "candidates"] == 3
    tied = best[best["kernel"] == "other"]
    assert list(tied["y"]) == [7, 8]
    assert list(tied["tied"]) == [2, 2]
    assert list(tied["slower_than_best"]) == pytest.approx([0.0, 1.0 / 7.0])
    # A group without valid cells has none.
    cells.loc[cells["kernel"] == "other", "status"] = "wrong_result"
    assert set(best_table(cells).to_pandas()["kernel"]) == {"tiny"}


def test_cache_states_compete_each_for_itself_and_devices_of_one_name_together(
    shards: list[Path], tmp_path: Path
) -> None:
    flushed = write_shard(tmp_path / "5.parquet", values=(2, 3), state="flushed")
    other = write_shard(tmp_path / "6.parquet", values=(1,), uuid="fake-1")
    aggregate([*shards, flushed, other], tmp_path / "dataset")
    best = best_table(read_cells(tmp_path / "dataset")).to_pandas()
    mine = best[best["is_fastest"] & (best["kernel"] == "tiny") & (best["dtype"] == "float")]
    found = mine[["cache_state", "x", "candidates"]].itertuples(index=False, name=None)
    assert sorted(found) == [("flushed", 2, 2), ("warm", 1, 4)]


def test_rows_are_found_by_the_values_of_columns(cells: pd.DataFrame) -> None:
    found = matching(cells, {"kernel": "tiny", "dtype": "double", "x": 2})
    assert len(found) == 1
    assert matching(cells, {"kernel": "tiny", "height": 5}).empty


# Statuses


def test_verdict_counts_the_faults_by_place(cells: pd.DataFrame) -> None:
    counts = status_counts(cells)
    assert list(counts.columns) == ["ok", "timeout"]
    assert counts.to_numpy().sum() == len(cells)
    assert list(counts.loc[("tiny", "float", "v")]) == [3, 1]
    assert verdict(cells) == "1 of 9 cells ended in a fault: 1 timeout in tiny float v."
    assert list(faults(cells)["status"]) == ["timeout"]


@pytest.mark.parametrize("status", list(Status))
def test_limits_are_no_faults_and_faults_are_not_passed_over(
    cells: pd.DataFrame, status: Status
) -> None:
    cells["status"] = status.value
    harmless = {Status.OK, Status.TOO_MANY_THREADS, Status.RESOURCES, Status.INVALID}
    harmless |= {Status.UNPROPOSED}
    assert (verdict(cells) is None) == (status in harmless)
    assert (status in FAULTS) != (status in harmless)
    assert status in MEANING


def test_faults_are_said_and_stop_only_a_strict_run(cells: pd.DataFrame, tmp_path: Path) -> None:
    out, terminal = tmp_path / "verdict.txt", io.StringIO()
    for strict in (False, True):
        write_verdict(cells[cells["status"] == "ok"], out, strict, SWEEPS, terminal)
        assert terminal.getvalue() == ""
        assert out.read_text().startswith("All 8 cells")
        out.unlink()
    with pytest.raises(StrictError, match="1 timeout"):
        write_verdict(cells, out, True, SWEEPS, terminal)
    assert not out.exists()
    write_verdict(cells, out, False, SWEEPS, terminal)
    assert "1 of 9 cells" in out.read_text()
    assert "1 of 9 cells" in terminal.getvalue()


SWEEPS = {
    name: {
        "kernel": "tiny",
        "sizes": [[4, 4], [8, 8]],
        "dtypes": [name],
        "variants": ["v"],
        "cache_states": ["warm", "flushed"],
        "launch_kinds": ["back_to_back"],
    }
    for name in ("float", "double")
}


@pytest.mark.parametrize(
    ("statuses", "said"),
    [
        (["ok", "timeout"], None),
        (["too_many_threads", "resources"], None),
        (
            ["timeout"],
            "No cell of the sweep 'double' could be measured: 3 failed, most of them t",
        ),
        (
            ["too_many_threads", "build_failed", "build_failed"],
            "sweep 'double' could be measured: 2 failed, most of them build_failed (bad source).",
        ),
    ],
)
def test_a_sweep_of_which_nothing_was_measured_is_an_error_after_the_sentence(
    cells: pd.DataFrame, tmp_path: Path, statuses: list[str], said: str | None
) -> None:
    where = cells["dtype"] == "double"
    cells.loc[where, "message"] = "bad source"
    cells.loc[where, "status"] = list(itertools.islice(itertools.cycle(statuses), where.sum()))
    sweeps = {n: {**s, "sizes": [(4, 8)]} for n, s in SWEEPS.items()}
    terminal, out = io.StringIO(), tmp_path / "verdict.txt"
    if said is None:
        write_verdict(cells, out, False, sweeps, terminal)
        return
    with pytest.raises(FailedSweepError) as caught:
        write_verdict(cells, out, False, sweeps, terminal)
    assert said in str(caught.value)
    assert "'float'" not in str(caught.value)
    assert "cells ended in a fault" in terminal.getvalue()
