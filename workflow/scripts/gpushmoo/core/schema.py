"""Columns of Parquet files: the contract between the stages.

Each column is written down once, with name, type, unit and meaning in one line:

    class Cells(Table):
        median_s: Number | None  # [s] a launch: the geometric mean of the repeats' medians

The meaning is a comment, so that no other words make a stage run again. A column without one means
what it means in another table. `docs/data.md` is made of it.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

import pyarrow as pa

SCHEMA_VERSION = 5
METADATA_KEY = b"gpushmoo"


class Status(StrEnum):
    """How a cell ended. Only ``ok`` cells, which are verified, can win."""

    OK = "ok"
    TOO_MANY_THREADS = "too_many_threads"
    RESOURCES = "resources"
    INVALID = "invalid"
    UNPROPOSED = "unproposed"
    SKIPPED = "skipped"
    BUILD_FAILED = "build_failed"
    WORKLOAD_FAILED = "workload_failed"
    LAUNCH_FAILED = "launch_failed"
    WRONG_RESULT = "wrong_result"
    FALSE_TIME = "false_time"
    TIMEOUT = "timeout"
    THROTTLED = "throttled"
    LOST_DEVICE = "lost_device"


# A cell over a limit of the device or its kernel is part of the experiment, and one that a search
# left out was not tried; the rest are faults that a strict run refuses.
LIMITS = frozenset({Status.TOO_MANY_THREADS, Status.RESOURCES, Status.INVALID})
FAULTS = frozenset(Status) - LIMITS - {Status.OK, Status.UNPROPOSED}

# In a shard's provenance, the number of invalid combinations that have no row, if there are any.
UNLISTED = "unlisted"

Text = str
Whole = int
Small = int
Number = float
Flag = bool
Time = datetime
_KINDS = {
    "Text": pa.string(),
    "Whole": pa.int64(),
    "Small": pa.int32(),
    "Number": pa.float64(),
    "Flag": pa.bool_(),
    "Time": pa.timestamp("ms", tz="UTC"),
}
_LINE = re.compile(r"    (?:(\w+): [^#]+|)#(?: \[(.+?)\])? (.+)")


@dataclass(frozen=True)
class Meaning:
    """A column in words; `unit` is empty for texts, keys and what is only counted."""

    text: str
    unit: str = ""


class Table:
    """A kind of file; the annotations of a subclass are its columns, after those of its bases."""

    @classmethod
    def fields(cls) -> list[pa.Field]:
        """Return the columns as Arrow's fields."""
        tables = cls.__mro__[-2::-1]
        named = [item for one in tables for item in inspect.get_annotations(one).items()]
        return [_field(name, annotation) for name, annotation in named]

    @classmethod
    def schema(cls) -> pa.Schema:
        """The schema of a file of this kind."""
        return pa.schema(cls.fields())

    @classmethod
    def meanings(cls) -> dict[str, Meaning]:
        """What the columns mean, as far as comments say it."""
        found: dict[str, Meaning] = {}
        for base in cls.__mro__[-3::-1]:
            name = ""
            for line in filter(None, map(_LINE.fullmatch, inspect.getsource(base).splitlines())):
                before = found[name].text + " " if line[1] is None else ""
                name = line[1] or name
                unit = found[name].unit if before else line[2] or ""
                found[name] = Meaning(before + line[3], unit)
        return found


def _field(name: str, annotation: str) -> pa.Field:
    kind, _, null = annotation.partition(" | ")
    listed = re.fullmatch(r"list\[(\w+)\]", kind)
    return pa.field(name, pa.list_(_KINDS[listed[1]]) if listed else _KINDS[kind], bool(null))


class Group(Table):
    """What cells compete in. Devices of one name share a sweep; rows say which measured them."""

    kernel: Text  # name of the kernel's folder
    dtype: Text  # element type
    variant: Text  # variant of the kernel
    height: Whole  # [elements] rows of the problem
    width: Whole  # [elements] columns of the problem
    cache_state: Text  # what the last cache holds before a sample: warm or flushed
    timing_mode: Text  # how launches come: batched, isolated, stream or graph
    device_name: Text  # name of the device's model


