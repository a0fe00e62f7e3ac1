"""Shards into one data set: which are admitted, what becomes of repeats, what readers find."""

import copy
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from begun import AXES, DTYPE, KERNEL, SHARD
from begun import run as run  # a fixture
from conftest import record
from fakes import FOLDER, INFO, Tiny
from gpushmoo.analysis.aggregate import aggregate, is_host_fed, opened
from gpushmoo.analysis.best import tied_best
from gpushmoo.analysis.fastest import axes_of
from gpushmoo.analysis.run_quality import dataset_provenance
from gpushmoo.core.errors import AggregateError, BadParquetError
from gpushmoo.core.run_plan import RunPlan, SweepPlan
from gpushmoo.core.schema import SAMPLE_COUNT, Status
from gpushmoo.core.shard_job import ShardJob
from gpushmoo.core.space import USUAL, Cell, Problem, shard_name
from gpushmoo.measuring.events import CellRun, CopySample, ShardResult
from gpushmoo.measuring.shard_file import cell_table
from gpushmoo.storage.dataset import PROVENANCE, matching, partitions, read_cells, read_medians
from gpushmoo.storage.store import read_shard, write_parquet
from gpushmoo.workloads.contract import Launch
from synthetic import flipped_in_a_page, other_device, shard_metadata, shard_params, write_shard

PROBLEM = Problem(4, 8)
SAMPLES = np.array([0.99, 1.0, 1.01, 1.0, 1.0, 1.0])


def write(  # noqa: PLR0913 - keyword-only properties of a made-up shard
    path: Path,
    times_s: Mapping[int, float],
    statuses: Mapping[int, Status] | None = None,
    *,
    kernel: str = "tiny",
    dtype: str = "float",
    axis: str = "x",
    uuid: str = "fake-0",
    model: str = INFO.name,
    repeat: int = 1,
    repeats: int = 1,
    copy_s: float = 1e-3,
) -> Path:
    """A shard of cells over one axis, with these medians in seconds by its values."""
    runs = {}
    for value, seconds in times_s.items():
        cell = Cell(kernel, dtype, "v", PROBLEM, ((axis, value),))
        run = CellRun(cell, Launch("v", (value, 1, 1), (32, 1, 1), (), 7), launches=1)
        run.status = (statuses or {}).get(value, Status.OK)
        run.message = None if run.status is Status.OK else "why"
        run.samples_s = list(seconds * SAMPLES)
        run.sampled_at_s = [1e3 * i for i in range(len(SAMPLES))]
        run.verified_words, run.wrong_words = 32, 0
        runs[cell.key] = run
    info = replace(INFO, uuid=uuid, name=model)
    result = ShardResult(runs, {(PROBLEM, USUAL): [CopySample(copy_s, 0.0)]})
    table = cell_table(result, FOLDER.workload, info, [axis])
    sweep = {"axes": {axis: list(times_s)}, "sizes": [[4, 8]], "variants": ["v"]}
    params = shard_params(f"kernels/{kernel}", dtype, sweep | {"cache_states": ["warm"]}, info)
    params |= {"repeat": repeat, "measure": params["measure"] | {"repeats": repeats}}
    write_parquet(table, path, shard_metadata(params, info))
    return path


@pytest.fixture
def shards(tmp_path: Path) -> list[Path]:
    late = {4: Status.TIMEOUT}
    return [
        write(tmp_path / "1.parquet", {1: 1.0, 2: 2.0, 3: 3.0}),
        write(tmp_path / "2.parquet", {4: 4.0}, late),
        write(tmp_path / "3.parquet", {1: 1.0, 2: 2.0, 3: 3.0}, dtype="double"),
        write(tmp_path / "4.parquet", {7: 7.0, 8: 8.0}, kernel="other", axis="y"),
    ]


@pytest.fixture
def dataset(shards: list[Path], tmp_path: Path) -> Path:
    aggregate(shards, tmp_path / "dataset")
    return tmp_path / "dataset"


