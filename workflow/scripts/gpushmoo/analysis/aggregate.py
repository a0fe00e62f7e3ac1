"""Shards into one hive-partitioned dataset; the rows of one kernel and type are in memory at once.

Only shards count that were measured for this run and hold the cells of its plan: one may be left
over from another configuration or copied from another run. So parameters are compared with the
plan, and cells with those that the parameters make. Values are not judged.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from .. import __name__ as library
from ..core.display import one_line
from ..core.errors import WorkloadError
from ..core.paths import ROOT
from ..core.run_plan import PLAN_FILE, RunPlan, fully_sampled
from ..core.schema import UNLISTED, cell_schema
from ..core.space import (
    TYPICAL,
    Cell,
    Problem,
    asks_the_device,
    expand_axis,
    first_repeat_of,
    space_of,
)
from ..storage.dataset import PARTITION, PROVENANCE, finished_dataset, with_axes_noted
from ..storage.store import BadParquetError, Shard, open_shard, read_shard, unpacked
from ..storage.wholefile import DamagedFileError, UnusableFilesError, read_json, replaced_folder
from ..workloads.host_fed import HostFedWorkload
from ..workloads.loader import KernelFolderError, load_kernel
from .repeats import merged, shard_spread
from .statistics import Replicated, RunSpreads, run_spreads

# While rows are sorted: the number of the shard of each. No axis can be called so.
_SHARD = pa.field("#shard", pa.int32(), nullable=False)
_ORDER = [("cell_key", "ascending"), (_SHARD.name, "ascending")]


class AggregateError(UnusableFilesError):
    """The shards do not make one dataset; one sentence. `files` are those at fault."""


@dataclass(frozen=True)
class ShardFile:
    """A shard without its provenance, which of a hundred thousand of them is too much to hold.

    `paths` are its repeats in order; there should be `planned` of them.
    """

    paths: tuple[Path, ...]
    planned: int
    axes: tuple[str, ...]
    partition: tuple[str, str]
    host_fed: bool

    @property
    def path(self) -> Path:
        """File of the first repeat, by which messages name the shard."""
        return self.paths[0]


def aggregate_run(
    shards: Sequence[Path], out: Path, one_model: bool, plan: Mapping[str, Any] | None
) -> None:
    """`aggregate` by a plan in plain values (`RunPlan.as_plain`)."""
    planned = None if plan is None else RunPlan.from_plain(plan)
    aggregate(shards, out, one_model, plan=planned)


def aggregate(
    paths: Sequence[Path],
    out: Path,
    one_model: bool = False,
    plan: RunPlan | None = None,
) -> None:
    """Write the dataset ``out/kernel=…/dtype=…/part-0.parquet`` from shards.

    Every file has all columns, null where a kernel has no such axis; rows are sorted by key. The
    repeats of a shard become one row a cell, whose interval includes how far the run's repeats lie
    apart; host-fed kernels count for themselves, as the host does not drift as the device does.
    Each shard must hold what `plan` says, or its own parameters. Raises AggregateError, naming each
    bad shard; the old dataset then stays.
    """
    bad: list[tuple[Path, str]] = []
    shards = _opened(paths, plan, bad)
    models: dict[str, list[Path]] = {}
    repeated: dict[bool, list[Replicated]] = {False: [], True: []}
    for shard in shards:
        tables = _checked(shard, plan, bad)
        for path, table in zip(shard.paths, tables, strict=False):
            for name in pc.unique(table.column("device_name")).to_pylist():
                models.setdefault(name, []).append(path)
        if len(tables) > 1:
            repeated[shard.host_fed] += shard_spread(tables)
    if bad:
        sentences = dict.fromkeys(text for _, text in sorted(bad))
        files = list(dict.fromkeys(path for path, _ in sorted(bad)))
        raise AggregateError(" ".join(sentences) + " Nothing of it was used.", files)
    if not shards:
        raise AggregateError("There are no shards to aggregate.")
    if one_model:
        _refuse_mixture(models)
    spreads = {host_fed: run_spreads(found) for host_fed, found in repeated.items()}
    schema = cell_schema({axis for shard in shards for axis in shard.axes})
    with (
        replaced_folder(out) as fresh,
        pa.CompressedOutputStream(str(fresh / PROVENANCE), "zstd") as lines,
    ):
        for partition, group in groupby(shards, key=lambda shard: shard.partition):
            members = list(group)
            rows = (
                _widened(batch, schema, number)
                for number, shard in enumerate(members)
                for batch in _rows(shard, spreads[shard.host_fed], lines)
            )
            table = pa.Table.from_batches(rows, schema=schema.append(_SHARD)).sort_by(_ORDER)
            _refuse_doubles(table, members)
            _write(table, schema, fresh, partition)


def _opened(
    paths: Sequence[Path], plan: RunPlan | None, bad: list[tuple[Path, str]]
) -> list[ShardFile]:
    """The shards by partition and path; what cannot be opened goes to `bad`, with a sentence."""
    files: dict[Path, list[tuple[int, ShardFile]]] = {}
    for path in paths:
        try:
            repeat, file = _described(open_shard(path))
        except BadParquetError as err:
            bad.append((path, str(err)))
        except (KeyError, TypeError, ValueError) as err:
            why = f"'{path}' carries a provenance that cannot be read ({err!r})."
            bad.append((path, why))
        else:
            files.setdefault(first_repeat_of(path), []).append((repeat, file))
    shards = []
    for numbered_files in files.values():
        numbered_files.sort(key=lambda numbered: numbered[0])
        numbers, repeats = zip(*numbered_files, strict=True)
        expected = tuple(range(1, repeats[0].planned + 1))
        if plan is None and numbers != expected and not bad:
            present = ", ".join(map(str, numbers))
            fault = f"'{repeats[0].path}' has repeats {present}; there must be 1 to {expected[-1]}."
            bad += [(file.path, fault) for file in repeats]
        joined = tuple(file.path for file in repeats)
        shards.append(replace(repeats[0], paths=joined))
    return sorted(shards, key=lambda s: (s.partition, s.path))


def _described(shard: Shard) -> tuple[int, ShardFile]:
    """The number of its repeat, and the shard. Raises KeyError, TypeError, ValueError."""
    params = shard.metadata["params"]
    file = ShardFile(
        paths=(shard.path,),
        planned=int(params["measure"]["repeats"]),
        axes=tuple(shard.metadata["axes"]),
        partition=(str(Path(params["folder"]).name), str(params["dtype"])),
        host_fed=is_host_fed(params["folder"]),
    )
    return int(params["repeat"]), file


@cache
def is_host_fed(folder: str) -> bool:
    """Whether the kernel's data come from the host; False of one that is no longer there."""
    try:
        return isinstance(load_kernel(ROOT / folder).workload, HostFedWorkload)
    except (KernelFolderError, WorkloadError):
        return False


