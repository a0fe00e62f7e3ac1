"""Columns of Parquet files: the contract between the stages.

Each column is an annotation with its name, type, meaning and unit:

    class Cells(Table):
        median_s: Annotated[Float64 | None, Meaning("the geometric mean of the medians", "s")]

A column without a meaning means the same as in another table. `docs/data.md` is made of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import StrEnum
from types import NoneType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import pyarrow as pa

from .meaning import Meaning as Meaning
from .meaning import meaning_in

SCHEMA_VERSION = 6
METADATA_KEY = b"gpushmoo"


class Status(StrEnum):
    """How a cell ended. Only ``ok`` cells, which are verified, can win."""

    OK = "ok"
    TOO_MANY_THREADS = "too_many_threads"
    OUT_OF_RESOURCES = "out_of_resources"
    INVALID = "invalid"
    NOT_SEARCHED = "not_searched"
    SKIPPED = "skipped"
    BUILD_FAILED = "build_failed"
    WORKLOAD_FAILED = "workload_failed"
    LAUNCH_FAILED = "launch_failed"
    WRONG_RESULT = "wrong_result"
    TIMING_MISMATCH = "timing_mismatch"
    TIMEOUT = "timeout"
    THROTTLED = "throttled"
    DEVICE_LOST = "device_lost"


# A cell over a limit of the device or its kernel is part of the experiment, and one that a search
# left out was not tried; the rest are faults that a strict run refuses.
LIMITS = frozenset({Status.TOO_MANY_THREADS, Status.OUT_OF_RESOURCES, Status.INVALID})
FAULTS = frozenset(Status) - LIMITS - {Status.OK, Status.NOT_SEARCHED}

# Today's names of statuses and columns in files of schema versions before 6, by their former names.
RENAMED_STATUSES: Mapping[str, Status] = {
    "false_time": Status.TIMING_MISMATCH,
    "unproposed": Status.NOT_SEARCHED,
    "lost_device": Status.DEVICE_LOST,
    "resources": Status.OUT_OF_RESOURCES,
}
RENAMED_COLUMNS: Mapping[str, str] = {
    "own_low_s": "group_low_s",
    "own_high_s": "group_high_s",
    "within_half_width": "sample_half_width",
    "between_spread": "repeat_rsd",
    "slower_than_best": "slowdown",
}

# In a shard's provenance, the number of invalid combinations that have no row, if there are any.
UNLISTED = "unlisted"

# Types of columns, each with its type in Arrow.
String = Annotated[str, pa.string()]
Int64 = Annotated[int, pa.int64()]
Int32 = Annotated[int, pa.int32()]
Float64 = Annotated[float, pa.float64()]
Bool = Annotated[bool, pa.bool_()]
Timestamp = Annotated[datetime, pa.timestamp("ms", tz="UTC")]


class Table:
    """A kind of file; the annotations of a subclass are its columns, after those of its bases."""

    @classmethod
    def fields(cls) -> list[pa.Field]:
        """Return the columns as Arrow's fields."""
        return [pa.field(name, *_arrow_type(hint)) for name, hint in _columns(cls).items()]

    @classmethod
    def schema(cls) -> pa.Schema:
        """Return the schema of a file of this kind."""
        return pa.schema(cls.fields())

    @classmethod
    def meanings(cls) -> dict[str, Meaning]:
        """Return the meanings of the columns that have one."""
        noted = ((name, meaning_in(get_args(hint))) for name, hint in _columns(cls).items())
        return {name: meaning for name, meaning in noted if meaning is not None}


def _columns(table: type[Table]) -> dict[str, Any]:
    """Return the annotations of a table's columns by name, those of its bases first."""
    return get_type_hints(table, include_extras=True)


def _arrow_type(hint: Any) -> tuple[pa.DataType, bool]:
    """Return the Arrow type of an annotation, and whether a value may be null."""
    if get_origin(hint) is Annotated:
        inner, *notes = get_args(hint)
        of_arrow = [note for note in notes if isinstance(note, pa.DataType)]
        return (of_arrow[0], False) if of_arrow else _arrow_type(inner)
    if get_origin(hint) is list:
        return pa.list_(_arrow_type(get_args(hint)[0])[0]), False
    [kind] = (one for one in get_args(hint) if one is not NoneType)
    return _arrow_type(kind)[0], True