@pytest.fixture
def cells(dataset: Path) -> pd.DataFrame:
    return read_cells(dataset)


def test_every_file_has_the_union_of_axes(dataset: Path, cells: pd.DataFrame) -> None:
    schemas = [pq.read_schema(p).remove_metadata() for p in dataset.rglob("*.parquet")]
    assert len(schemas) == 3
    assert all(s.equals(schemas[0]) for s in schemas)
    other = cells["kernel"] == "other"
    assert cells.loc[other, "x"].isna().all()
    assert set(cells.loc[other, "y"]) == {7, 8}
    assert cells.loc[~other, "y"].isna().all()
    found = [(p["params"]["folder"], p["axes"]) for p in dataset_provenance(dataset)]
    assert sorted(found) == [("kernels/other", ["y"])] + 3 * [("kernels/tiny", ["x"])]
    names = [(p["kernel"], p["dtype"]) for p in partitions(dataset)]
    assert names == [("other", "float"), ("tiny", "double"), ("tiny", "float")]


def test_any_order_gives_the_same(shards: list[Path], dataset: Path, cells: pd.DataFrame) -> None:
    aggregate(shards[::-1], dataset)
    pd.testing.assert_frame_equal(cells, read_cells(dataset))
    aggregate(shards[:1], dataset)
    assert len(read_cells(dataset)) == 3
    assert [p for p in dataset.parent.iterdir() if p.is_dir() and p != dataset] == []


def test_models_are_mixed_only_where_they_were_recorded(shards: list[Path], tmp_path: Path) -> None:
    other = write(tmp_path / "other.parquet", {5: 5.0}, uuid="fake-1", model="Other GPU")
    aggregate([*shards, other], tmp_path / "dataset")
    assert len(read_cells(tmp_path / "dataset")) == 10
    aggregate(shards, tmp_path / "mine", one_model=True)
    with pytest.raises(AggregateError) as caught:
        aggregate([*shards, other], tmp_path / "mine", one_model=True)
    assert f"measured on '{INFO.name}', but '{other}' on 'Other GPU'" in str(caught.value)
    assert "Request one model from the scheduler" in str(caught.value)
    assert len(read_cells(tmp_path / "mine")) == 9


def test_a_flipped_bit_of_a_partition_is_refused_by_who_reads_it(dataset: Path) -> None:
    path = dataset / "kernel=tiny/dtype=float/part-0.parquet"
    path.write_bytes(flipped_in_a_page(path.read_bytes()))
    for read in (read_cells, read_medians):
        assert len(read(dataset, {"dtype": "double"})) == 3
        with pytest.raises(BadParquetError, match=f"^'{dataset}' cannot be read: .*CRC") as caught:
            read(dataset, {"kernel": ["tiny"], "dtype": "float", "status": "ok"})
        # It is set aside whole.
        assert caught.value.files == (dataset,)


@pytest.mark.parametrize("name", ["kernel=tiny/dtype=float/part-0.parquet", PROVENANCE])
@pytest.mark.parametrize("size", [0, 100, -1])
def test_the_damaged_file_of_a_data_set_is_named_with_the_remedy(
    name: str, size: int, dataset: Path
) -> None:
    path = dataset / name
    path.write_bytes(path.read_bytes()[:size])
    read = dataset_provenance if name == PROVENANCE else read_cells
    with pytest.raises(BadParquetError, match="--forcerun aggregate") as caught:
        read(dataset)
    assert f"'{path}'" in str(caught.value)
    assert caught.value.files == (dataset,)