def _checked(shard: ShardFile, plan: RunPlan | None, bad: list[tuple[Path, str]]) -> list[pa.Table]:
    """The cells of each repeat, none where one may not be used; then `bad` says why."""
    before = len(bad)
    read = []
    for path in shard.paths:
        try:
            read.append(read_shard(path))
        except BadParquetError as err:
            bad.append((path, str(err)))
    if len(bad) == before:
        for path, (table, metadata) in zip(shard.paths, read, strict=True):
            fault = fault_of(path, table, metadata, plan)
            if fault is None and path != shard.path:
                fault = fault_of_repeat(*read[0], table)
            if fault is not None:
                bad.append((path, f"'{path}' {fault}."))
    return [table for table, _ in read] if len(bad) == before else []


def _rows(
    shard: ShardFile, spread: RunSpreads | None, lines: pa.NativeFile
) -> Iterator[pa.RecordBatch]:
    """A shard's cells, one row for all repeats; their provenance goes to `lines`."""
    tables = []
    for path in shard.paths:
        table, metadata = read_shard(path)
        lines.write(json.dumps(metadata, sort_keys=True).encode() + b"\n")
        tables.append(table)
    # What was to be measured once has the interval of its samples, whatever else there is.
    yield from merged(tables, spread if shard.planned > 1 else None).to_batches()


def _widened(batch: pa.RecordBatch, schema: pa.Schema, number: int) -> pa.RecordBatch:
    """The rows with all columns of `schema`, and the number of their shard."""
    names = set(batch.schema.names)
    columns = [
        batch.column(f.name) if f.name in names else pa.nulls(len(batch), f.type) for f in schema
    ]
    numbers = pa.repeat(pa.scalar(number, _SHARD.type), len(batch))
    return pa.record_batch([*columns, numbers], schema=schema.append(_SHARD))


def _write(table: pa.Table, schema: pa.Schema, dataset: Path, partition: tuple[str, str]) -> None:
    """Write the rows of a partition."""
    kernel, dtype = partition
    folder = dataset / f"kernel={kernel}" / f"dtype={dtype}"
    folder.mkdir(parents=True)
    in_file = with_axes_noted(pa.schema([f for f in schema if f.name not in PARTITION]))
    with pq.ParquetWriter(
        folder / "part-0.parquet", in_file, compression="zstd", write_page_checksum=True
    ) as writer:
        writer.write_table(table.select(in_file.names).cast(in_file))


