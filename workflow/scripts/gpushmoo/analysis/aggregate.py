"""Shards into one hive-partitioned dataset, in bounded memory."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..core.run_plan import RunPlan
from ..core.schema import cell_schema
from ..core.space import first_repeat_of
from ..storage.dataset import PARTITION, PROVENANCE, with_axes_noted
from ..storage.store import BadParquetError, Shard, open_shard, read_shard
from ..storage.wholefile import UnusableFilesError, replaced_folder
from .admission import fault_of, fault_of_repeat
from .external_sort import KEY, RUN_BYTES, KeySorter
from .repeats import merged, shard_spread
from .statistics import Replicated, Spreads, run_spreads

# While rows are sorted: which of the shards each came from, for the sentence on doubled cells. An
# axis, whose name is an argument's of a kernel, cannot be called so.
_ORIGIN = pa.field("#shard", pa.int32(), nullable=False)


class AggregateError(UnusableFilesError):
    """The shards do not make one dataset; one sentence. `files` are those at fault."""


@dataclass(frozen=True)
class ShardFile:
    """What is kept of a checked shard: of a hundred thousand of them all provenance is too much.

    `paths` are its repeats, the first one first; `planned` is how many there were to be.
    """

    paths: tuple[Path, ...]
    planned: int
    axes: tuple[str, ...]
    partition: tuple[str, str]
    n_bytes: int

    @property
    def path(self) -> Path:
        """File of the first repeat, by which messages name the shard."""
        return self.paths[0]


def aggregate_run(
    shards: Sequence[Path],
    out: Path,
    one_model: bool,
    plan: Mapping[str, Any] | None,
    host_fed: Collection[str],
) -> None:
    """`aggregate` by a plan in plain values (`RunPlan.as_plain`)."""
    planned = None if plan is None else RunPlan.from_plain(plan)
    aggregate(shards, out, one_model, plan=planned, host_fed=host_fed)


def aggregate(
    paths: Sequence[Path],
    out: Path,
    one_model: bool = False,
    run_bytes: int = RUN_BYTES,
    plan: RunPlan | None = None,
    host_fed: Collection[str] = (),
) -> None:
    """Write the dataset ``out/kernel=…/dtype=…/part-0.parquet`` from shards.

    Every file has the same columns (the union of all axes, null where a kernel has none), so that
    a reader needs no schema merging; kernel and dtype stand in the path. Rows are sorted by key.
    The repeats of a shard become one row a cell, whose interval includes how far the repeats of the
    whole run lie apart (`analysis.statistics`): those of kernels in `host_fed`, whose data come
    from the host, and those of all others, each for themselves.
    Each shard must hold what `plan` says, or without one what its own parameters say
    (`analysis.admission`).
    Provenance of the shards goes along (see dataset_provenance). Of the rows about `run_bytes` are
    in memory at once, a few times over; the rest is sorted on disk beside `out`. Raises
    AggregateError for bad shards, naming each, for a doubled one, and for shards of several device
    models if they are all to be of `one_model`; OSError (no space). The old dataset then stays.
    """
    reader = _Reader(plan)
    shards = _opened(paths, reader)
    if not shards and not reader.bad:
        raise AggregateError("There are no shards to aggregate.")
    spreads = _spreads(shards, reader, host_fed)
    schema = cell_schema({axis for s in shards for axis in s.axes})
    with_origin = schema.append(_ORIGIN)
    with replaced_folder(out) as fresh:
        with pa.CompressedOutputStream(str(fresh / PROVENANCE), "zstd") as lines:
            for partition, group in groupby(shards, key=lambda s: s.partition):
                members = list(group)
                sizes = sum(s.n_bytes for s in members)
                with KeySorter(with_origin, fresh / ".runs", sizes, run_bytes) as sorter:
                    spread = spreads[partition[0] in host_fed]
                    for number, file in enumerate(members):
                        for batch in _rows(file, reader, spread, lines):
                            sorter.add(_widened(batch, with_origin, number))
                    if not reader.bad:
                        _write(sorter, members, schema, fresh, partition)
        if reader.bad:
            raise AggregateError(
                " ".join(dict.fromkeys(text for _, text in sorted(reader.bad)))
                + " Nothing of it was used.",
                list(dict.fromkeys(path for path, _ in sorted(reader.bad))),
            )
        if one_model:
            _refuse_mixture(reader.models)


class _Reader:
    """Reads shards, and admits each before the first use of its rows.

    `bad` are path and sentence of files that may not be used; `models` the shards that each device
    model measured.
    """

    def __init__(self, plan: RunPlan | None) -> None:
        self.plan = plan
        self.bad: list[tuple[Path, str]] = []
        self.models: dict[str, list[Path]] = {}
        self._admitted: set[ShardFile] = set()

    def repeats(self, file: ShardFile) -> list[tuple[pa.Table, dict[str, Any]]]:
        """Cells and provenance of each repeat of a shard; none where one may not be used."""
        before = len(self.bad)
        read = []
        for path in file.paths:
            try:
                read.append(read_shard(path))
            except BadParquetError as err:
                self.bad.append((path, str(err)))
        if len(self.bad) == before and file not in self._admitted:
            self._admit(file, read)
        return read if len(self.bad) == before else []

    def _admit(self, file: ShardFile, read: Sequence[tuple[pa.Table, dict[str, Any]]]) -> None:
        for path, (table, metadata) in zip(file.paths, read, strict=True):
            fault = fault_of(path, table, metadata, self.plan)
            if fault is None and path != file.path:
                fault = fault_of_repeat(*read[0], table)
            if fault is not None:
                self.bad.append((path, f"'{path}' {fault}."))
            for name in pc.unique(table.column("device_name")).to_pylist():
                self.models.setdefault(name, []).append(path)
        self._admitted.add(file)


def _opened(paths: Sequence[Path], reader: _Reader) -> list[ShardFile]:
    """The shards by partition and path.

    Of those of a run the plan says which repeats there are; recorded ones must have them all.
    """
    files: dict[Path, list[tuple[int, ShardFile]]] = {}
    for path in paths:
        try:
            repeat, file = _described(open_shard(path))
        except BadParquetError as err:
            reader.bad.append((path, str(err)))
        except (KeyError, TypeError, ValueError) as err:
            why = f"'{path}' carries a provenance that cannot be read ({err!r})."
            reader.bad.append((path, why))
        else:
            files.setdefault(first_repeat_of(path), []).append((repeat, file))
    shards = []
    for numbered_files in files.values():
        numbered_files.sort(key=lambda numbered: numbered[0])
        numbers, repeats = zip(*numbered_files, strict=True)
        expected = tuple(range(1, repeats[0].planned + 1))
        if reader.plan is None and numbers != expected and not reader.bad:
            present = ", ".join(map(str, numbers))
            fault = f"'{repeats[0].path}' has repeats {present}; there must be 1 to {expected[-1]}."
            reader.bad += [(file.path, fault) for file in repeats]
        joined = tuple(file.path for file in repeats)
        n_bytes = sum(file.n_bytes for file in repeats)
        shards.append(replace(repeats[0], paths=joined, n_bytes=n_bytes))
    return sorted(shards, key=lambda s: (s.partition, s.path))


def _described(shard: Shard) -> tuple[int, ShardFile]:
    """Which repeat a shard is, and what is kept of it. Raises KeyError, TypeError, ValueError."""
    params = shard.metadata["params"]
    partition = (str(Path(params["folder"]).name), str(params["dtype"]))
    planned = int(params["measure"]["repeats"])
    axes = tuple(shard.metadata["axes"])
    return int(params["repeat"]), ShardFile((shard.path,), planned, axes, partition, shard.n_bytes)


def _spreads(
    shards: Sequence[ShardFile], reader: _Reader, host_fed: Collection[str]
) -> dict[bool, Spreads | None]:
    """What all repeats of the run tell of their spread, of host-fed kernels (True) and of others.

    What the host's memory and bus do from one repeat to the next says nothing of data that lie on
    the device.
    """
    repeated: dict[bool, list[Replicated]] = {False: [], True: []}
    for file in shards:
        if len(file.paths) > 1 and (read := reader.repeats(file)):
            kind = file.partition[0] in host_fed
            repeated[kind] += shard_spread([table for table, _ in read])
    return {kind: run_spreads(found) for kind, found in repeated.items()}


def _rows(
    file: ShardFile, reader: _Reader, spread: Spreads | None, lines: pa.NativeFile
) -> Iterator[pa.RecordBatch]:
    """A shard's cells, one row for all repeats; their provenance goes to `lines`.

    From the first bad one on shards are read only to name all that are bad.
    """
    read = reader.repeats(file)
    if reader.bad:
        return
    for _, metadata in read:
        lines.write(json.dumps(metadata, sort_keys=True).encode() + b"\n")
    # What was to be measured once has the interval of its samples, whatever else there is.
    tables = [table for table, _ in read]
    yield from merged(tables, spread if file.planned > 1 else None).to_batches()


def _widened(batch: pa.RecordBatch, schema: pa.Schema, number: int) -> pa.RecordBatch:
    """The rows with all columns of `schema`, the shard's `number` among them."""
    names = set(batch.schema.names)
    columns = [
        batch.column(f.name) if f.name in names else pa.nulls(len(batch), f.type)
        for f in schema
        if f.name != _ORIGIN.name
    ]
    origin = pa.repeat(pa.scalar(number, _ORIGIN.type), len(batch))
    return pa.record_batch([*columns, origin], schema=schema)