def test_what_is_unusable_is_named(dataset: Path, shards: list[Path], tmp_path: Path) -> None:
    def refused(paths: list[Path], bad: list[Path]) -> str:
        with pytest.raises(AggregateError) as caught:
            aggregate(paths, dataset)
        assert set(caught.value.files) == set(bad)
        assert [p for p in paths if str(p) in str(caught.value)] == bad
        assert len(read_cells(dataset)) == 9
        return str(caught.value)

    assert "no shards" in refused([], [])
    # A cell twice: either file may be the wrong one.
    twin = write(tmp_path / "twin.parquet", {3: 3.0})
    key = read_shard(twin)[0].column("cell_key")[0].as_py()
    assert key in refused([*shards, twin], [shards[0], twin])
    shards[1].write_bytes(shards[1].read_bytes()[:-1])
    shards[2].write_bytes(b"PAR1")
    # Its pages are read later than the ends of the others.
    shards[3].write_bytes(flipped_in_a_page(shards[3].read_bytes()))
    refused(shards, shards[1:])


def test_readers_ask_for_rows_columns_and_medians(dataset: Path, cells: pd.DataFrame) -> None:
    found = read_cells(dataset, {"kernel": ["tiny"], "status": "ok"}, ["cell_key", "median_s"])
    assert list(found.columns) == ["cell_key", "median_s", "x", "y"]
    expected = cells[(cells["kernel"] == "tiny") & (cells["status"] == "ok")]
    assert list(found["cell_key"]) == list(expected["cell_key"])
    assert len(read_cells(dataset, {"dtype": "double", "x": 2})) == 1
    assert read_cells(dataset, {"kernel": []}).empty
    with pytest.raises(KeyError):
        read_cells(dataset, {"no_such_column": 1})
    assert len(matching(cells, {"kernel": "tiny", "dtype": "double", "x": 2})) == 1
    assert matching(cells, {"kernel": "tiny", "height": 5}).empty
    found = read_medians(dataset)
    lists = {"samples_s", "sampled_at_s"}
    assert list(found[SAMPLE_COUNT]) == [len(s) for s in cells["samples_s"]]
    left = [c for c in cells.columns if c not in lists]
    pd.testing.assert_frame_equal(found[left], cells[left])
    # Taken for an axis, only launches with as many samples were compared in float and double.
    assert axes_of(read_medians(dataset, {"kernel": "tiny"})) == ["x"]