class Cells(Table):
    """Cells of a shard, or of a data set, which has a row for all repeats of a cell.

    GB/s are 10⁹ bytes per second, read plus written. `median_low_s` to `median_high_s` is the 95 %
    interval of what another run may find, `own_low_s` to `own_high_s` that without what all cells
    of the same rounds share (see `analysis.statistics`); of a single repeat both are the interval
    of its samples.
    """

    cell_key: Text  # hash of all that makes the cell; the same in every sweep that has it
    kernel: Text
    dtype: Text
    variant: Text
    height: Whole
    width: Whole
    status: Text  # how the cell ended; only what is ok was verified and has times
    message: Text | None  # why it did not end as ok; null where it did
    bandwidth_gbs: Number | None  # [GB/s] bytes read and written over the median; null of no bytes
    bandwidth_low_gbs: Number | None  # [GB/s] lower end of its prediction interval for another run
    bandwidth_high_gbs: Number | None  # [GB/s] upper end of its prediction interval for another run
    median_s: Number | None  # [s] a launch: the geometric mean of the repeats' medians
    median_low_s: Number | None  # [s] lower end of the interval for another run's median
    median_high_s: Number | None  # [s] upper end of the interval for another run's median
    coverage: Number | None  # [0 to 1] confidence of the interval; smaller with very few samples
    own_low_s: Number | None  # [s] as median_low_s, without what cells of a group share
    own_high_s: Number | None  # [s] as median_high_s, without it: by these two, cells compare
    within_half_width: Number | None  # [0 to 1] half of the samples' own interval over the median
    between_spread: Number | None  # [0 to 1] relative standard deviation of the repeats' medians
    repeat_medians_s: list[Number]  # [s] the median of each repeat
    repeat_samples: list[Small]  # how many of the samples each repeat has
    repeat_memcpy_gbs: list[Number]  # [GB/s] what the memcpy baseline reached in each repeat
    samples_s: list[Number]  # [s] every sample in the order taken: the mean of its launches
    events_s: list[Number] | None  # [s] the same by the device's clock, if samples_s are processor
    # times because the process lacked its cores; null otherwise
    sampled_at_s: list[Number]  # [s] when each sample began, from the start of its job on
    processor_s: list[Number] | None  # [s] of a CPU: what all threads computed for a launch of each
    # sample; waiting for a core is not in it. Null of other devices
    launches_per_sample: Small | None  # launches that one sample is the mean of
    overhead_s: Number | None  # [s] of a sample, besides its launches; samples_s are without it.
    # Null if samples hold it: of launches that are flushed, isolated, renewed, or of 2 ms and more
    overhead_error_s: Number | None  # [s] standard error of overhead_s
    bytes_read: Whole  # [bytes] what a launch has to read, each byte once
    bytes_written: Whole  # [bytes] what a launch has to write, each byte once
    work: Number | None  # [work_unit] what a launch computes; null if the workload does not give it
    work_unit: Text | None  # what the work counts: FLOP or another
    working_set_over_cache: Number | None  # bytes read and written over the device's last cache
    cache_state: Text
    timing_mode: Text
    memcpy_gbs: Number | None  # [GB/s] the memcpy baseline of the same buffers, in the same rounds
    vs_memcpy: Number | None  # bandwidth in multiples of memcpy_gbs
    threads_per_block: Small  # threads of a block
    blocks: Whole  # blocks of the launch
    tiles: Whole  # pieces that the blocks share out among them
    multiprocessors: Small  # multiprocessors or compute units of the device
    resident_blocks: Small | None  # blocks that a multiprocessor holds at once; null if unknown
    registers: Small | None  # registers of a thread; null if unknown
    verified_words: Whole | None  # [words of four bytes] words of the output that were compared
    wrong_words: Whole | None  # [words of four bytes] those of them that were not as they should be
    worst_error: Number | None  # largest error of an element over its limit; null if exact
    device_uuid: Text  # the device that measured; after repeats that of the first
    device_name: Text
    backend: Text  # the backend of the device: cuda, opencl or another
    measured_at: Time  # [UTC] when the job that measured the cell wrote it


class BestCell(Table):
    """What is said of a best cell besides its group and its launch parameters."""

    threads_per_block: Small
    bandwidth_gbs: Number | None
    bandwidth_low_gbs: Number | None
    bandwidth_high_gbs: Number | None
    median_s: Number
    median_low_s: Number
    median_high_s: Number
    work: Number | None
    work_unit: Text | None
    share_of_peak: Number | None  # bandwidth over the measured peak, above 1 where the cell is
    # faster; null where no peak was measured
    vs_memcpy: Number | None
    slower_than_best: Number  # [0 to 1] median over that of the group's fastest, minus one
    is_fastest: Flag  # whether the cell has the group's smallest median
    tied: Small  # cells of the group that are statistically tied with its fastest
    candidates: Small  # cells of the group that ended as ok
    boundary: Text  # axes of which the fastest cell has the outermost value: block_x up, ...
    cell_key: Text