class Group(Table):
    """What cells compete in. Devices of one name share a sweep; rows say which measured them."""

    kernel: Annotated[String, Meaning("name of the kernel's folder")]
    dtype: Annotated[String, Meaning("element type")]
    variant: Annotated[String, Meaning("variant of the kernel")]
    height: Annotated[Int64, Meaning("rows of the problem", "elements")]
    width: Annotated[Int64, Meaning("columns of the problem", "elements")]
    cache_state: Annotated[
        String, Meaning("state of the last cache before a sample: warm or flushed")
    ]
    timing_mode: Annotated[
        String, Meaning("timing mode of launches: batched, isolated, stream or graph")
    ]
    device_name: Annotated[String, Meaning("name of the device's model")]


class Cells(Table):
    """Cells of a shard, or of a data set, which has a row for all repeats of a cell.

    GB/s are 10⁹ bytes per second, read plus written. `median_low_s` to `median_high_s` is the 95 %
    prediction interval for another run. `group_low_s` to `group_high_s` is the interval without the
    drift that all cells of the same rounds share (see `analysis.statistics`). With a single repeat,
    both are the interval of its samples.
    """

    cell_key: Annotated[String, Meaning("hash of the cell's identity, the same in every sweep")]
    kernel: String
    dtype: String
    variant: String
    height: Int64
    width: Int64
    status: Annotated[
        String, Meaning("how the cell ended. Only ok cells were verified and have times")
    ]
    message: Annotated[String | None, Meaning("reason if the status is not ok, otherwise null")]
    bandwidth_gbs: Annotated[
        Float64 | None,
        Meaning("bytes read and written over the median. Null without bytes", "GB/s"),
    ]
    bandwidth_low_gbs: Annotated[
        Float64 | None, Meaning("lower end of its prediction interval for another run", "GB/s")
    ]
    bandwidth_high_gbs: Annotated[
        Float64 | None, Meaning("upper end of its prediction interval for another run", "GB/s")
    ]
    median_s: Annotated[
        Float64 | None, Meaning("time of a launch: the geometric mean of the repeats' medians", "s")
    ]
    median_low_s: Annotated[
        Float64 | None, Meaning("lower end of the interval for another run's median", "s")
    ]
    median_high_s: Annotated[
        Float64 | None, Meaning("upper end of the interval for another run's median", "s")
    ]
    coverage: Annotated[
        Float64 | None,
        Meaning("confidence of the interval, smaller with very few samples", "0 to 1"),
    ]
    group_low_s: Annotated[
        Float64 | None, Meaning("as median_low_s, without the drift that a group shares", "s")
    ]
    group_high_s: Annotated[
        Float64 | None, Meaning("as median_high_s, without it. These two decide ties", "s")
    ]
    sample_half_width: Annotated[
        Float64 | None, Meaning("half of the samples' own interval over the median", "0 to 1")
    ]
    repeat_rsd: Annotated[
        Float64 | None, Meaning("relative standard deviation of the repeats' medians", "0 to 1")
    ]
    repeat_medians_s: Annotated[list[Float64], Meaning("median of each repeat", "s")]
    repeat_samples: Annotated[list[Int32], Meaning("number of samples in each repeat")]
    repeat_memcpy_gbs: Annotated[list[Float64], Meaning("memcpy baseline of each repeat", "GB/s")]
    samples_s: Annotated[
        list[Float64],
        Meaning("every sample in the order of sampling: the mean of its launches", "s"),
    ]
    events_s: Annotated[
        list[Float64] | None,
        Meaning(
            "the same by the device's clock, if samples_s are processor times because the "
            "process lacked its cores. Null otherwise",
            "s",
        ),
    ]
    sampled_at_s: Annotated[
        list[Float64], Meaning("when each sample began, from the start of its job on", "s")
    ]
    processor_s: Annotated[
        list[Float64] | None,
        Meaning(
            "on a CPU: processor time of all threads for a launch of each sample, without "
            "waits for a core. Null on other devices",
            "s",
        ),
    ]
    launches_per_sample: Annotated[Int32 | None, Meaning("launches in one sample")]
    overhead_s: Annotated[
        Float64 | None,
        Meaning(
            "overhead of a sample, which samples_s exclude. Null if they include it: for flushed, "
            "isolated and renewed launches, and for launches of 2 ms and more",
            "s",
        ),
    ]
    overhead_error_s: Annotated[Float64 | None, Meaning("standard error of overhead_s", "s")]
    bytes_read: Annotated[
        Int64, Meaning("bytes that a launch must read, each counted once", "bytes")
    ]
    bytes_written: Annotated[
        Int64, Meaning("bytes that a launch must write, each counted once", "bytes")
    ]
    work: Annotated[
        Float64 | None,
        Meaning("work of a launch. Null if the workload does not define it", "work_unit"),
    ]
    work_unit: Annotated[String | None, Meaning("unit of the work: FLOP or another")]
    working_set_over_cache: Annotated[
        Float64 | None, Meaning("bytes read and written over the device's last cache")
    ]
    cache_state: String
    timing_mode: String
    memcpy_gbs: Annotated[
        Float64 | None,
        Meaning("the memcpy baseline of the same buffers, in the same rounds", "GB/s"),
    ]
    vs_memcpy: Annotated[Float64 | None, Meaning("bandwidth in multiples of memcpy_gbs")]
    threads_per_block: Annotated[Int32, Meaning("threads of a block")]
    blocks: Annotated[Int64, Meaning("blocks of the launch")]
    tiles: Annotated[Int64, Meaning("equal pieces of work in the grid")]
    multiprocessors: Annotated[Int32, Meaning("multiprocessors or compute units of the device")]
    resident_blocks: Annotated[
        Int32 | None, Meaning("blocks that fit on a multiprocessor at once. Null if unknown")
    ]
    registers: Annotated[Int32 | None, Meaning("registers of a thread. Null if unknown")]
    verified_words: Annotated[
        Int64 | None, Meaning("words of the output that were compared", "words of four bytes")
    ]
    wrong_words: Annotated[
        Int64 | None,
        Meaning("compared words that were wrong", "words of four bytes"),
    ]
    worst_error: Annotated[
        Float64 | None, Meaning("largest error of an element over its limit. Null if exact")
    ]
    device_uuid: Annotated[
        String, Meaning("UUID of the device that measured (in the first repeat)")
    ]
    device_name: String
    backend: Annotated[String, Meaning("name of the backend of the device")]
    measured_at: Annotated[
        Timestamp, Meaning("time at which the job that measured the cell wrote it", "UTC")
    ]