BLOCKS = {"block_x": [8, 16, 32], "block_y": [1, 2, 4]}


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two devices of one name, two dtypes; each cell of float stands once for each device."""
    folder = tmp_path_factory.mktemp("shards")
    made = []
    for i, side in enumerate((64, 128)):
        for dtype, number in (("float", 1), ("float", 2), ("double", 1)):
            path, info = folder / f"{dtype}-{i}-{number}.parquet", other_device(number)
            where = {"problems": [Problem(side, side)], "axes": BLOCKS, "info": info}
            made.append(write_shard(path, "copy2d_coalesced", dtype, **where))
    return made


def test_the_same_shards_give_the_same_bytes(large: list[Path], tmp_path: Path) -> None:
    for name in ("one", "again"):
        aggregate(large, tmp_path / name)
    files = [p for p in sorted((tmp_path / "one").rglob("*")) if p.is_file()]
    assert len(files) == 3
    for path in files:
        again = tmp_path / "again" / path.relative_to(tmp_path / "one")
        assert again.read_bytes() == path.read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["again", "one"]


def test_a_doubled_cell_is_found(large: list[Path], tmp_path: Path) -> None:
    twin = tmp_path / "twin.parquet"
    table, metadata = read_shard(large[1])
    one = table.slice(5, 1)
    axes = {name: one.column(name).to_pylist() for name in BLOCKS}
    params = metadata["params"] | {"axes": axes, "variants": one.column("variant").to_pylist()}
    write_parquet(one, twin, metadata | {"params": params})
    with pytest.raises(AggregateError) as caught:
        aggregate([*large, twin], tmp_path / "dataset")
    assert table.column("cell_key")[5].as_py() in str(caught.value)
    assert set(caught.value.files) == {large[1], twin}
    assert [p.name for p in tmp_path.iterdir()] == ["twin.parquet"]


def write_repeat(folder: Path, repeat: int, times_s: Mapping[int, float], **options: Any) -> Path:
    """One of two repeats of a shard."""
    path = folder / options.get("kernel", "tiny") / f"{shard_name(0, 1, repeat)}.parquet"
    return write(path, times_s, **{"repeat": repeat, "repeats": 2, **options})


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
    assert row["repeat_rsd"] == pytest.approx(np.log(1.21) / np.sqrt(2))
    assert row["sample_half_width"] == pytest.approx(0.01 / np.sqrt(2), rel=0.01)
    assert row["median_low_s"] < 1.0 < 1.21 < row["median_high_s"]
    moved = row["bytes_read"] + row["bytes_written"]
    assert row["bandwidth_gbs"] == pytest.approx(moved * 1e-9 / 1.1)
    assert row["bandwidth_low_gbs"] == pytest.approx(moved * 1e-9 / row["median_high_s"])
    # In the middle of 1 and 4 ms.
    assert row["memcpy_gbs"] == pytest.approx(moved * 1e-9 / 2e-3)
    assert list(row["repeat_memcpy_gbs"]) == pytest.approx([moved * 1e-6, moved * 0.25e-6])
    assert row["vs_memcpy"] == pytest.approx(row["bandwidth_gbs"] / row["memcpy_gbs"])


def test_a_kernel_that_moves_nothing_has_times_and_no_bandwidth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Tiny, "bytes_moved", lambda *_: (0, 0))
    paths = [write_repeat(tmp_path, n, {1: 1.0, 2: 2.0}) for n in (1, 2)]
    cells = cells_of(paths, tmp_path)
    assert cells["median_s"].tolist() == pytest.approx([1.0, 2.0])
    assert cells[["bandwidth_gbs", "bandwidth_low_gbs", "bandwidth_high_gbs"]].isna().all(axis=None)


def test_what_was_measured_once_keeps_its_samples_interval(tmp_path: Path) -> None:
    """In a record put together of several: the spread of the others says nothing about it."""
    times = {x: float(x) for x in range(1, 40)}
    others = [write_repeat(tmp_path, n, {x: n * t for x, t in times.items()}) for n in (1, 2)]
    once = write(tmp_path / "once.parquet", {99: 1.0})
    for paths in ([once], [*others, once]):
        row, alone = cells_of(paths, tmp_path).loc[99], read_shard(once)[0].to_pylist()[0]
        assert (row["median_low_s"], row["median_high_s"]) == (0.99, 1.01)
        for name in ("group_low_s", "group_high_s", "coverage"):
            assert row[name] == alone[name]
        assert pd.isna(row["repeat_rsd"])


def test_a_machine_that_shakes_ties_cells_a_slower_one_does_not(tmp_path: Path) -> None:
    """All cells are 30 % slower in the second repeat; which is fastest stays as clear as before."""
    rng = np.random.default_rng(3)
    times = {x: 1.0 + 0.05 * x for x in range(1, 21)}
    again = {x: 1.3 * t * (1 + 0.001 * rng.standard_normal()) for x, t in times.items()}
    cells = cells_of([write_repeat(tmp_path, n, t) for n, t in ((1, times), (2, again))], tmp_path)
    assert (cells["median_high_s"] / cells["median_low_s"] > 2).all()
    assert list(tied_best(cells.reset_index())["x"]) == [1]
    # The winner of one repeat loses in the other: neither is the best.
    rng = np.random.default_rng(4)
    paths = [
        write_repeat(
            tmp_path,
            n,
            {x: (1 + 0.002 * x) * float(np.exp(0.05 * rng.normal())) for x in range(1, 41)},
        )
        for n in (1, 2)
    ]
    assert len(tied_best(cells_of(paths, tmp_path).reset_index())) > 20


def test_the_host_widens_no_interval(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Host-fed cells drift by 10 % between repeats, those of the device by 0.1 %."""
    monkeypatch.setattr(
        "gpushmoo.analysis.aggregate.is_host_fed", lambda folder: folder.endswith("fed")
    )
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
    aggregate(paths, tmp_path / "dataset")
    cells = read_cells(tmp_path / "dataset")
    widths = (cells["median_high_s"] / cells["median_low_s"]).groupby(cells["kernel"]).median()
    assert widths["tiny"] < 1.03
    assert widths["fed"] > 2.0


