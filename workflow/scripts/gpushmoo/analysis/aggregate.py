"""Combine shards into one hive-partitioned data set, with one kernel and type in memory at a time.

A folder can contain shards of an earlier configuration or of another run. So this module compares
the parameters of each shard with the plan, and its cells with the cells that these parameters make.
It rejects a shard that differs. It does not judge the measured values.
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
from ..core.errors import (
    AggregateError,
    BadParquetError,
    DamagedFileError,
    KernelFolderError,
    OpenedError,
    WorkloadError,
)
from ..core.paths import ROOT
from ..core.run_plan import PLAN_FILE, RunPlan, fully_sampled
from ..core.schema import UNLISTED, cell_schema
from ..core.space import (
    TYPICAL,
    Cell,
    Problem,
    expand_axis,
    first_repeat_of,
    needs_device,
    space_of,
)
from ..storage.dataset import (
    PARTITION,
    PROVENANCE,
    data_sets_in,
    finished_dataset,
    with_axes_noted,
)
from ..storage.store import Shard, open_shard, read_shard, unpacked
from ..storage.wholefile import read_json, replaced_folder
from ..workloads.host_fed import HostFedWorkload
from ..workloads.loader import load_kernel
from .repeats import merged, shard_spread
from .statistics import Replicated, RunSpreads, run_spreads

# Column that sorting needs: the number of each row's shard. The name of an axis cannot contain `#`.
_SHARD = pa.field("#shard", pa.int32(), nullable=False)
_ORDER = [("cell_key", "ascending"), (_SHARD.name, "ascending")]
# Folders that an error message names.
_MAX_NAMES = 4


@dataclass(frozen=True)
class ShardFile:
    """A shard without its provenance, which would not fit in memory for a hundred thousand shards.

    `paths` are the files of its repeats in order. A complete shard has `planned` of them.
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
    """Call `aggregate` with a plan of plain values, as `RunPlan.as_plain` returns it."""
    planned = None if plan is None else RunPlan.from_plain(plan)
    aggregate(shards, out, one_model, plan=planned)