class BestCell(Table):
    """Columns of a best cell besides its group and its launch parameters."""

    threads_per_block: Int32
    bandwidth_gbs: Float64 | None
    bandwidth_low_gbs: Float64 | None
    bandwidth_high_gbs: Float64 | None
    median_s: Float64
    median_low_s: Float64
    median_high_s: Float64
    work: Float64 | None
    work_unit: String | None
    share_of_peak: Annotated[
        Float64 | None,
        Meaning(
            "bandwidth over the measured peak, above 1 if the cell is faster. Null without a "
            "measured peak",
        ),
    ]
    vs_memcpy: Float64 | None
    slowdown: Annotated[
        Float64, Meaning("median over that of the group's fastest, minus one", "0 to 1")
    ]
    is_fastest: Annotated[Bool, Meaning("whether the cell has the group's smallest median")]
    tied: Annotated[
        Int32, Meaning("cells of the group that are statistically tied with its fastest")
    ]
    candidates: Annotated[Int32, Meaning("cells of the group that ended as ok")]
    boundary: Annotated[
        String, Meaning("axes on which the fastest cell has the outermost value: block_x up, ...")
    ]
    cell_key: String


# What `threads_per_block` holds at most. No device is near it, but a configuration may ask for
# more, and the shard's other cells shall not be lost for that.
MAX_THREADS = 2**31 - 1
# Lists with an entry for each repeat.
REPEAT_COLUMNS = ("repeat_medians_s", "repeat_samples", "repeat_memcpy_gbs")

# Read from the annotations once, since a run opens many shards.
_FIELDS = tuple(Cells.fields())
CORE_COLUMNS = frozenset(field.name for field in _FIELDS)
# Of columns that stages put beside those of a data set; no axis can begin with it.
DERIVED = "#"
# Replaces the samples for a stage that needs only their number.
SAMPLE_COUNT = f"{DERIVED}samples"
# Neither what stages derive, nor what readers of Parquet and frames add (``__filename``,
# ``_1``), looks so; names of figures' files have room for two.
_AXIS = re.compile("[A-Za-z][A-Za-z0-9_]{0,63}")


def is_axis(column: str) -> bool:
    """Return whether a column of cells contains a launch parameter."""
    return column not in TAKEN and not column.startswith(DERIVED)