def test_a_kernel_says_by_its_workload_whether_the_host_feeds_it() -> None:
    fed = [is_host_fed(f"kernels/{name}") for name in ("dot_streamed", "dot_resident", "no_longer")]
    assert fed == [True, False, False]


@pytest.mark.parametrize("status", [Status.WRONG_RESULT, Status.TIMEOUT, Status.LAUNCH_FAILED])
def test_what_a_later_repeat_finds_wrong_counts(tmp_path: Path, status: Status) -> None:
    times = {1: 1.0, 2: 2.0, 3: 3.0}
    first = write_repeat(tmp_path, 1, times)
    second = write_repeat(tmp_path, 2, times, statuses={2: status})
    row = cells_of([first, second], tmp_path).loc[2]
    assert row["status"] == status
    assert row["message"] == "in repeat 2: why"
    assert pd.isna(row["bandwidth_gbs"])
    assert pd.isna(row["group_low_s"])
    assert len(row["samples_s"]) == len(SAMPLES)


@pytest.mark.parametrize("status", [Status.THROTTLED, Status.DEVICE_LOST])
def test_a_repeat_that_could_not_measure_takes_nothing_away(tmp_path: Path, status: Status) -> None:
    times = {x: float(x) for x in range(1, 40)}
    again = {x: t * (1.01 if x % 2 else 0.99) for x, t in times.items()}
    later = write_repeat(tmp_path, 2, again, statuses={2: status})
    row = cells_of([write_repeat(tmp_path, 1, times), later], tmp_path).loc[2]
    assert row["status"] == "ok"
    # But for what its rounds share: the others drifted by one per cent from the first repeat on.
    assert row["median_s"] == pytest.approx(2.0 * np.sqrt(1.01))
    assert list(row["repeat_samples"]) == [len(SAMPLES)]
    # What cells of its class vary by is known from the others.
    assert 1.005 < row["median_high_s"] / 2.0 < 1.1
    # Each of three repeats slows another third of the cells: as a whole none of them drifted.
    thirds = [{x: t * 1.03 ** (x % 3 == i) for x, t in times.items()} for i in range(3)]
    told = [{"repeats": 3, "statuses": bad} for bad in ({}, {}, {2: status})]
    files = [write_repeat(tmp_path, 1 + i, thirds[i], **told[i]) for i in range(3)]
    assert cells_of(files, tmp_path).loc[2, "median_s"] == pytest.approx(2.0)


def test_a_cell_that_lost_its_race_stands_beside_the_mean_of_all_repeats(tmp_path: Path) -> None:
    times = {x: 1.0 + x / 100 for x in range(1, 40)}
    # Another clock in the second repeat, which leaves out the slowest.
    again = {x: 1.21 * t for x, t in times.items() if x < 39}
    first, second = write_repeat(tmp_path, 1, times), write_repeat(tmp_path, 2, again)
    table, metadata = read_shard(first)
    samples = table.column("samples_s").to_pylist()
    slowest = int(np.argmax(table.column("median_s").to_numpy()))
    samples[slowest] = samples[slowest][:2]
    place = table.schema.get_field_index("samples_s")
    field = table.schema.field(place)
    table = table.set_column(place, field, pa.array(samples, field.type))
    write_parquet(table, first, metadata)
    cells = cells_of([first, second], tmp_path)
    assert cells["median_s"].to_numpy() == pytest.approx([1.1 * t for t in times.values()])
    lost, kept = cells.loc[39], cells.loc[38]
    assert len(lost["repeat_medians_s"]) == 1
    assert lost["vs_memcpy"] * times[39] == pytest.approx(1.1 * kept["vs_memcpy"] * times[38])
    # Its own interval is that of its samples: it was outrun in the same rounds.
    assert lost["group_high_s"] / lost["group_low_s"] == pytest.approx(max(SAMPLES) / min(SAMPLES))
    assert (
        lost["median_high_s"] / lost["median_low_s"] > kept["median_high_s"] / kept["median_low_s"]
    )


