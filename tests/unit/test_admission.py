"""What is no shard of the run is refused with its name."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from conftest import record
from gpushmoo.analysis.aggregate import AggregateError, aggregate
from gpushmoo.core.run_plan import RunPlan, SweepPlan
from gpushmoo.core.schema import Status
from gpushmoo.core.space import Problem
from gpushmoo.storage.store import read_shard, write_parquet
from synthetic import write_shard

AXES = {"block_x": [8, 16, 512], "block_y": [1, 4]}


@dataclass
class Shard:
    """A shard in a run's folder, and the run's plan."""

    path: Path
    plan: RunPlan

    @property
    def table(self) -> pa.Table:
        return read_shard(self.path)[0]

    @property
    def metadata(self) -> dict[str, Any]:
        return read_shard(self.path)[1]

    def write(self, table: pa.Table | None = None, metadata: Any = None) -> None:
        """Rewrite it."""
        table = self.table if table is None else table
        metadata = self.metadata if metadata is None else metadata
        write_parquet(table, self.path, metadata)

    def set(self, column: str, row: int, value: Any) -> None:
        """Set a value and write the shard anew."""
        table = self.table
        place = table.schema.get_field_index(column)
        values = table.column(column).to_pylist()
        values[row] = value
        field = table.schema.field(place)
        self.write(table.set_column(place, field, pa.array(values, field.type)))

    def refusal(self) -> str:
        """The sentence with which it is refused, which names it, without its name."""
        out = self.path.parents[3] / "dataset"
        with pytest.raises(AggregateError) as caught:
            aggregate([self.path], out, plan=self.plan)
        assert caught.value.files == (self.path,)
        assert not out.exists()
        sentence = str(caught.value)
        assert sentence.startswith(f"'{self.path}' ")
        assert "\n" not in sentence
        return sentence.replace(str(self.path), "")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """What a measuring job wrote."""
    path = tmp_path_factory.mktemp("written") / "a.parquet"
    write_shard(path, "copy2d_coalesced", "float", problems=(Problem(64, 64),), axes=AXES)
    return path.read_bytes()


@pytest.fixture
def shard(written: bytes, tmp_path: Path) -> Shard:
    path = tmp_path / "cells/copies/float/0000-of-0001.parquet"
    path.parent.mkdir(parents=True)
    path.write_bytes(written)
    params = read_shard(path)[1]["params"]
    common = {k: v for k, v in params.items() if k not in ("shard", "repeat")}
    return Shard(path, RunPlan({"copies": {"float": SweepPlan(common, 1)}}))


def test_a_shard_as_it_was_planned_is_admitted(shard: Shard, tmp_path: Path) -> None:
    statuses = shard.table.column("status").to_pylist()
    assert {Status.OK, Status.TOO_MANY_THREADS} == set(statuses)
    for plan in (shard.plan, RunPlan.from_plain(shard.plan.as_plain()), None):
        aggregate([shard.path], tmp_path / "dataset", plan=plan)


def test_the_record_is_admitted_whole(tmp_path: Path) -> None:
    # Those whose axes depend on the device; the documentation's tests read the others.
    shards = record("nvidia-h200/block_eq_partition").rglob("*.parquet")
    aggregate(sorted(shards), tmp_path / "dataset")


def change(values: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    """A copy with another value at a dotted place."""
    changed = inner = copy.deepcopy(values)
    *outer, last = key.split(".")
    for name in outer:
        inner = inner[name]
    inner[last] = value
    return changed


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("axes.block_x", [8, 16]),
        ("backend", "opencl"),
        ("cache_states", ["flushed"]),
        ("dtype", "double"),
        ("kernel_digest", "0123"),
        ("measure.repeats", 2),
        ("measure.timeout_s", 1.0),
        ("repeat", 2),
        ("seed", 2),
        ("shard", [0, 2]),
        ("sizes", [[64, 65]]),
        ("variants", ["element"]),
    ],
)
def test_a_shard_of_another_configuration_is_refused(shard: Shard, key: str, value: Any) -> None:
    metadata = shard.metadata
    metadata["params"] = change(metadata["params"], key, value)
    metadata["kernel_digest"] = metadata["params"]["kernel_digest"]
    shard.write(metadata=metadata)
    said = shard.refusal()
    assert f"was measured with {key} = " in said
    assert "and the run asks for " in said


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
def test_a_shard_of_another_name_is_none_of_the_run(shard: Shard, name: str) -> None:
    moved = shard.path.parents[2] / name
    moved.parent.mkdir(parents=True, exist_ok=True)
    shard.path.rename(moved)
    assert "is no shard of this run" in Shard(moved, shard.plan).refusal()


def without_a_row(shard: Shard) -> None:
    shard.write(shard.table.slice(1))


def with_a_foreign_row(shard: Shard) -> None:
    row = shard.table.slice(0, 1).to_pylist()[0] | {"cell_key": "0123456789abcdef"}
    foreign = pa.Table.from_pylist([row], schema=shard.table.schema)
    shard.write(pa.concat_tables([shard.table, foreign]))


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (without_a_row, "lacks 1 of 12 cells"),
        (with_a_foreign_row, "holds 1 cells that were not to be measured, 0123456789abcdef"),
        (lambda s: s.write(pa.concat_tables([s.table, s.table.slice(0, 1)])), "holds a cell twice"),
        (lambda s: s.write(metadata=s.metadata | {"schema_version": 5}), "has schema version 5"),
        (
            lambda s: s.write(metadata={k: v for k, v in s.metadata.items() if k != "params"}),
            "carries a provenance that cannot be read",
        ),
        (
            lambda s: s.write(metadata=change(s.metadata, "device.uuid", "GPU-7")),
            "another device_uuid than its provenance tells",
        ),
    ],
)
def test_a_shard_that_is_not_whole_is_refused(
    shard: Shard, spoil: Callable[[Shard], None], said: str
) -> None:
    spoil(shard)
    assert said in shard.refusal()


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("status", "banana"),
        *(("kernel", "other"), ("dtype", "double"), ("variant", "v"), ("height", 65)),
        *(("cache_state", "flushed"), ("launch_kind", "isolated"), ("block_x", 9)),
        *(("device_uuid", "GPU-7"), ("device_name", "Another GPU"), ("backend", "opencl")),
    ],
)
def test_a_row_of_another_cell_or_device_is_refused(shard: Shard, column: str, value: Any) -> None:
    shard.set(column, 0, value)
    assert shard.refusal().startswith("'' h")


def test_every_bad_shard_is_named(shard: Shard, tmp_path: Path) -> None:
    other = shard.path.with_name("0001-of-0001.parquet")
    other.write_bytes(shard.path.read_bytes())
    without_a_row(shard)
    with pytest.raises(AggregateError) as caught:
        aggregate([shard.path, other], tmp_path / "dataset", plan=shard.plan)
    assert set(caught.value.files) == {shard.path, other}