def axis_fault(axes: Iterable[object]) -> str | None:
    """Return why columns cannot have these names, as a clause; case does not distinguish them."""
    columns = {name.lower(): name for name in TAKEN}
    for axis in axes:
        if not isinstance(axis, str) or not _AXIS.fullmatch(axis):
            return (
                f"axis {axis!r} must be called by a letter and then letters, digits and '_', 64 "
                "at most"
            )
        other = columns.setdefault(axis.lower(), axis)
        if other in TAKEN:
            return f"axis '{axis}' has the name of a column of the result; rename the axis"
        if other != axis:
            return f"axes '{other}' and '{axis}' differ in case alone; rename one"
    return None


def cell_schema(axes: Iterable[str]) -> pa.Schema:
    """Return the schema of cells with these axes (int64, sorted).

    Raises ValueError if `axis_fault` finds a fault.
    """
    names = sorted(set(axes))
    fault = axis_fault(names)
    if fault is not None:
        raise ValueError(f"{fault}.")
    return pa.schema([*_FIELDS, *(pa.field(name, pa.int64()) for name in names)])


GROUP = tuple(field.name for field in Group.fields())
# Their columns without those of the axes.
BEST_COLUMNS = (*GROUP, *(field.name for field in BestCell.fields()))
# Column of a best cell's launch parameters as one text, as `params_text` formats them.
PARAMS = "params"
# Names that an axis must not have, because a table of cells or of best cells has such a column, or
# had it: such a column of an older file is no axis.
TAKEN = CORE_COLUMNS.union(BEST_COLUMNS, [PARAMS], RENAMED_COLUMNS)


def best_schema(axes: Iterable[str]) -> pa.Schema:
    """Return the schema of best cells whose kernels have these axes (int64 columns, sorted)."""
    names = [pa.field(name, pa.int64()) for name in sorted(set(axes))]
    return pa.schema([*Group.fields(), *names, *BestCell.fields()])


class StudiedCell(Table):
    """A cell of a study."""

    cell_key: String
    kernel: String
    dtype: String
    variant: String
    height: Int64
    width: Int64
    cache_state: String
    params: Annotated[String, Meaning("launch parameters, name=value, between blanks")]


class Energy(StudiedCell):
    """Cells whose energy was measured. Lists have an entry for each round."""

    role: Annotated[String, Meaning("why the cell was chosen")]
    message: Annotated[
        String | None, Meaning("reason why the cell has no figures. Null if it has them")
    ]
    bytes_read: Int64
    bytes_written: Int64
    rounds: Annotated[Int32, Meaning("rounds in each of which the cell had one window")]
    launches_per_sample: Int32 | None
    power_w: Annotated[Float64 | None, Meaning("mean power of the board in the windows", "W")]
    idle_w: Annotated[
        Float64 | None, Meaning("power of the idle device, the mean of before and after", "W")
    ]
    gbs: Annotated[
        Float64 | None, Meaning("bandwidth in the windows, by the device's own times", "GB/s")
    ]
    busy_share: Annotated[
        Float64 | None,
        Meaning("share of the windows that is known to be spent in launches", "0 to 1"),
    ]
    joules_per_gb: Annotated[
        Float64 | None, Meaning("energy of a gigabyte read or written, with idle power", "J/GB")
    ]
    joules_per_gb_low: Annotated[
        Float64 | None, Meaning("lower end of its 95 % interval, by t over the rounds", "J/GB")
    ]
    joules_per_gb_high: Annotated[Float64 | None, Meaning("upper end of it", "J/GB")]
    net_joules_per_gb: Annotated[
        Float64 | None, Meaning("the same with the idle power subtracted", "J/GB")
    ]
    net_joules_per_gb_low: Annotated[
        Float64 | None, Meaning("lower end of its 95 % interval, by t over rounds", "J/GB")
    ]
    net_joules_per_gb_high: Annotated[Float64 | None, Meaning("upper end of it", "J/GB")]
    window_s: Annotated[
        list[Float64], Meaning("length of each window, from step to step of the counter", "s")
    ]
    window_j: Annotated[list[Float64], Meaning("energy that the counter shows for it", "J")]
    window_gbs: Annotated[list[Float64], Meaning("bandwidth in it", "GB/s")]
    sm_clock_mhz_low: Annotated[
        Int32 | None, Meaning("lowest clock of the cores that was read in a window", "MHz")
    ]
    sm_clock_mhz_high: Annotated[Int32 | None, Meaning("highest one", "MHz")]
    temperature_c: Annotated[
        Int32 | None, Meaning("highest temperature that was read in a window", "°C")
    ]
    throttled: Annotated[Bool, Meaning("whether the device protected itself in a window")]
    device_uuid: String
    device_name: String


ENERGY_SCHEMA = Energy.schema()
