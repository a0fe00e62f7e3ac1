"""Write a shard's file: rows and provenance, and the cells that a job reuses from earlier files.

A cell is measured once. Every shard is also kept under a digest of the conditions of its
measurement. When the plan of a run changes (another value of an axis, another size, another
division into shards), its jobs reuse the existing cells and measure the others.
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
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .. import PROTOCOL_VERSION, __version__
from ..core.errors import BadParquetError, WorkloadError
from ..core.run_plan import LACKING, fully_sampled, plain
from ..core.schema import MAX_THREADS, Status, cell_schema
from ..core.shard_job import ShardJob
from ..core.space import Cell, CellGroup, Problem
from ..devices.base import DeviceInfo, identity
from ..storage.store import DERIVED, read_shard, restored
from ..workloads.contract import Workload
from .events import CellRun, Opened, ShardResult

log = logging.getLogger(__name__)

# In the folder of the sweeps' folders: its files are links to theirs.
_FOLDER = ".kept"
# The parameters that choose cells and do not change how a cell is measured.
_SPACE = ("axes", "cache_states", "timing_modes", "shard", "sizes", "variants")


def provenance(info: DeviceInfo, kernel_digest: str, builds: Mapping[str, str]) -> dict[str, Any]:
    """Return facts that are stored with a shard: device, host, software, kernel digest, options.

    Parameters
    ----------
    info
        Properties of the device.
    kernel_digest
        Digest of the kernel's sources.
    builds
        Compiler options by version.
    """
    return {
        "gpushmoo": __version__,
        "protocol_version": PROTOCOL_VERSION,
        "device": asdict(info),
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
    """Return a table with one row for each cell, sorted by cell key.

    Parameters
    ----------
    result
        The measured cells.
    workload
        The kernel.
    info
        Properties of the device.
    axes
        Names of the axes, which get a column each.
    """
    now = datetime.now(UTC)
    copies = {
        key: float(np.median([copied.seconds for copied in found]))
        for key, found in result.copies.items()
    }
    rows = []
    by_processor = processor_samples(result) if result.waited_share > LACKING else {}
    for run in result.runs.values():
        copy_s = copies.get((run.cell.problem, run.cell.condition))
        row = _row(run, copy_s, workload, info, now)
        if (samples_s := by_processor.get(run.cell.key)) is not None:
            row |= {"samples_s": samples_s, "events_s": run.samples_s}
        rows.append(row)
    measured = pa.schema(field for field in cell_schema(axes) if field.name not in DERIVED)
    return restored(pa.Table.from_pylist(rows, schema=measured), [*axes], info.cache)


def processor_samples(result: ShardResult[CellRun]) -> dict[str, list[float]]:
    """Return samples of cells on a CPU by the time that their threads computed.

    Such a time does not contain waits for a core, which the device's clock includes. The times of a
    group are multiplied by one factor, so that the median of the group remains that of the device's
    clock.

    Parameters
    ----------
    result
        The measured cells.

    Returns
    -------
    dict
        Time of a launch in each sample, in seconds, by cell key. Cells without such times are
        missing.
    """
    groups: dict[CellGroup, list[CellRun]] = {}
    for run in result.runs.values():
        if run.samples_s and len(run.processor_s) == len(run.samples_s):
            groups.setdefault(run.cell.group, []).append(run)
    found: dict[str, list[float]] = {}
    for runs in groups.values():
        clock_s = np.median([np.median(run.samples_s) for run in runs])
        computed_s = np.median([np.median(run.processor_s) for run in runs])
        if computed_s > 0.0:
            factor = float(clock_s / computed_s)
            found |= {run.cell.key: [factor * s for s in run.processor_s] for run in runs}
    return found


def _row(
    run: CellRun, copy_s: float | None, workload: Workload, info: DeviceInfo, now: datetime
) -> dict[str, Any]:
    cell, launch = run.cell, run.launch
    read, written, copied = _bytes(workload, cell)
    work = _work(workload, cell)
    return {
        **cell.columns(),
        "status": run.status,
        "message": run.message,
        "samples_s": run.samples_s,
        "sampled_at_s": run.sampled_at_s,
        "processor_s": run.processor_s or None,
        "launches_per_sample": run.launches,
        "overhead_s": None if run.overhead is None else run.overhead.seconds,
        "overhead_error_s": None if run.overhead is None else run.overhead.error_s,
        "bytes_read": read,
        "bytes_written": written,
        "work": work,
        "work_unit": None if work is None else workload.work_unit,
        "memcpy_gbs": copied / copy_s * 1e-9 if copy_s and copied else None,
        "threads_per_block": min(launch.threads, MAX_THREADS),
        "blocks": launch.blocks,
        "tiles": launch.tiles,
        "multiprocessors": info.multiprocessors,
        "resident_blocks": run.resident_blocks,
        "registers": run.registers,
        "verified_words": run.verified_words,
        "wrong_words": run.wrong_words,
        "worst_error": run.worst_error,
        "device_uuid": info.uuid,
        "device_name": info.name,
        "backend": info.backend,
        "measured_at": now,
        **dict(cell.params),
    }


def _bytes(workload: Workload, cell: Cell) -> tuple[int, int, int]:
    """Return the bytes that `cell` reads, writes and copies, or 0 if its workload fails."""
    try:
        copied = workload.bytes_copied(cell.problem, cell.dtype)
        return (*workload.bytes_moved(cell), copied)
    except WorkloadError:
        return 0, 0, 0


def _work(workload: Workload, cell: Cell) -> float | None:
    """Return the amount of work of `cell`, or None if its workload defines none, or fails."""
    try:
        return workload.work(cell)
    except WorkloadError:
        return None


@dataclass(frozen=True)
class FirstRepeat:
    """Cells of the first repeat that later repeats measure again.

    Attributes
    ----------
    of_cells
        Number of launches in a sample, by cell key.
    launches
        Number of launches in a sample, by group.
    """

    of_cells: Mapping[str, int]
    launches: Mapping[CellGroup, int]


def read_first(path: Path) -> FirstRepeat:
    """Return the fully sampled cells in the file of the first repeat.

    Raises
    ------
    BadParquetError
        If the file is damaged.
    """
    table, metadata = read_shard(path)
    ok = table.filter(fully_sampled(table, metadata["params"]["measure"]))
    names = ("cell_key", "launches_per_sample")
    of_cells = zip(*(ok.column(name).to_pylist() for name in names), strict=True)
    return FirstRepeat(dict(of_cells), launches_by_group(ok))


@dataclass(frozen=True)
class ReusedCells:
    """Cells that are not measured again, and the provenance of their shards.

    Attributes
    ----------
    table
        Rows of the cells, or None without any.
    sources
        Metadata of the shards that measured them.
    launches
        Number of launches in a sample of their groups, which new cells of these groups must use,
        too.
    refused
        Sentences on why other cells are measured again.
    """

    table: pa.Table | None = None
    sources: tuple[Mapping[str, Any], ...] = ()
    launches: Mapping[CellGroup, int] = field(default_factory=dict)
    refused: tuple[str, ...] = ()

    @property
    def keys(self) -> frozenset[str]:
        """Keys (`Cell.key`) of these cells."""
        return frozenset(() if self.table is None else self.table.column("cell_key").to_pylist())

    def provenance(self) -> dict[str, Any]:
        """Return when the cells were measured, and how many each time, the oldest first."""
        if self.table is None:
            return {}
        counts = pc.value_counts(self.table.column("measured_at")).to_pylist()
        earlier = [
            {"measured_at": at.isoformat(timespec="milliseconds"), "cells": n}
            for at, n in sorted((count["values"], count["counts"]) for count in counts)
        ]
        return {"earlier": earlier}


class Earlier:
    """Kept shards of earlier jobs, whose cells a job may reuse.

    Parameters
    ----------
    out
        File that the job will write.
    job
        The job.
    code
        Digest of all code that measures.
    """

    def __init__(self, out: Path, job: ShardJob, code: str) -> None:
        """Find the folder of the shards that were measured under the same conditions."""
        params = job.plain
        cut = ("cache_states", "timing_modes", "shard", "sizes")
        space = {key: params[key] for key in cut if key in params}
        conditions = {k: v for k, v in params.items() if k not in _SPACE}
        # How many faults are tried changes no time.
        measure = {k: v for k, v in params["measure"].items() if k != "max_faults"}
        conditions |= {"axes": sorted(params["axes"]), "code": code, "measure": measure}
        kept = out.parents[2] / _FOLDER / out.parent.parent.name / out.parent.name
        self._folder = kept / _digest(conditions)
        # Shards of one cut into parts have no cell in common.
        index, count = job.shard
        self._cut = _digest({**space, "shard": count})
        self._name = f"{self._cut}-{index}"
        self._read: dict[Path, tuple[pa.Table, dict[str, Any]]] = {}

    def read(self, again: Collection[str] = ()) -> None:
        """Read the kept cells, except skipped ones. A damaged file is deleted.

        Parameters
        ----------
        again
            Statuses of cells that must be measured again.
        """
        again = {*again, Status.SKIPPED}
        for path in sorted(self._folder.glob("*.kept")):
            if path.name.startswith(f"{self._cut}-") and not path.name.startswith(f"{self._name}."):
                continue
            try:
                table, metadata = read_shard(path)
            except BadParquetError as err:
                log.warning("%s It is deleted.", err)
                path.unlink(missing_ok=True)
                continue
            measured_again = pa.array(sorted(again), pa.string())
            wanted = pc.invert(pc.is_in(table.column("status"), measured_again))
            self._read[path] = (table.filter(wanted), metadata)

    @property
    def uuids(self) -> frozenset[str]:
        """UUIDs of the devices that measured the cells. Another one would measure all of them."""
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
        """Return the cells that can be reused: those of the same device, software and machine code.

        Parameters
        ----------
        opened
            The open device, and the cells of the job.
        workload
            The kernel.
        launches
            In a later repeat, number of launches in a sample of the first one by cell key. It must
            be the same, unless the overhead of the sample was measured.
        whole
            Whether to reuse only complete groups, as a search requires.
        """
        device = plain(asdict(opened.info))
        versions = {cell.key: workload.version(cell).name for cell in opened.cells}
        found: dict[str, tuple[Path, int]] = {}
        refused: dict[str, str] = {}
        # The newest counts.
        for path in sorted(self._read, key=lambda path: str(self._read[path][1]["written_at"])):
            table, metadata = self._read[path]
            other = _difference(metadata, device)
            old_codes = metadata.get("codes", {})
            keys = table.column("cell_key").to_pylist()
            samples = table.column("launches_per_sample").to_pylist()
            overheads = table.column("overhead_s").to_pylist()
            for place, key in enumerate(keys):
                launched = samples[place]
                name = versions.get(key)
                if name is None or (launches is not None and key not in launches):
                    continue
                if other is not None:
                    refused[key] = other
                elif not overheads[place] and launches is not None and launches[key] != launched:
                    refused[key] = f"number of launches a sample ({launched} → {launches[key]})"
                elif (old := old_codes.get(name)) != (new := opened.codes.get(name)):
                    refused[key] = f"machine code of {name} ({old} → {new})"
                else:
                    found[key] = (path, place)
        reasons = Counter(why for key, why in refused.items() if key not in found)
        said = tuple(f"measured again for another {why}: {n} cells" for why, n in reasons.items())
        for sentence in said:
            log.info(sentence)
        missing = {cell.group for cell in opened.cells if whole and cell.key not in found}
        rows: dict[Path, list[int]] = {}
        for cell in opened.cells:
            if cell.key in found and cell.group not in missing:
                path, place = found[cell.key]
                rows.setdefault(path, []).append(place)
        if not rows:
            return ReusedCells(refused=said)
        taken = pa.concat_tables(self._read[path][0].take(places) for path, places in rows.items())
        sources = tuple(self._read[path][1] for path in rows)
        return ReusedCells(taken, sources, launches_by_group(taken), said)

    def keep(self, out: Path, keys: Collection[str]) -> None:
        """Keep the shard in `out` for later jobs, and delete files that it replaces.

        Parameters
        ----------
        out
            File of the shard.
        keys
            Keys of its cells.
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
    """Return the first difference between a shard's software and device and the present ones."""
    now = {"gpushmoo": __version__, "protocol": PROTOCOL_VERSION, **identity(device)}
    old = {"gpushmoo": shard["gpushmoo"], "protocol": shard["protocol_version"]}
    old |= identity(shard["device"])
    names = (name for name in now | old if old.get(name) != now.get(name))
    return next((f"{name} ({old.get(name)} → {now.get(name)})" for name in names), None)


def _digest(values: Mapping[str, Any]) -> str:
    text = json.dumps(values, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def launches_by_group(table: pa.Table) -> dict[CellGroup, int]:
    """Return the largest number of launches in a sample of each group.

    Parameters
    ----------
    table
        Rows of cells.
    """
    launches: dict[CellGroup, int] = {}
    names = ("height", "width", "cache_state", "variant", "timing_mode", "launches_per_sample")
    rows = zip(*(table.column(name).to_pylist() for name in names), strict=True)
    for height, width, state, variant, kind, launched in rows:
        if launched is not None:
            group = CellGroup(Problem(height, width), state, variant, kind)
            launches[group] = max(launches.get(group, 1), launched)
    return launches


def joined(measured: pa.Table, taken: pa.Table | None) -> pa.Table:
    """Return all cells of a shard, measured and reused ones, sorted by key."""
    tables = [measured] if taken is None else [measured, taken]
    return pa.concat_tables(tables).combine_chunks().sort_by("cell_key")
