"""Repeats of a shard become one row a cell that says what another run may find."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from fakes import FOLDER, INFO
from gpushmoo.analysis.aggregate import AggregateError, aggregate
from gpushmoo.analysis.best import tied_best
from gpushmoo.analysis.run_quality import dataset_provenance
from gpushmoo.core.schema import Status
from gpushmoo.core.space import USUAL, Cell, Problem, shard_name
from gpushmoo.measuring.events import CellRun, ShardResult
from gpushmoo.measuring.shard_file import cell_table
from gpushmoo.storage.dataset import read_cells
from gpushmoo.storage.store import read_shard, write_parquet
from gpushmoo.workloads.contract import Launch
from synthetic import shard_metadata, shard_params

PROBLEM = Problem(4, 8)
SAMPLES = np.array([0.99, 1.0, 1.01, 1.0, 1.0, 1.0])


def write_repeat(
    folder: Path,
    repeat: int,
    times_s: Mapping[int, float],
    statuses: Mapping[int, Status] | None = None,
    copy_s: float = 1e-3,
    uuid: str = INFO.uuid,
    planned: int = 2,
    kernel: str = "tiny",
) -> Path:
    """A repeat of a shard: cells over the axis x, with these medians in seconds."""
    runs = {}
    for value, seconds in times_s.items():
        cell = Cell(kernel, "float", "v", PROBLEM, (("x", value),))
        run = CellRun(cell, Launch("v", (value, 1, 1), (32, 1, 1), (), 7), launches=1)
        run.status = (statuses or {}).get(value, Status.OK)
        run.message = None if run.status is Status.OK else "why"
        run.samples_s = list(seconds * SAMPLES)
        run.sampled_at_s = [1e3 * i for i in range(len(SAMPLES))]
        run.verified_words, run.wrong_words = 32, 0
        runs[cell.key] = run
    copies = {(PROBLEM, USUAL): [(0.0, copy_s)]}
    info = replace(INFO, uuid=uuid)
    table = cell_table(ShardResult(runs, copies), FOLDER.workload, info, ["x"])
    path = folder / kernel / f"{shard_name(0, 1, repeat)}.parquet"
    sweep = {"axes": {"x": list(times_s)}, "sizes": [[4, 8]], "variants": ["v"]}
    params = shard_params(f"kernels/{kernel}", "float", sweep | {"cache_states": ["warm"]}, info)
    params |= {"repeat": repeat, "measure": params["measure"] | {"repeats": planned}}
    write_parquet(table, path, shard_metadata(params, info))
    return path


def cells_of(paths: Sequence[Path], tmp_path: Path) -> pd.DataFrame:
    aggregate(paths, tmp_path / "dataset")
    return read_cells(tmp_path / "dataset").set_index("x").sort_index()


def test_a_cell_is_one_row_with_what_each_repeat_found(tmp_path: Path) -> None:
    first = write_repeat(tmp_path, 1, {1: 1.0, 2: 2.0}, copy_s=1e-3)
    # Of another device of the model.
    second = write_repeat(tmp_path, 2, {1: 1.21, 2: 2.0}, copy_s=4e-3, uuid="fake-1")
    cells = cells_of([second, first], tmp_path)
    row = cells.loc[1]
    assert list(cells.index) == [1, 2]
    provenance = dataset_provenance(tmp_path / "dataset")
    assert [p["params"]["repeat"] for p in provenance] == [1, 2]
    assert row["median_s"] == pytest.approx(1.1)
    assert list(row["repeat_medians_s"]) == pytest.approx([1.0, 1.21])
    assert list(row["repeat_samples"]) == [len(SAMPLES)] * 2
    assert list(row["samples_s"]) == pytest.approx([*SAMPLES, *(1.21 * SAMPLES)])
    assert len(row["sampled_at_s"]) == 2 * len(SAMPLES)
    assert row["between_spread"] == pytest.approx(np.log(1.21) / np.sqrt(2))
    assert row["within_half_width"] == pytest.approx(0.01 / np.sqrt(2), rel=0.01)
    assert row["median_low_s"] < 1.0 < 1.21 < row["median_high_s"]
    moved = row["bytes_read"] + row["bytes_written"]
    assert row["bandwidth_gbs"] == pytest.approx(moved * 1e-9 / 1.1)
    assert row["bandwidth_low_gbs"] == pytest.approx(moved * 1e-9 / row["median_high_s"])
    # In the middle of 1 and 4 ms.
    assert row["copy_gbs"] == pytest.approx(moved * 1e-9 / 2e-3)
    assert list(row["repeat_copy_gbs"]) == pytest.approx([moved * 1e-6, moved * 0.25e-6])
    assert row["over_copy"] == pytest.approx(row["bandwidth_gbs"] / row["copy_gbs"])


def test_one_repeat_keeps_the_interval_of_its_samples(tmp_path: Path) -> None:
    path = write_repeat(tmp_path, 1, {1: 1.0, 2: 2.0}, planned=1)
    cells = cells_of([path], tmp_path).reset_index().sort_values("cell_key")
    alone = read_shard(path)[0].to_pandas()
    for name in ("median_low_s", "median_high_s", "own_low_s", "own_high_s", "coverage"):
        assert list(cells[name]) == list(alone[name])
    assert cells["between_spread"].isna().all()


def test_what_was_measured_once_on_purpose_keeps_its_interval_beside_repeats(
    tmp_path: Path,
) -> None:
    """In a record put together of several: the spread of the others says nothing about it."""
    times = {x: float(x) for x in range(1, 40)}
    others = [write_repeat(tmp_path, n, {x: n * t for x, t in times.items()}) for n in (1, 2)]
    (tmp_path / "once").mkdir()
    once = write_repeat(tmp_path / "once", 1, {99: 1.0}, planned=1)
    row = cells_of([*others, once], tmp_path).loc[99]
    assert (row["median_low_s"], row["median_high_s"]) == (0.99, 1.01)


def test_a_machine_that_slows_down_as_a_whole_ties_no_cells(tmp_path: Path) -> None:
    """All cells are 30 % slower in the second repeat; which is fastest stays as clear as before."""
    rng = np.random.default_rng(3)
    times = {x: 1.0 + 0.05 * x for x in range(1, 21)}
    again = {x: 1.3 * t * (1 + 0.001 * rng.standard_normal()) for x, t in times.items()}
    paths = [write_repeat(tmp_path, 1, times), write_repeat(tmp_path, 2, again)]
    cells = cells_of(paths, tmp_path)
    assert (cells["median_high_s"] / cells["median_low_s"] > 2).all()
    assert list(tied_best(cells.reset_index())["x"]) == [1]


def test_what_the_host_does_widens_no_interval_of_the_device(tmp_path: Path) -> None:
    """Host-fed cells drift by 10 % between repeats, those of the device by 0.1 %."""
    rng = np.random.default_rng(6)
    times = {x: 1.0 + 0.01 * x for x in range(1, 41)}
    paths = [
        write_repeat(
            tmp_path,
            repeat,
            {x: t * drift**repeat * (1 + 0.0005 * rng.standard_normal()) for x, t in times.items()},
            kernel=kernel,
        )
        for kernel, drift in (("tiny", 1.001), ("fed", 1.1))
        for repeat in (1, 2)
    ]
    aggregate(paths, tmp_path / "dataset", host_fed=["fed"])
    cells = read_cells(tmp_path / "dataset")
    widths = (cells["median_high_s"] / cells["median_low_s"]).groupby(cells["kernel"]).median()
    assert widths["tiny"] < 1.03
    assert widths["fed"] > 2.0


def test_a_machine_that_shakes_its_cells_ties_them(tmp_path: Path) -> None:
    """The winner of one repeat loses in the other: neither is the best."""
    rng = np.random.default_rng(4)
    base = {x: 1.0 + 0.002 * x for x in range(1, 41)}
    paths = [
        write_repeat(
            tmp_path,
            n,
            {x: t * float(np.exp(0.05 * rng.standard_normal())) for x, t in base.items()},
        )
        for n in (1, 2)
    ]
    cells = cells_of(paths, tmp_path)
    assert len(tied_best(cells.reset_index())) > 20


@pytest.mark.parametrize("status", [Status.WRONG_RESULT, Status.TIMEOUT, Status.LAUNCH_FAILED])
def test_what_a_later_repeat_finds_wrong_counts(tmp_path: Path, status: Status) -> None:
    first = write_repeat(tmp_path, 1, {1: 1.0, 2: 2.0, 3: 3.0})
    second = write_repeat(tmp_path, 2, {1: 1.0, 2: 2.0, 3: 3.0}, {2: status})
    row = cells_of([first, second], tmp_path).loc[2]
    assert row["status"] == status
    assert row["message"] == "in repeat 2: why"
    assert pd.isna(row["bandwidth_gbs"])
    assert pd.isna(row["own_low_s"])
    assert len(row["samples_s"]) == len(SAMPLES)


@pytest.mark.parametrize("status", [Status.THROTTLED, Status.LOST_DEVICE])
def test_a_repeat_that_could_not_measure_takes_nothing_away(tmp_path: Path, status: Status) -> None:
    times = {x: float(x) for x in range(1, 40)}
    again = {x: t * (1.01 if x % 2 else 0.99) for x, t in times.items()}
    first = write_repeat(tmp_path, 1, times)
    second = write_repeat(tmp_path, 2, again, {2: status})
    row = cells_of([first, second], tmp_path).loc[2]
    assert row["status"] == "ok"
    assert row["median_s"] == 2.0
    assert list(row["repeat_samples"]) == [len(SAMPLES)]
    # What cells of its class vary by is known from the others.
    assert 1.005 < row["median_high_s"] / 2.0 < 1.1


def test_cells_that_were_not_ok_at_first_stay_as_they_were(tmp_path: Path) -> None:
    first = write_repeat(tmp_path, 1, {1: 1.0, 2: 2.0}, {2: Status.RESOURCES})
    second = write_repeat(tmp_path, 2, {1: 1.0})
    cells = cells_of([first, second], tmp_path)
    assert dict(cells["status"]) == {1: "ok", 2: "resources"}
    assert cells.loc[2, "message"] == "why"


def test_repeats_that_do_not_fit_together_are_refused_with_their_names(tmp_path: Path) -> None:
    def refused(words: str) -> tuple[Path, ...]:
        with pytest.raises(AggregateError, match=words) as caught:
            aggregate(paths, tmp_path / "dataset")
        return tuple(caught.value.files)

    paths = [write_repeat(tmp_path, n, {1: 1.0}, planned=3) for n in (1, 3)]
    assert refused("has repeats 1, 3; there must be 1 to 3") == tuple(paths)
    paths = [write_repeat(tmp_path, 1, {1: 1.0, 2: 1.0}), write_repeat(tmp_path, 2, {1: 1.0})]
    assert refused("lacks 1 of 2 cells") == (paths[1],)
    paths = [write_repeat(tmp_path, n, {1: 1.0}) for n in (1, 2)]
    raw = bytearray(paths[1].read_bytes())
    raw[len(raw) // 2] ^= 1
    paths[1].write_bytes(raw)
    assert refused("repeat-2") == (paths[1],)