def test_cells_that_were_not_ok_at_first_stay_as_they_were(tmp_path: Path) -> None:
    first = write_repeat(tmp_path, 1, {1: 1.0, 2: 2.0}, statuses={2: Status.OUT_OF_RESOURCES})
    second = write_repeat(tmp_path, 2, {1: 1.0})
    cells = cells_of([first, second], tmp_path)
    assert dict(cells["status"]) == {1: "ok", 2: "out_of_resources"}
    assert cells.loc[2, "message"] == "why"


def test_repeats_that_do_not_fit_together_are_refused_with_their_names(tmp_path: Path) -> None:
    def refused(words: str) -> tuple[Path, ...]:
        with pytest.raises(AggregateError, match=words) as caught:
            aggregate(paths, tmp_path / "dataset")
        return tuple(caught.value.files)

    paths = [write_repeat(tmp_path, n, {1: 1.0}, repeats=3) for n in (1, 3)]
    assert refused("has repeats 1, 3; there must be 1 to 3") == tuple(paths)
    paths = [write_repeat(tmp_path, 1, {1: 1.0, 2: 1.0}), write_repeat(tmp_path, 2, {1: 1.0})]
    assert refused("lacks 1 of 2 cells") == (paths[1],)
    paths = [write_repeat(tmp_path, n, {1: 1.0}) for n in (1, 2)]
    paths[1].write_bytes(flipped_in_a_page(paths[1].read_bytes()))
    assert refused("repeat-2") == (paths[1],)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[pa.Table, dict[str, Any]]:
    """Cells and provenance of a shard as a measuring job writes it."""
    path = tmp_path_factory.mktemp("written") / "a.parquet"
    axes = {"block_x": [8, 16, 512], "block_y": [1, 4]}
    write_shard(path, "copy2d_coalesced", "float", problems=(Problem(64, 64),), axes=axes)
    return read_shard(path)


Written = tuple[pa.Table, dict[str, Any]]
NAME = "copies/float/0000-of-0001.parquet"


def plan_of(metadata: Mapping[str, Any]) -> RunPlan:
    return RunPlan({"copies": {"float": SweepPlan(ShardJob.of_plain(metadata["params"]))}})


def refusal(
    folder: Path, plan: RunPlan, table: pa.Table, metadata: dict[str, Any], name: str = NAME
) -> str:
    """The sentence that refuses a shard of this content, without its name."""
    path = folder / name
    write_parquet(table, path, metadata)
    with pytest.raises(AggregateError) as caught:
        aggregate([path], folder / "dataset", plan=plan)
    assert caught.value.files == (path,)
    assert not (folder / "dataset").exists()
    sentence = str(caught.value)
    assert sentence.startswith(f"'{path}' ")
    assert "\n" not in sentence
    return sentence.replace(str(path), "")