def _refuse_doubles(table: pa.Table, shards: Sequence[ShardFile]) -> None:
    """Raise AggregateError if two files have the same cell of one device."""
    found = table.group_by(["cell_key", "device_uuid"]).aggregate(
        [(_SHARD.name, how) for how in ("count", "min", "max")]
    )
    twice = found.filter(pc.field(f"{_SHARD.name}_count") > 1).slice(0, 1).to_pylist()
    for cell in twice:
        files = [shards[cell[f"{_SHARD.name}_{end}"]].path for end in ("min", "max")]
        raise AggregateError(
            f"Cell {cell['cell_key']} stands in '{files[0]}' and in '{files[1]}'; neither was "
            "used.",
            files,
        )


def _refuse_mixture(models: Mapping[str, Sequence[Path]]) -> None:
    """Refuse shards of several device models: parts of two sweeps would look like a whole one."""
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


# Characters of a value in a sentence.
_MOST_SHOWN = 60


def fault_of(
    path: Path, table: pa.Table, metadata: Mapping[str, Any], plan: RunPlan | None
) -> str | None:
    """Why the shard in `path` must not be used, as a clause behind its name; None if it may."""
    try:
        if plan is not None:
            job = plan.job(path)
            if job is None:
                return "is no shard of this run"
            if metadata["params"] != job.plain:
                key, *values = _difference("", metadata["params"], job.plain)
                measured, asked = (one_line(repr(value), _MOST_SHOWN) for value in values)
                return f"was measured with {key} = {measured}, and the run asks for {asked}"
        return _fault_of_cells(table, metadata)
    except (KeyError, TypeError, ValueError, AttributeError) as err:
        # Its parameters do not have the form in which we write them.
        return f"carries a provenance that cannot be read ({type(err).__name__}: {err})"


def fault_of_repeat(first: pa.Table, metadata: Mapping[str, Any], later: pa.Table) -> str | None:
    """What is wrong with a later repeat of the shard whose first repeat is `first`."""
    whole = fully_sampled(first, metadata["params"]["measure"])
    measured = set(first.filter(whole).column("cell_key").to_pylist())
    return _fault_of_keys(measured, set(later.column("cell_key").to_pylist()))


def _difference(key: str, params: Any, planned: Any) -> tuple[str, Any, Any]:
    """The innermost key at which two different values differ, with its value in each."""
    if isinstance(params, Mapping) and isinstance(planned, Mapping):
        for name in sorted({*params, *planned}):
            measured, wanted = params.get(name), planned.get(name)
            if measured != wanted:
                return _difference(f"{key}.{name}" if key else name, measured, wanted)
    return key or "params", params, planned


def _fault_of_cells(table: pa.Table, metadata: Mapping[str, Any]) -> str | None:
    """Whether the rows are the cells of the shard's parameters; of a later repeat some of them."""
    params = metadata["params"]
    resolved: Mapping[str, list[int]] = metadata.get("resolved_axes", {})
    values = {
        axis: resolved[axis] if asks_the_device(spec) else expand_axis(spec, TYPICAL)
        for axis, spec in params["axes"].items()
    }
    # All repeats of a shard have the same.
    alike = {name: value for name, value in params.items() if name != "repeat"}
    alike["sizes"] = metadata.get("resolved_sizes", params["sizes"])
    if UNLISTED in metadata:
        is_counted = params["repeat"] == 1 and not resolved
        return _fault_of_some(table, alike, values, metadata[UNLISTED] if is_counted else None)
    planned = _planned_keys(json.dumps([alike, values], sort_keys=True))
    keys = set(table.column("cell_key").to_pylist())
    return _fault_of_keys(planned if params["repeat"] == 1 else planned & keys, keys)


def _fault_of_some(
    table: pa.Table,
    params: Mapping[str, Any],
    values: Mapping[str, list[int]],
    unlisted: int | None,
) -> str | None:
    """Whether the rows are cells of a space in which `unlisted` others have no row.

    None if the number of all cells is not known.
    """
    space = space_of(params)
    kernel = Path(params["folder"]).name
    groups = {base.group for base in space.bases(kernel)}
    allowed = {axis: frozenset(of_axis) for axis, of_axis in values.items()}
    for row in table.drop_columns(["samples_s", "sampled_at_s"]).to_pylist():
        chosen = tuple((axis, row[axis]) for axis in sorted(allowed))
        problem = Problem(row["height"], row["width"])
        met = (row["cache_state"], row["timing_mode"])
        cell = Cell(kernel, space.dtype, row["variant"], problem, chosen, *met)
        is_inside = cell.group in groups and all(at in allowed[axis] for axis, at in chosen)
        if not is_inside or cell.key != row["cell_key"]:
            return f"holds cells that were not to be measured, {row['cell_key']} for one"
    expected = math.prod(map(len, values.values()), start=len(groups)) - (unlisted or 0)
    if unlisted is not None and len(table) != expected:
        return f"has {len(table)} of {expected} cells"
    return None