def aggregate(
    paths: Sequence[Path],
    out: Path,
    one_model: bool = False,
    plan: RunPlan | None = None,
) -> None:
    """Write the data set ``out/kernel=…/dtype=…/part-0.parquet`` from shards.

    Every file has all columns, with nulls if a kernel does not have an axis. Rows are sorted by
    `cell_key`. The repeats of a shard become one row per cell, whose interval includes the spread
    between the repeats of the run. Kernels that stream from the host get a separate spread, because
    the host does not drift as the device does.

    Parameters
    ----------
    paths
        Shard files, one per shard and repeat.
    out
        Folder of the data set. If this function raises, an earlier data set remains.
    one_model
        Whether all shards must come from the same model of device.
    plan
        Plan of the run. If None, each shard is compared with its own parameters only.

    Raises
    ------
    AggregateError
        If shards are missing, damaged, or do not belong to the run; it names each of them.
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
    """Open the shards, sorted by partition and path, and append files that do not open to `bad`."""
    files: dict[Path, list[tuple[int, ShardFile]]] = {}
    for path in paths:
        try:
            repeat, file = _described(open_shard(path))
        except BadParquetError as err:
            bad.append((path, str(err)))
        except (KeyError, TypeError, ValueError) as err:
            why = f"'{path}' has provenance metadata that cannot be read ({err!r})."
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
    """Return the number of the repeat and the shard; raise KeyError, TypeError or ValueError."""
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
    """Return whether a kernel streams its data from the host; False if its folder is missing."""
    try:
        return isinstance(load_kernel(ROOT / folder).workload, HostFedWorkload)
    except (KernelFolderError, WorkloadError):
        return False


def _checked(shard: ShardFile, plan: RunPlan | None, bad: list[tuple[Path, str]]) -> list[pa.Table]:
    """Read the cells of each repeat; if one is unusable, add the reason to `bad`, return none."""
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
    """Yield the cells of a shard, one row for all repeats; write their provenance to `lines`."""
    tables = []
    for path in shard.paths:
        table, metadata = read_shard(path)
        lines.write(json.dumps(metadata, sort_keys=True).encode() + b"\n")
        tables.append(table)
    # A shard that was planned for one repeat gets the interval of its samples, even in a run whose
    # other shards have repeats.
    yield from merged(tables, spread if shard.planned > 1 else None).to_batches()


def _widened(batch: pa.RecordBatch, schema: pa.Schema, number: int) -> pa.RecordBatch:
    """Add the missing columns of `schema`, as nulls, and the number of the shard."""
    names = set(batch.schema.names)
    columns = [
        batch.column(f.name) if f.name in names else pa.nulls(len(batch), f.type) for f in schema
    ]
    numbers = pa.repeat(pa.scalar(number, _SHARD.type), len(batch))
    return pa.record_batch([*columns, numbers], schema=schema.append(_SHARD))


def _write(table: pa.Table, schema: pa.Schema, dataset: Path, partition: tuple[str, str]) -> None:
    """Write the rows of one partition, without the columns that its path contains."""
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
            f"Cell {cell['cell_key']} is in '{files[0]}' and in '{files[1]}'; "
            "remove one of these files.",
            files,
        )


def _refuse_mixture(models: Mapping[str, Sequence[Path]]) -> None:
    """Reject shards of several device models, which would look like one complete sweep."""
    if len(models) < 2:
        return
    most = max(sorted(models), key=lambda model: len(models[model]))
    others = [(m, path) for m in sorted(models) if m != most for path in models[m]]
    named = ", ".join(f"'{path}' on '{model}'" for model, path in others)
    raise AggregateError(
        f"The run was measured on '{most}', but {named}; a run can contain only one device "
        "model. Request one model from the scheduler, and measure these shards again.",
        [path for _, path in others],
    )


# Longest text of a value in a message, in characters.
_MAX_SHOWN = 60


def fault_of(
    path: Path, table: pa.Table, metadata: Mapping[str, Any], plan: RunPlan | None
) -> str | None:
    """Return why a shard must not be used, as a clause that follows its name, or None if it may.

    Parameters
    ----------
    path
        File of the shard, by which `plan` knows its parameters.
    table, metadata
        Cells and provenance of the shard, as `read_shard` returns them.
    plan
        Plan of the run; None compares the cells with the shard's own parameters only.
    """
    try:
        if plan is not None:
            job = plan.job(path)
            if job is None:
                return "does not belong to this run"
            if metadata["params"] != job.plain:
                key, *values = _difference("", metadata["params"], job.plain)
                measured, asked = (one_line(repr(value), _MAX_SHOWN) for value in values)
                return f"was measured with {key} = {measured}, but the run requires {asked}"
        return _fault_of_cells(table, metadata)
    except (KeyError, TypeError, ValueError, AttributeError) as err:
        # The metadata does not have the form in which gpushmoo writes it.
        return f"has provenance metadata that cannot be read ({type(err).__name__}: {err})"


def fault_of_repeat(first: pa.Table, metadata: Mapping[str, Any], later: pa.Table) -> str | None:
    """Return why a later repeat does not match the shard whose first repeat is `first`, or None."""
    whole = fully_sampled(first, metadata["params"]["measure"])
    measured = set(first.filter(whole).column("cell_key").to_pylist())
    return _fault_of_keys(measured, set(later.column("cell_key").to_pylist()))


def _difference(key: str, params: Any, planned: Any) -> tuple[str, Any, Any]:
    """Return the innermost key at which two different values differ, and its value in each."""
    if isinstance(params, Mapping) and isinstance(planned, Mapping):
        for name in sorted({*params, *planned}):
            measured, wanted = params.get(name), planned.get(name)
            if measured != wanted:
                return _difference(f"{key}.{name}" if key else name, measured, wanted)
    return key or "params", params, planned


def _fault_of_cells(table: pa.Table, metadata: Mapping[str, Any]) -> str | None:
    """Check that the rows are cells of the shard's parameters; a later repeat may have fewer."""
    params = metadata["params"]
    resolved: Mapping[str, list[int]] = metadata.get("resolved_axes", {})
    values = {
        axis: resolved[axis] if needs_device(spec) else expand_axis(spec, TYPICAL)
        for axis, spec in params["axes"].items()
    }
    # All repeats of a shard share these parameters.
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
    """Check that the rows are cells of a space in which `unlisted` other cells have no row.

    Without `unlisted` the total number of cells is not known, so it is not checked.
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
            return f"contains cells that are not in the plan, {row['cell_key']} for one"
    expected = math.prod(map(len, values.values()), start=len(groups)) - (unlisted or 0)
    if unlisted is not None and len(table) != expected:
        return f"has {len(table)} of {expected} cells"
    return None


@lru_cache(maxsize=1)
def _planned_keys(text: str) -> frozenset[str]:
    """Return the keys of the cells of a shard with these parameters and axis values."""
    params, values = json.loads(text)
    cells = space_of(params).cells(Path(params["folder"]).name, values)
    return frozenset(cell.key for cell in cells)


def _fault_of_keys(planned: AbstractSet[str], keys: AbstractSet[str]) -> str | None:
    missing, extra = sorted(planned - keys), sorted(keys - planned)
    if missing:
        return f"lacks {len(missing)} of {len(planned)} cells, {missing[0]} for one"
    if extra:
        return f"contains {len(extra)} cells that are not in the plan, {extra[0]} for one"
    return None


CELLS = "cells"


@dataclass(frozen=True)
class OpenedSet:
    """A data set and the name of its run; an unfinished run also has `plan` and `shards` so far."""

    dataset: Path
    name: str
    finished: bool = False
    plan: RunPlan | None = None
    shards: int = 0


@contextmanager
def opened(place: Path) -> Iterator[OpenedSet]:
    """Open the data set in `place`, or make one from the shards in it while the context is open.

    Parameters
    ----------
    place
        A run's folder (``results/NAME``), the folder of its data set, or a folder of shards. If the
        run is not finished, its finished shards are used.

    Raises
    ------
    OpenedError
        If the folder contains neither a data set nor finished shards, or one that is damaged.
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
        # A recorded data set names its run in the plan; its shards are elsewhere.
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