def _write(
    sorter: KeySorter,
    shards: Sequence[ShardFile],
    schema: pa.Schema,
    dataset: Path,
    partition: tuple[str, str],
) -> None:
    """Write the rows of a partition, a range of keys as a row group."""
    kernel, dtype = partition
    folder = dataset / f"kernel={kernel}" / f"dtype={dtype}"
    folder.mkdir(parents=True)
    in_file = with_axes_noted(pa.schema([f for f in schema if f.name not in PARTITION]))
    with pq.ParquetWriter(
        folder / "part-0.parquet", in_file, compression="zstd", write_page_checksum=True
    ) as writer:
        for table in sorter.tables():
            _refuse_doubles(table, shards)
            writer.write_table(table.select(in_file.names).cast(in_file))


def _refuse_doubles(table: pa.Table, shards: Sequence[ShardFile]) -> None:
    """The same cell measured twice on one device must not count twice. `table` is sorted by key."""
    keys = table.column(KEY)
    # Most keys stand once, and only those that do not need a look at the device.
    again = pc.equal(keys.slice(1), keys.slice(0, max(0, len(keys) - 1)))
    if not pc.any(again).as_py():
        return
    seen: dict[tuple[str, str], int] = {}
    places = pc.indices_nonzero(again).to_numpy()
    some = table.select([KEY, "device_uuid", _ORIGIN.name])
    some = some.take(sorted({*places.tolist(), *(places + 1).tolist()}))
    for key, device, number in zip(*(c.to_pylist() for c in some.columns), strict=True):
        if (key, device) in seen:
            first, second = shards[seen[key, device]].path, shards[number].path
            raise AggregateError(
                f"Cell {key} stands in '{first}' and in '{second}'; neither was used.",
                [first, second],
            )
        seen[key, device] = number


def _refuse_mixture(models: Mapping[str, Sequence[Path]]) -> None:
    """A sweep of which each of two device models has a part would look whole and be none."""
    if len(models) < 2:
        return
    most = max(sorted(models), key=lambda model: len(models[model]))
    others = [(m, path) for m in sorted(models) if m != most for path in models[m]]
    named = ", ".join(f"'{path}' on '{model}'" for model, path in others)
    raise AggregateError(
        f"The run was measured on '{most}', but {named}; a run is of one device model. "
        "Nothing was used: ask the scheduler for one model.",
        [path for _, path in others],
    )