def change(values: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    """A copy with another value at a dotted place."""
    changed = inner = copy.deepcopy(values)
    *outer, last = key.split(".")
    for name in outer:
        inner = inner[name]
    inner[last] = value
    return changed


def test_a_planned_shard_is_admitted(written: Written, tmp_path: Path) -> None:
    table, metadata = written
    assert {Status.OK, Status.TOO_MANY_THREADS} == set(table.column("status").to_pylist())
    write_parquet(table, tmp_path / NAME, metadata)
    plan = plan_of(metadata)
    for one in (plan, RunPlan.from_plain(plan.as_plain()), None):
        aggregate([tmp_path / NAME], tmp_path / "dataset", plan=one)
    shards = record("nvidia-h200/block_eq_partition").rglob("*.parquet")
    aggregate(sorted(shards)[:4], tmp_path / "dataset")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("axes.block_x", [8, 16]),
        ("backend", "opencl"),
        ("cache_states", ["flushed"]),
        ("dtype", "double"),
        ("kernel_digest", "0123"),
        ("measure.repeats", 2),
        ("measure.cell_timeout_s", 1.0),
        ("repeat", 2),
        ("seed", 2),
        ("shard", [0, 2]),
        ("sizes", [[64, 65]]),
        ("variants", ["element"]),
    ],
)
def test_another_configuration(written: Written, tmp_path: Path, key: str, value: Any) -> None:
    table, metadata = written
    said = refusal(tmp_path, plan_of(metadata), table, change(metadata, f"params.{key}", value))
    assert f"was measured with {key} = " in said
    assert "but the run requires " in said


@pytest.mark.parametrize(
    "name",
    [
        "copies/float/0000-of-0002.parquet",
        "copies/float/0001-of-0001.parquet",
        "copies/float/0000-of-0001.repeat-1.parquet",
        "copies/float/0.parquet",
        "copies/double/0000-of-0001.parquet",
        "other/float/0000-of-0001.parquet",
    ],
)
def test_a_shard_of_another_name_is_none(written: Written, tmp_path: Path, name: str) -> None:
    said = refusal(tmp_path, plan_of(written[1]), *written, name)
    assert "does not belong to this run" in said


def with_value(table: pa.Table, column: str, value: Any) -> pa.Table:
    """With another value in the first row."""
    place, values = table.schema.get_field_index(column), table.column(column).to_pylist()
    field = table.schema.field(place)
    return table.set_column(place, field, pa.array([value, *values[1:]], field.type))


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda t, m: (t.slice(1), m), "lacks 1 of 12 cells"),
        (
            lambda t, m: (
                pa.concat_tables([t, with_value(t.slice(0, 1), "cell_key", "0123456789abcdef")]),
                m,
            ),
            "contains 1 cells that are not in the plan, 0123456789abcdef",
        ),
        (lambda t, m: (pa.concat_tables([t, t.slice(0, 1)]), m), "contains a cell twice"),
        (lambda t, m: (t, m | {"schema_version": 99}), "has schema version 99"),
        (
            lambda t, m: (t, {k: v for k, v in m.items() if k != "params"}),
            "has provenance metadata that cannot be read",
        ),
    ],
)
def test_a_shard_that_is_not_whole_is_refused(
    written: Written, tmp_path: Path, spoil: Callable[..., Written], said: str
) -> None:
    assert said in refusal(tmp_path, plan_of(written[1]), *spoil(*written))


def test_a_finished_run_is_its_data_set_until_a_shard_is_newer(run: Path, tmp_path: Path) -> None:
    paths = [run / SHARD.replace(DTYPE, dtype) for dtype in (DTYPE, "double")]
    for path, dtype in zip(paths, (DTYPE, "double"), strict=True):
        write_shard(path, KERNEL, dtype, axes=AXES)
    dataset = run / "dataset"
    with opened(run) as found:
        assert (found.finished, found.shards, found.plan) == (False, 2, None)
    aggregate(paths, dataset)
    for path in (*paths, dataset / PROVENANCE):
        os.utime(path, (1e9, 1e9))
    with opened(run) as found:
        assert (found.finished, found.dataset) == (True, dataset)
    # Measured again, and the data set not yet made again.
    os.utime(paths[1], (1e9 + 1, 1e9 + 1))
    with opened(run) as found:
        assert (found.finished, found.shards) == (False, 2)
        assert found.dataset != dataset
    # A shard is missing, as after `remeasure`: the run goes on.
    os.utime(paths[1], (1e9, 1e9))
    paths[0].unlink()
    with opened(run) as found:
        assert (found.finished, found.shards) == (False, 1)
        assert found.plan is not None