def _listed(folders: Sequence[Path]) -> str:
    """Return the names of the first folders, in quotes, and the number of the others."""
    shown = ", ".join(f"'{path.name}'" for path in folders[:_MAX_NAMES])
    rest = len(folders) - _MAX_NAMES
    return f"{shown} and {rest} more" if rest > 0 else shown


def _shards(place: Path) -> tuple[list[Path], RunPlan | None]:
    """Return the finished shards in `place`, and the plan if it is the folder of a run."""
    plan_file = place / PLAN_FILE
    if not plan_file.is_file():
        if several := data_sets_in(place):
            raise OpenedError(
                f"'{place}' is not a data set: it contains {_listed(several)}; name one of them."
            )
        inside = ((path, path.relative_to(place).parts) for path in place.rglob("*.parquet"))
        found = sorted(p for p, parts in inside if not any(x[0] in "._" for x in parts))
        if not found:
            raise OpenedError(
                f"'{place}' contains neither a data set nor shards; name a run's folder, such as "
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
    """Return whether the plan requires this shard; another configuration may have left one."""
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
    """Return the number of shard files that the plan requires, all repeats included."""
    return sum(1 for _ in _planned_paths(plan))


def _finished(place: Path) -> Path | None:
    """Return the data set of a finished run, if it is newer than its shards."""
    found = finished_dataset(place)
    if found is None:
        return None
    shards = (path.stat().st_mtime for path in (place / CELLS).rglob("*.parquet"))
    return found if max(shards, default=-math.inf) <= (found / PROVENANCE).stat().st_mtime else None
