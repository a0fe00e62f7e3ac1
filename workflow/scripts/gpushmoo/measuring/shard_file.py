"""A shard's file: its rows and their provenance, and what a job takes over from files before it.

A cell is measured once. Every shard that is written is also kept under a name that says under which
conditions it was measured. When the plan of a run changes (another value of an axis, another size,
another cut into shards), its jobs take over the cells that are there and measure the others.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import platform
import shutil
import socket
import uuid
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .. import PROTOCOL_VERSION, __version__
from ..core.errors import WorkloadError
from ..core.run_plan import fully_sampled, plain
from ..core.schema import MOST_THREADS, cell_schema
from ..core.space import Cell, CellGroup, Problem
from ..devices.base import DeviceInfo, identity
from ..storage.packed import DERIVED, restored
from ..storage.store import BadParquetError, read_shard
from ..workloads.contract import Workload
from .events import CellRun, Opened, ShardResult

log = logging.getLogger(__name__)

# Beside the sweeps' folders, and on the same file system: its files are links to theirs.
_FOLDER = ".kept"
# What says which cells there are, and nothing of how each of them is measured.
_SPACE = ("axes", "cache_states", "launch_kinds", "shard", "sizes", "variants")


def provenance(info: DeviceInfo, kernel_digest: str, builds: Mapping[str, str]) -> dict[str, Any]:
    """Facts stored with a shard: device, host, software, kernel digest, compiler options.

    `builds` maps a variant to the compiler options it was built with.
    """
    return {
        "gpushmoo": __version__,
        "protocol_version": PROTOCOL_VERSION,
        "device": {**asdict(info), "extra": dict(info.extra)},
        "host": {
            "name": socket.gethostname(),
            "system": f"{platform.system()} {platform.release()}",
            "machine": platform.machine(),
            "cores": os.cpu_count(),
            "python": platform.python_version(),
        },
        "kernel_digest": kernel_digest,
        "builds": dict(builds),
        "written_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def cell_table(
    result: ShardResult[CellRun], workload: Workload, info: DeviceInfo, axes: Collection[str]
) -> pa.Table:
    """One row for each cell, sorted by cell key, in the schema of `axes`."""
    now = datetime.now(UTC)
    copies = {
        key: float(np.median([seconds for _, seconds in found]))
        for key, found in result.copies.items()
    }
    rows = []
    for run in result.runs.values():
        copy_s = copies.get((run.cell.problem, run.cell.condition))
        rows.append(_row(run, copy_s, workload, info, now))
    measured = pa.schema(field for field in cell_schema(axes) if field.name not in DERIVED)
    return restored(pa.Table.from_pylist(rows, schema=measured), [*axes], info.cache)


def _row(
    run: CellRun, copy_s: float | None, workload: Workload, info: DeviceInfo, now: datetime
) -> dict[str, Any]:
    cell, launch = run.cell, run.launch
    if run.status is None:
        raise ValueError(f"cell {cell.key} was never ended")
    read, written, copied = _bytes(workload, cell)
    return {
        **cell.columns(),
        "status": run.status.value,
        "message": run.message,
        "samples_s": run.samples_s,
        "sampled_at_s": run.sampled_at_s,
        "launches_per_sample": run.launches,
        "bytes_read": read,
        "bytes_written": written,
        "copy_gbs": copied / copy_s * 1e-9 if copy_s and copied else None,
        "threads_per_block": min(launch.threads, MOST_THREADS),
        "blocks": launch.blocks,
        "tiles": launch.tiles,
        "units": info.units,
        "resident_per_unit": run.resident_per_unit,
        "registers": run.registers,
        "verified_words": run.verified_words,
        "wrong_words": run.wrong_words,
        "device_uuid": info.uuid,
        "device_name": info.name,
        "backend": info.backend,
        "measured_at": now,
        **dict(cell.params),
    }


def _bytes(workload: Workload, cell: Cell) -> tuple[int, int, int]:
    """Bytes read, written and copied beside `cell`; 0 of each where its workload fails to tell."""
    try:
        copied = workload.bytes_copied(cell.problem, cell.dtype)
        return (*workload.bytes_moved(cell), copied)
    except WorkloadError:
        return 0, 0, 0


@dataclass(frozen=True)
class FirstRepeat:
    """What later repeats of a shard take over from the first, so that they measure alike.

    They measure the cells that are `fully_sampled` there, with as many launches a sample;
    `of_cells` has that number by the cell's key, `launches` by its group.
    """

    of_cells: Mapping[str, int]
    launches: Mapping[CellGroup, int]


def read_first(path: Path) -> FirstRepeat:
    """Of the file that the first repeat wrote. Raises BadParquetError."""
    table, metadata = read_shard(path)
    ok = table.filter(fully_sampled(table, metadata["params"]["measure"]))
    names = ("cell_key", "launches_per_sample")
    of_cells = zip(*(ok.column(name).to_pylist() for name in names), strict=True)
    return FirstRepeat(dict(of_cells), launches_by_group(ok))


@dataclass(frozen=True)
class ReusedCells:
    """Cells that are not measured again, with the provenance of those jobs that measured them.

    `launches` is how many make a sample of the groups to which they belong, so that new cells of
    these groups are measured alike. `refused` says why others are measured again, a sentence each.
    """

    table: pa.Table | None = None
    sources: tuple[Mapping[str, Any], ...] = ()
    launches: Mapping[CellGroup, int] = field(default_factory=dict)
    refused: tuple[str, ...] = ()

    @property
    def keys(self) -> frozenset[str]:
        """Keys (`Cell.key`) of the cells that need not be measured; empty where none is kept."""
        if self.table is None:
            return frozenset()
        return frozenset(self.table.column("cell_key").to_pylist())

    @property
    def told(self) -> list[dict[str, Any]]:
        """What the provenance says of them: the moments, oldest first, and cells of each."""
        if self.table is None:
            return []
        counts = pc.value_counts(self.table.column("measured_at")).to_pylist()
        return [
            {"measured_at": at.isoformat(timespec="milliseconds"), "cells": n}
            for at, n in sorted((count["values"], count["counts"]) for count in counts)
        ]


NOTHING = ReusedCells()


class Earlier:
    """The shards that are kept of earlier jobs, for one job that measures with `params`."""

    def __init__(self, out: Path, params: Mapping[str, Any], code: str) -> None:
        """`out` is the job's own file, `code` the digest of all code that measures."""
        cut = ("cache_states", "launch_kinds", "shard", "sizes")
        space = {key: params[key] for key in cut if key in params}
        conditions = {k: v for k, v in params.items() if k not in _SPACE}
        conditions |= {"axes": sorted(params["axes"]), "code": code}
        kept = out.parents[2] / _FOLDER / out.parent.parent.name / out.parent.name
        self._folder = kept / _digest(conditions)
        # Shards of one cut into parts have no cell in common.
        index, count = params["shard"]
        self._cut = _digest({**space, "shard": count})
        self._name = f"{self._cut}-{index}"
        self._read: dict[Path, tuple[pa.Table, dict[str, Any]]] = {}

    def read(self, again: Collection[str] = ()) -> None:
        """Read what is kept, but cells that ended with one of the statuses in `again`.

        A damaged file is deleted.
        """
        for path in sorted(self._folder.glob("*.kept")):
            if path.name.startswith(f"{self._cut}-") and not path.name.startswith(f"{self._name}."):
                continue
            try:
                table, metadata = read_shard(path)
            except BadParquetError as err:
                log.warning("%s It is deleted.", err)
                path.unlink(missing_ok=True)
                continue
            wanted = pc.invert(pc.is_in(table.column("status"), pa.array(again, pa.string())))
            self._read[path] = (table.filter(wanted), metadata)

    @property
    def uuids(self) -> frozenset[str]:
        """The devices that measured the cells; another device measures all cells again."""
        return frozenset(
            metadata["device"]["uuid"] for table, metadata in self._read.values() if len(table)
        )

    def taken(
        self,
        opened: Opened,
        workload: Workload,
        launches: Mapping[str, int] | None,
        whole: bool = False,
    ) -> ReusedCells:
        """The cells of `opened` that were measured by this device and software, and the same build.

        Of a later repeat `launches` are those of each cell's sample in the first one: there must
        be as many. With `whole` only those of whole groups: a search is of nothing less.
        """
        device = {**asdict(opened.info), "extra": dict(opened.info.extra)}
        versions = {cell.key: workload.version(cell).name for cell in opened.cells}
        found: dict[str, tuple[Path, int]] = {}
        refused: dict[str, str] = {}
        for path, (table, metadata) in self._newest_last():
            other = _difference(metadata, plain(device))
            codes = metadata.get("codes", {}), opened.codes
            keys = table.column("cell_key").to_pylist()
            samples = table.column("launches_per_sample").to_pylist()
            for place, (key, launched) in enumerate(zip(keys, samples, strict=True)):
                name = versions.get(key)
                if name is None or (launches is not None and key not in launches):
                    continue
                if other is not None:
                    refused[key] = other
                elif launches is not None and launches[key] != launched:
                    refused[key] = f"number of launches a sample ({launched} → {launches[key]})"
                elif (old := codes[0].get(name)) != (new := codes[1].get(name)):
                    refused[key] = f"machine code of {name} ({old} → {new})"
                else:
                    found[key] = (path, place)
        reasons = Counter(why for key, why in refused.items() if key not in found)
        told = tuple(f"measured again for another {why}: {n} cells" for why, n in reasons.items())
        for sentence in told:
            log.info(sentence)
        if whole:
            missing = {cell.group for cell in opened.cells if cell.key not in found}
            kept = {cell.key for cell in opened.cells if cell.group not in missing}
            found = {key: place for key, place in found.items() if key in kept}
        return replace(self._gathered(found), refused=told)

    def _newest_last(self) -> Iterable[tuple[Path, tuple[pa.Table, dict[str, Any]]]]:
        return sorted(self._read.items(), key=lambda item: str(item[1][1]["written_at"]))

    def _gathered(self, found: Mapping[str, tuple[Path, int]]) -> ReusedCells:
        places: dict[Path, list[int]] = {}
        for path, place in found.values():
            places.setdefault(path, []).append(place)
        if not places:
            return NOTHING
        table = pa.concat_tables(
            self._read[p][0].take(pa.array(rows)) for p, rows in places.items()
        )
        return ReusedCells(table, tuple(self._read[p][1] for p in places), launches_by_group(table))

    def keep(self, out: Path, keys: Collection[str]) -> None:
        """Keep the shard in `out`, which holds the cells `keys`, and drop files that it replaces.

        Raises OSError where there is no room.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{self._name}.{uuid.uuid4().hex[:12]}.kept"
        try:
            os.link(out, path)
        except OSError:  # a file system without links
            shutil.copyfile(out, path)
        for older, (table, _) in self._read.items():
            if set(table.column("cell_key").to_pylist()) <= set(keys):
                older.unlink(missing_ok=True)


def _difference(shard: Mapping[str, Any], device: Mapping[str, Any]) -> str | None:
    """What else `shard` was measured with than is measured with now: its old and its new value."""
    now = {"gpushmoo": __version__, "protocol": PROTOCOL_VERSION, **identity(device)}
    old = {"gpushmoo": shard["gpushmoo"], "protocol": shard["protocol_version"]}
    old |= identity(shard["device"])
    return next(
        (
            f"{name} ({old.get(name)} → {now.get(name)})"
            for name in now | old
            if old.get(name) != now.get(name)
        ),
        None,
    )


def _digest(values: Mapping[str, Any]) -> str:
    text = json.dumps(values, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def launches_by_group(table: pa.Table) -> dict[CellGroup, int]:
    """How many launches a sample has, by group; a slow cell has fewer than its group."""
    launches: dict[CellGroup, int] = {}
    names = ("height", "width", "cache_state", "variant", "launch_kind", "launches_per_sample")
    rows = zip(*(table.column(name).to_pylist() for name in names), strict=True)
    for height, width, state, variant, kind, launched in rows:
        if launched is not None:
            group = CellGroup(Problem(height, width), state, variant, kind)
            launches[group] = max(launches.get(group, 1), launched)
    return launches


def joined(measured: pa.Table, taken: pa.Table | None) -> pa.Table:
    """All cells of a shard, sorted by key."""
    tables = [measured] if taken is None else [measured, taken]
    return pa.concat_tables(tables).combine_chunks().sort_by("cell_key")
