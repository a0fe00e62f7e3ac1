"""What cannot stand in a row of a shard: values out of bounds, or that contradict each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..core.schema import MOST_THREADS, Status
from ..storage.restored import Floats, derived, numbers

# Far above what any memory or cache of a device moves, in GB/s.
MOST_GBS = 1e6
# What is computed again in another order of operations differs by its rounding alone.
_RELATIVE = 1e-9
# By which the clocks of host and device may differ.
_CLOCKS = 0.01
LISTS = ("samples_s", "sampled_at_s")
# Null in a row that is not ``ok``.
TIMES = (
    *("bandwidth_gbs", "bandwidth_low_gbs", "bandwidth_high_gbs", "median_s", "median_low_s"),
    *("median_high_s", "coverage", "own_low_s", "own_high_s", "within_half_width"),
)
# Whole numbers and what they are at least.
_LEAST = {
    **dict.fromkeys(("bytes_read", "bytes_written", "threads_per_block", "blocks", "tiles"), 0),
    "launches_per_sample": 1,
    **dict.fromkeys(("resident_per_unit", "registers", "verified_words", "wrong_words"), 0),
}


def faults_of_rows(table: pa.Table, metadata: Mapping[str, Any]) -> Iterator[str]:
    """Clauses on what is impossible in the rows of a shard, those of a single repeat."""
    unknown = set(pc.unique(table.column("status")).to_pylist()) - set(Status)
    if unknown:
        yield f"holds the status '{min(unknown)}', which no cell can have"
    for name, least in _LEAST.items():
        smallest = pc.min(table.column(name)).as_py()
        if smallest is not None and smallest < least:
            yield f"holds {name} = {smallest}; it is at least {least}"
    for name in ("kernel", "dtype", "backend"):
        if len(pc.unique(table.column(name))) > 1:
            yield f"holds several values of {name}"
    yield from _faults_of_moments(table, metadata)
    too_many = pc.equal(table.column("status"), Status.TOO_MANY_THREADS)
    over = pc.greater(table.column("threads_per_block"), _most_threads(metadata))
    if not too_many.equals(over):
        yield "holds a cell whose number of threads its status contradicts"
    ok = pc.equal(table.column("status"), Status.OK)
    yield from _faults_of_unmeasured(table.filter(pc.invert(ok)))
    yield from _faults_of_measured(table.filter(ok), metadata)


def _faults_of_moments(table: pa.Table, metadata: Mapping[str, Any]) -> Iterator[str]:
    """A shard is of one moment, but for the cells that its provenance says are earlier."""
    counts = pc.value_counts(table.column("measured_at")).to_pylist()
    at = {c["values"].isoformat(timespec="milliseconds"): c["counts"] for c in counts}
    earlier = {told["measured_at"]: told["cells"] for told in metadata.get("earlier", ())}
    if any(at.get(moment) != cells for moment, cells in earlier.items()) or len(at) > 1 + len(
        earlier
    ):
        yield "holds several values of measured_at, which its provenance does not tell"


def _most_threads(metadata: Mapping[str, Any]) -> int:
    """Threads that a block may have: the configuration's limit or the device's."""
    limits = metadata["device"]["max_threads_per_block"], metadata["params"]["thread_limit"]
    return min(limit for limit in (*limits, MOST_THREADS) if limit is not None)


def _faults_of_unmeasured(rows: pa.Table) -> Iterator[str]:
    for name in (*TIMES, "over_copy", "between_spread"):
        if rows.column(name).null_count < len(rows):
            yield f"holds {name} of a cell that was not measured"
    for name in ("repeat_medians_s", "repeat_samples", "repeat_copy_gbs"):
        if pc.sum(pc.list_value_length(rows.column(name))).as_py():
            yield f"holds {name} of a cell that was not measured"


def _faults_of_measured(rows: pa.Table, metadata: Mapping[str, Any]) -> Iterator[str]:
    """Clauses on ``ok`` cells that lack a value, are not verified, or contradict their samples."""
    if not len(rows):
        return
    for name in (*TIMES, "launches_per_sample", "verified_words", "wrong_words"):
        if rows.column(name).null_count:
            yield f"holds an ok cell without {name}"
            return
    if rows.column("message").null_count < len(rows):
        yield "holds an ok cell with a message of a fault"
    if pc.max(rows.column("wrong_words")).as_py():
        yield "holds an ok cell with wrong words"
    if not pc.min(rows.column("verified_words")).as_py():
        yield "holds an ok cell of which nothing was verified"
    for name in ("threads_per_block", "blocks", "tiles"):
        if not pc.min(rows.column(name)).as_py():
            yield f"holds an ok cell with {name} = 0"
    sampled = _faults_of_samples(rows, metadata["params"]["measure"])
    fault = next(sampled, None)
    if fault is not None:
        yield fault
        return
    for name, values in derived(rows, metadata["device"]["cache"]).items():
        if not _agree(numbers(rows, name), values):
            yield f"holds an ok cell whose {name} does not follow from the rest of its row"
    if np.nanmax(numbers(rows, "bandwidth_high_gbs")) > MOST_GBS:
        yield f"holds a bandwidth of over {MOST_GBS:.0e} GB/s, which nothing has"
    yield from _faults_of_groups(rows)


def _faults_of_samples(rows: pa.Table, measure: Mapping[str, Any]) -> Iterator[str]:
    lengths = pc.list_value_length(rows.column("samples_s")).to_numpy()
    # A record that was packed has no moments, of any cell.
    timed = len(pc.list_flatten(rows.column("sampled_at_s"))) > 0
    for name in LISTS if timed else LISTS[:1]:
        column = rows.column(name)
        values = pc.list_flatten(column)
        if values.null_count or not np.array_equal(
            pc.list_value_length(column).to_numpy(), lengths
        ):
            yield f"holds {name} that are not one for each sample"
            return
        found = values.to_numpy()
        least = np.nextafter(0.0, 1.0) if name == "samples_s" else 0.0
        if not np.all(np.isfinite(found) & (found >= least)):
            yield f"holds {name} that no clock gives"
            return
    samples, moments = (pc.list_flatten(rows.column(n)).to_numpy() for n in LISTS)
    if samples.max() > measure["timeout_s"]:
        limit_s = measure["timeout_s"]
        yield f"holds a sample of {samples.max():.3g} s, and a launch may take {limit_s:g} s"
    launches = np.repeat(rows.column("launches_per_sample").to_numpy(), lengths)
    if timed and _overlap(moments, samples * launches, lengths):
        yield "holds samples of a cell that began before the one before them had ended"
    if lengths.min() < 1 or lengths.max() > max(measure["max_samples"], 6):
        yield f"holds a cell of {lengths.min()} to {lengths.max()} samples"


def _overlap(moments: Floats, took_s: Floats, lengths: npt.NDArray[np.int64]) -> bool:
    """Whether a sample of a cell began before the cell's sample before it had ended.

    `moments` and `took_s` are those of each cell, `lengths` of them, in a row. Two clocks tell
    them, the host's and the device's.
    """
    early = np.diff(moments) < took_s[:-1] * (1.0 - _CLOCKS)
    early[np.cumsum(lengths)[:-1] - 1] = False
    return bool(early.any())


def _agree(stored: Floats, derived: Floats) -> bool:
    return bool(np.allclose(stored, derived, rtol=_RELATIVE, atol=0.0, equal_nan=True))


def _faults_of_groups(rows: pa.Table) -> Iterator[str]:
    """What cells of one problem have in common: the copy beside them, and what is verified."""
    for name, keys in (
        ("copy_gbs", ["height", "width", "cache_state", "launch_kind", "measured_at"]),
        ("verified_words", ["height", "width", "variant"]),
    ):
        several = rows.group_by(keys).aggregate([(name, "count_distinct")])
        if pc.max(several.column(f"{name}_count_distinct")).as_py() > 1:
            yield f"holds cells of one problem with several {name}"
