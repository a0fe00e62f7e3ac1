"""Measured cells as rows of the Arrow schema."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa

from ..core.errors import WorkloadError
from ..core.median import median_interval
from ..core.schema import MOST_THREADS, REPEAT_COLUMNS, Status, cell_schema
from ..core.space import Cell
from ..devices.base import DeviceInfo
from ..workloads.contract import Workload
from .events import CellRun, ShardResult


def cell_table(
    result: ShardResult, workload: Workload, info: DeviceInfo, axes: Iterable[str]
) -> pa.Table:
    """One row for each cell, sorted by cell key, in the schema of `axes`."""
    now = datetime.now(UTC)
    copies = {
        key: float(np.median([seconds for _, seconds in found]))
        for key, found in result.copies.items()
    }
    rows = []
    for key in sorted(result.runs):
        run = result.runs[key]
        copy_s = copies.get((run.cell.problem, run.cell.condition))
        rows.append(_row(run, copy_s, workload, info, now))
    return pa.Table.from_pylist(rows, schema=cell_schema(axes))


def _row(
    run: CellRun, copy_s: float | None, workload: Workload, info: DeviceInfo, now: datetime
) -> dict[str, Any]:
    cell, launch = run.cell, run.launch
    if run.status is None:
        raise ValueError(f"cell {cell.key} was never ended")
    read, written, copied = _bytes(workload, cell)
    copy_gbs = copied / copy_s * 1e-9 if copy_s and copied else None
    return {
        "cell_key": cell.key,
        "kernel": cell.kernel,
        "dtype": cell.dtype,
        "variant": cell.variant,
        "height": cell.problem.height,
        "width": cell.problem.width,
        "status": run.status.value,
        "message": run.message,
        **_timing(run, read + written, copy_gbs),
        "samples_s": run.samples_s,
        "sampled_at_s": run.sampled_at_s,
        "launches_per_sample": run.launches,
        "bytes_read": read,
        "bytes_written": written,
        "working_set_over_cache": (read + written) / info.cache if info.cache else None,
        "cache_state": cell.cache_state,
        "launch_kind": cell.launch_kind,
        "copy_gbs": copy_gbs,
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


def _timing(run: CellRun, bytes_moved: int, copy_gbs: float | None) -> dict[str, Any]:
    """Median and interval of a verified cell in seconds and GB/s; nulls for every other cell."""
    times = ("median_s", "median_low_s", "median_high_s", "coverage", "own_low_s", "own_high_s")
    bands = ("bandwidth_gbs", "bandwidth_low_gbs", "bandwidth_high_gbs", "over_copy")
    lists: dict[str, list[Any]] = {name: [] for name in REPEAT_COLUMNS}
    if run.status is not Status.OK:
        return {**dict.fromkeys((*times, *bands, "within_half_width", "between_spread")), **lists}
    m = median_interval(run.samples_s)
    gb = bytes_moved * 1e-9
    return {
        **dict(zip(times, (m.median, m.low, m.high, m.coverage, m.low, m.high), strict=True)),
        **dict(zip(bands, (gb / m.median, gb / m.high, gb / m.low), strict=False)),
        "over_copy": gb / m.median / copy_gbs if copy_gbs else None,
        "within_half_width": m.relative_half_width,
        "between_spread": None,
        "repeat_medians_s": [m.median],
        "repeat_samples": [len(run.samples_s)],
        "repeat_copy_gbs": [copy_gbs] if copy_gbs else [],
    }