# What `threads_per_block` holds at most. No device is near it, but a configuration may ask for
# more, and the shard's other cells shall not be lost for that.
MOST_THREADS = 2**31 - 1
# Lists with an entry for each repeat.
REPEAT_COLUMNS = ("repeat_medians_s", "repeat_samples", "repeat_memcpy_gbs")

CORE_COLUMNS = frozenset(field.name for field in Cells.fields())
# Of columns that stages put beside those of a data set; no axis can begin with it.
DERIVED = "#"
# What is in the place of the samples where a stage asks only how many there are.
SAMPLE_COUNT = f"{DERIVED}samples"
# Neither what stages derive, nor what readers of Parquet and frames add (``__filename``,
# ``_1``), looks so; names of figures' files have room for two.
_AXIS = re.compile("[A-Za-z][A-Za-z0-9_]{0,63}")


def is_axis(column: str) -> bool:
    """Whether a column of cells holds a launch parameter."""
    return column not in TAKEN and not column.startswith(DERIVED)


def axis_fault(axes: Iterable[object]) -> str | None:
    """Why columns cannot be called so, as a clause; case does not tell them apart."""
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
    """Schema of cells with these axes (int64, sorted). Raises ValueError by `axis_fault`."""
    names = sorted(set(axes))
    fault = axis_fault(names)
    if fault is not None:
        raise ValueError(f"{fault}.")
    return pa.schema(Cells.fields() + [pa.field(name, pa.int64()) for name in names])


GROUP = tuple(field.name for field in Group.fields())
# Their columns without those of the axes.
BEST_COLUMNS = (*GROUP, *(field.name for field in BestCell.fields()))
# Where a stage puts the launch parameters of a best cell in one text, as `params_text` has it.
PARAMS = "params"
# No axis is called so: it would stand twice in a table of cells or of best cells.
TAKEN = CORE_COLUMNS.union(BEST_COLUMNS, [PARAMS])


def best_schema(axes: Iterable[str]) -> pa.Schema:
    """Schema of best cells whose kernels have these axes (int64 columns, sorted)."""
    names = [pa.field(name, pa.int64()) for name in sorted(set(axes))]
    return pa.schema([*Group.fields(), *names, *BestCell.fields()])


class StudiedCell(Table):
    """A cell of a study."""

    cell_key: Text
    kernel: Text
    dtype: Text
    variant: Text
    height: Whole
    width: Whole
    cache_state: Text
    params: Text  # launch parameters, name=value, between blanks


class Energy(StudiedCell):
    """Cells whose energy was measured; lists have an entry for each round."""

    role: Text  # why the cell was chosen
    message: Text | None  # why the cell has no figures; null where it has
    bytes_read: Whole
    bytes_written: Whole
    rounds: Small  # rounds in each of which the cell had one window
    launches_per_sample: Small | None
    power_w: Number | None  # [W] mean power of the board in the windows
    idle_w: Number | None  # [W] power of the idle device, the mean of before and after
    gbs: Number | None  # [GB/s] bandwidth in the windows, by the device's own times
    busy_share: Number | None  # [0 to 1] share of the windows that is known to be spent in launches
    joules_per_gb: Number | None  # [J/GB] energy of a gigabyte read or written, with idle power
    joules_per_gb_low: Number | None  # [J/GB] lower end of its 95 % interval, by t over the rounds
    joules_per_gb_high: Number | None  # [J/GB] upper end of it
    net_joules_per_gb: Number | None  # [J/GB] the same with the idle power subtracted
    net_joules_per_gb_low: Number | None  # [J/GB] lower end of its 95 % interval, by t over rounds
    net_joules_per_gb_high: Number | None  # [J/GB] upper end of it
    window_s: list[Number]  # [s] length of each window, from step to step of the counter
    window_j: list[Number]  # [J] energy that the counter shows for it
    window_gbs: list[Number]  # [GB/s] bandwidth in it
    sm_clock_mhz_low: Small | None  # [MHz] lowest clock of the cores that was read in a window
    sm_clock_mhz_high: Small | None  # [MHz] highest one
    temperature_c: Small | None  # [°C] highest temperature that was read in a window
    throttled: Flag  # whether the device protected itself in a window
    device_uuid: Text
    device_name: Text


ENERGY_SCHEMA = Energy.schema()