@lru_cache(maxsize=1)
def _planned_keys(text: str) -> frozenset[str]:
    """The keys of the cells of a shard with these parameters and axes' values."""
    params, values = json.loads(text)
    cells = space_of(params).cells(Path(params["folder"]).name, values)
    return frozenset(cell.key for cell in cells)


def _fault_of_keys(planned: AbstractSet[str], keys: AbstractSet[str]) -> str | None:
    missing, extra = sorted(planned - keys), sorted(keys - planned)
    if missing:
        return f"lacks {len(missing)} of {len(planned)} cells, {missing[0]} for one"
    if extra:
        return f"holds {len(extra)} cells that were not to be measured, {extra[0]} for one"
    return None


CELLS = "cells"


class OpenedError(ValueError):
    """What was named holds no data set; one sentence."""


@dataclass(frozen=True)
class OpenedSet:
    """A data set and its run's name; `plan`, and `shards` so far, of a run that still goes on."""

    dataset: Path
    name: str
    finished: bool = False
    plan: RunPlan | None = None
    shards: int = 0


@contextmanager
def opened(place: Path) -> Iterator[OpenedSet]:
    """The data set that `place` is, or that is made of the shards in it for as long as needed.

    `place` is a run's folder (``results/NAME``), the folder of its data set, or one of shards. Of a
    run that still goes on the finished shards are taken. Raises OpenedError, one sentence.
    """
    named = place
    name = place.resolve().name
    try:
        place = unpacked(place)
    except (BadParquetError, OSError) as err:
        raise OpenedError(f"'{named}' cannot be unpacked: {err}") from err
    if not place.exists():
        raise OpenedError(f"'{named}' does not exist; name a run's folder, such as results/local.")
    if not place.is_dir():
        raise OpenedError(f"'{named}' is a file; name the folder of a run or of a data set.")
    if (place / PROVENANCE).is_file():
        yield OpenedSet(place, name)
        return
    rendered = finished_dataset(place)
    if rendered is not None and not (place / PLAN_FILE).is_file():
        # Of a recorded data set, whose shards lie elsewhere.
        yield OpenedSet(rendered, name, finished=True)
        return
    shards, plan = _shards(place)
    partial = plan is not None and len(shards) < count_planned(plan)
    if not partial and (finished := _finished(place)) is not None:
        yield OpenedSet(finished, name, finished=True)
        return
    with TemporaryDirectory(prefix=f"{library}-") as folder:
        dataset = Path(folder) / "dataset"
        try:
            aggregate(shards, dataset, plan=plan)
        except AggregateError as err:
            raise OpenedError(str(err)) from err
        yield OpenedSet(dataset, name, plan=plan if partial else None, shards=len(shards))


def _shards(place: Path) -> tuple[list[Path], RunPlan | None]:
    """The finished shards in `place`, and the plan of the run, if it is a run's folder."""
    plan_file = place / PLAN_FILE
    if not plan_file.is_file():
        inside = ((path, path.relative_to(place).parts) for path in place.rglob("*.parquet"))
        found = sorted(p for p, parts in inside if not any(x[0] in "._" for x in parts))
        if not found:
            raise OpenedError(
                f"'{place}' holds neither a data set nor shards; name a run's folder, such as "
                "results/local, or that of a recorded data set."
            )
        return found, None
    try:
        plan = RunPlan.from_plain(read_json(plan_file))
    except (DamagedFileError, KeyError, TypeError, AttributeError) as err:
        raise OpenedError(f"'{plan_file}' cannot be read ({err}); start the run again.") from err
    files = [place / CELLS / path for path in _planned_paths(plan)]
    shards = [path for path in files if path.is_file() and _is_of(plan, path)]
    if not shards:
        raise OpenedError(f"'{place}' has no finished shard yet; try again when one is there.")
    return shards, plan


def _is_of(plan: RunPlan, path: Path) -> bool:
    """Whether a shard is what the plan asks for; an earlier configuration may have left another."""
    try:
        job = plan.job(path)
        return job is not None and open_shard(path).metadata.get("params") == job.plain
    except BadParquetError:
        return False


def _planned_paths(plan: RunPlan) -> Iterator[str]:
    for sweep, dtypes in plan.sweeps.items():
        for dtype, planned in dtypes.items():
            yield from (f"{sweep}/{dtype}/{file}" for file, _ in planned.shards())


def count_planned(plan: RunPlan) -> int:
    """How many shards a run is to have."""
    return sum(1 for _ in _planned_paths(plan))


def _finished(place: Path) -> Path | None:
    """The data set of a finished run, if it is newer than the shards."""
    found = finished_dataset(place)
    if found is None:
        return None
    shards = (path.stat().st_mtime for path in (place / CELLS).rglob("*.parquet"))
    return found if max(shards, default=-math.inf) <= (found / PROVENANCE).stat().st_mtime else None
