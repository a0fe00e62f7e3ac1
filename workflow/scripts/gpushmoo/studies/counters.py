"""Hardware counters of a designed sample.

What the caches and the memory of a device did while cells ran, as the device itself counted it: the
judge of what a model says of them. Times of these launches are no measurements: the profiler
repeats each launch, and restores its output in between.
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa

from ..core.backends import BACKENDS
from ..core.dictionary import Small, Table, Text, Whole
from ..core.paths import KERNELS, ROOT, child_environment
from ..core.process import raises_signals
from ..core.space import ChosenCell, to_plain
from ..storage.wholefile import DamagedFileError, read_json, write_json
from ..workloads.loader import KernelFolder, load_kernel
from .cells import Folders, cell_columns, write_study
from .ncu import CountedLaunch, NotCountedError, Replay, count_launches, find_ncu, version_of
from .sample import COLUMNS, FLUSHED, GROUPS, WARM, designed_sample, explained_cells

log = logging.getLogger(__name__)

WARP = 32
# Between the passes of a launch the profiler restores its output, and nothing of that launch is in
# L2 any more. Of cells whose data a cache may keep it runs the whole program again instead.
KEPT_BYTES = 128 * 2**20
KEPT = "kept in the cache"


class CountedCell(Table):
    """A cell that was launched under the profiler, besides what was counted of it."""

    cell_key: Text
    kernel: Text
    dtype: Text
    variant: Text
    height: Whole
    width: Whole
    cache_state: Text
    params: Text
    asks: Text  # what the cell is to tell
    message: Text | None  # why it was not launched
    bytes_read: Whole
    bytes_written: Whole
    entry: Text | None  # name of the kernel's function
    blocks: Whole | None
    threads_per_block: Whole | None
    units: Small | None
    resident_per_unit: Small | None
    registers: Small | None
    device_uuid: Text | None
    device_name: Text | None


# Of a counter that is not known, or was not read, there is no value.
COUNTERS_SCHEMA = pa.schema(
    [*CountedCell.fields(), *(pa.field(name, pa.float64()) for name in COLUMNS)]
)


@dataclass(frozen=True)
class Profiling:
    """What is to be counted: `sample`, by the kernels in `folders`, on the device of `device`.

    `device` is what `locked_device` takes. Runtimes keep what they compile in `cache`; what goes
    between the processes lies in `work`.
    """

    sample: Sequence[ChosenCell]
    folders: Folders
    device: Mapping[str, Any]
    cache: Path
    work: Path


@dataclass
class Found:
    """What was found so far, by the cell's key: its launch, and its counters by column.

    `device` is what ran them; `whys` say of each run of the profiler that failed why it did.
    """

    launched: dict[str, dict[str, Any]] = field(default_factory=dict)
    values: dict[str, dict[str, float | None]] = field(default_factory=dict)
    device: dict[str, Any] = field(default_factory=dict)
    whys: list[str] = field(default_factory=list)


def count(profiling: Profiling, out: Path, say: Callable[[str], None]) -> None:
    """Count what can be counted and write COUNTERS_SCHEMA to `out`, after each run of the profiler.

    Where nothing can be read the table is written all the same, without rows, and its metadata says
    under ``why`` what was in the way; so it is `say`-ed.
    """
    found, facts = Found(), dict[str, Any]()
    try:
        ncu = find_ncu(_profiler(profiling.device["backend"]))
        facts["profiler"] = version_of(ncu)
        for (name, cells), group in product(_alike(profiling).items(), GROUPS):
            say(f"reading the counters '{group}' of {len(cells)} cells, {name}")
            _count_group(ncu, profiling, name, cells, group, found)
            _write(profiling, found, facts, out)
    except NotCountedError as err:
        found.whys.append(str(err))
    for why in found.whys:
        say(why)
    _write(profiling, found, facts, out)


def _profiler(backend: str) -> str:
    """The program that reads the counters of a backend's devices. Raises NotCountedError."""
    if name := BACKENDS[backend].profiler:
        return name
    having = ", ".join(b.name for b in BACKENDS.values() if b.profiler)
    raise NotCountedError(f"backend '{backend}' has no profiler; {having} has.")


def _alike(profiling: Profiling) -> dict[str, list[ChosenCell]]:
    """The cells that are profiled in the same way: flushed, in the cache, and beyond it."""
    alike: dict[str, list[ChosenCell]] = {}
    for one in profiling.sample:
        moved = sum(profiling.folders[one.cell.kernel].workload.bytes_moved(one.cell))
        warm = one.cell.cache_state == WARM
        name = KEPT if warm and moved <= KEPT_BYTES else one.cell.cache_state
        alike.setdefault(name, []).append(one)
    return alike


def _count_group(
    ncu: str,
    profiling: Profiling,
    alike: str,
    cells: Sequence[ChosenCell],
    group: str,
    found: Found,
) -> None:
    """One run of the profiler; what was in its way is added to `whys`.

    Raises NotCountedError where no run before it did better.
    """
    metrics, name = GROUPS[group], f"{alike}-{group}"
    replay = Replay(flushed=alike == FLUSHED, whole_program=alike == KEPT)
    request, answer = profiling.work / f"{name}.json", profiling.work / f"{name}-answer.json"
    answer.unlink(missing_ok=True)
    content = {
        "device": dict(profiling.device),
        "cache": str(profiling.cache),
        "folders": {n: os.path.relpath(f.path, ROOT) for n, f in profiling.folders.items()},
        "answer": str(answer),
        **to_plain(cells),
    }
    write_json(request, content)
    command = [sys.executable, "-m", "gpushmoo.studies.counted", str(request)]
    report = profiling.work / f"{name}.csv"
    try:
        rows = count_launches(
            ncu, command, list(metrics.values()), replay, report, child_environment()
        )
        told = _read(answer)
        joined = join(rows, told["launched"], metrics)
    except NotCountedError as err:
        # Without a device, the profiler only saw that the process ended.
        why = _read(answer).get("why") if answer.is_file() else None
        failed = NotCountedError(why) if why else err
        if not found.values:
            raise failed from err
        found.whys.append(str(failed))
        return
    found.device = told["device"]
    for launched in told["launched"]:
        found.launched[launched["key"]] = launched
    for key, values in joined.items():
        found.values.setdefault(key, {}).update(values)


def _read(answer: Path) -> dict[str, Any]:
    try:
        return read_json(answer)
    except DamagedFileError as err:
        raise NotCountedError(
            "the process that launches the cells ended before it was through."
        ) from err


def join(
    rows: Sequence[CountedLaunch],
    launched: Iterable[Mapping[str, Any]],
    metrics: Mapping[str, str],
) -> dict[str, dict[str, float | None]]:
    """Counters by column, by the key of the cell whose launch they are of.

    The profiler knows no cells: the launches' order tells, and kernel, grid and block must agree.
    Raises NotCountedError where they do not.
    """
    made = [one for one in launched if one["message"] is None]
    if len(rows) != len(made):
        raise NotCountedError(f"the profiler recorded {len(rows)} launches, {len(made)} were made.")
    for row, one in zip(rows, made, strict=True):
        seen, due = (row.kernel, row.grid, row.block), (one["entry"], one["grid"], one["block"])
        if seen != (due[0], tuple(due[1]), tuple(due[2])):
            raise NotCountedError(f"{due} was launched, and the profiler saw {seen}.")
    return {
        one["key"]: {column: row.values.get(metric) for column, metric in metrics.items()}
        for row, one in zip(rows, made, strict=True)
    }


def _write(profiling: Profiling, found: Found, facts: Mapping[str, Any], out: Path) -> None:
    rows = [
        _row(s, profiling.folders, found) for s in profiling.sample if s.cell.key in found.launched
    ]
    write_study(
        "counters",
        rows,
        COUNTERS_SCHEMA,
        out,
        profiling.folders,
        profiling.device["backend"],
        **facts,
        why=" ".join(found.whys) or None,
        device=found.device,
        metrics={c: m for group in GROUPS.values() for c, m in group.items()},
    )
    busy = {row["cell_key"]: _busy(row) for row in rows}
    content = {"device": found.device.get("name"), "cells": {k: b for k, b in busy.items() if b}}
    write_json(out.with_suffix(".json"), content)


def _busy(row: Mapping[str, Any]) -> dict[str, float] | None:
    """How busy each unit was, in percent, and how many warps were on a multiprocessor.

    None where a counter was not read.
    """
    wanted = {f"{unit}_percent": unit for unit in ("dram", "l2", "l1", "sm")}
    wanted["active_warps"] = "active_warps"
    told = {name: row[n] for n, name in wanted.items() if row.get(n) is not None}
    if len(told) < len(wanted) or not row["resident_per_unit"]:
        return None
    warps = -(-row["threads_per_block"] // WARP)
    held = min(row["resident_per_unit"], -(-row["blocks"] // row["units"]))
    return {**told, "room_for_warps": float(warps * held)}


def _row(sampled: ChosenCell, folders: Folders, found: Found) -> dict[str, Any]:
    cell, launched = sampled.cell, found.launched[sampled.cell.key]
    made = launched["message"] is None
    x, y, z = launched["block"]
    across, down, deep = launched["grid"]
    return {
        **cell_columns(cell, folders),
        "asks": sampled.role,
        "message": launched["message"],
        "entry": launched["entry"] or None,
        "blocks": across * down * deep if made else None,
        "threads_per_block": x * y * z if made else None,
        "units": found.device["units"],
        "resident_per_unit": launched["resident_per_unit"],
        "registers": launched["registers"],
        "device_uuid": found.device["uuid"],
        "device_name": found.device["name"],
        **found.values.get(cell.key, {}),
    }


def sampled_kernels(sample: Sequence[ChosenCell]) -> dict[str, KernelFolder]:
    """The folders of the kernels whose cells are sampled, by name."""
    names = dict.fromkeys(sampled.cell.kernel for sampled in sample)
    return {name: load_kernel(KERNELS / name) for name in names}


@raises_signals()
def count_of_run(
    spec: Mapping[str, Any],
    out: Path,
    say: Callable[[str], None],
    cache: str,
    explained: Sequence[Path],
) -> None:
    """`count` the designed sample and the launches that models explain in the files `explained`.

    `spec` names the ``device``.
    """
    sample = {one.cell: one for one in [*designed_sample(), *explained_cells(explained)]}
    chosen = list(sample.values())
    kept = Path(cache).resolve()
    with tempfile.TemporaryDirectory(prefix="counters-") as work:
        folders = sampled_kernels(chosen)
        count(Profiling(chosen, folders, spec["device"], kept, Path(work)), out, say)
