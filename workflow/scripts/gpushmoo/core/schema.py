"""The Arrow schemas: the contract between the stages."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum

import pyarrow as pa

SCHEMA_VERSION = 4
METADATA_KEY = b"gpushmoo"


class Status(StrEnum):
    """How a cell ended. Only ``ok`` cells, which are verified, can win."""

    OK = "ok"
    TOO_MANY_THREADS = "too_many_threads"
    RESOURCES = "resources"
    INVALID = "invalid"
    UNPROPOSED = "unproposed"
    BUILD_FAILED = "build_failed"
    WORKLOAD_FAILED = "workload_failed"
    LAUNCH_FAILED = "launch_failed"
    WRONG_RESULT = "wrong_result"
    TIMEOUT = "timeout"
    THROTTLED = "throttled"
    LOST_DEVICE = "lost_device"


# A cell over a limit of the device or its kernel is part of the experiment, and one that a search
# left out was not tried; the rest are faults that a strict run refuses.
LIMITS = frozenset({Status.TOO_MANY_THREADS, Status.RESOURCES, Status.INVALID})
FAULTS = frozenset(Status) - LIMITS - {Status.OK, Status.UNPROPOSED}

TEXT, WHOLE, SMALL, NUMBER = pa.string(), pa.int64(), pa.int32(), pa.float64()


def columns(kind: pa.DataType, names: str, nullable: bool = False) -> list[pa.Field]:
    """Columns of one type; `names` stand between blanks."""
    return [pa.field(name, kind, nullable=nullable) for name in names.split()]


# Units: seconds, bytes, GB/s = 10⁹ bytes per second (read plus written).
_CELL_FIELDS = [
    *columns(TEXT, "cell_key kernel dtype variant"),
    *columns(WHOLE, "height width"),
    *columns(TEXT, "status"),
    *columns(TEXT, "message", nullable=True),
    *columns(NUMBER, "bandwidth_gbs bandwidth_low_gbs bandwidth_high_gbs", nullable=True),
    *columns(NUMBER, "median_s median_low_s median_high_s coverage", nullable=True),
    *columns(NUMBER, "own_low_s own_high_s within_half_width between_spread", nullable=True),
    *columns(pa.list_(NUMBER), "repeat_medians_s"),
    *columns(pa.list_(SMALL), "repeat_samples"),
    *columns(pa.list_(NUMBER), "repeat_copy_gbs samples_s sampled_at_s"),
    *columns(SMALL, "launches_per_sample", nullable=True),
    *columns(WHOLE, "bytes_read bytes_written"),
    *columns(NUMBER, "working_set_over_cache", nullable=True),
    *columns(TEXT, "cache_state launch_kind"),
    *columns(NUMBER, "copy_gbs over_copy", nullable=True),
    *columns(SMALL, "threads_per_block"),
    *columns(WHOLE, "blocks tiles"),
    *columns(SMALL, "units"),
    *columns(SMALL, "resident_per_unit registers", nullable=True),
    *columns(WHOLE, "verified_words wrong_words", nullable=True),
    *columns(TEXT, "device_uuid device_name backend"),
    *columns(pa.timestamp("ms", tz="UTC"), "measured_at"),
]

# What `threads_per_block` holds at most. No device is near it, but a configuration may ask for
# more, and the shard's other cells shall not be lost for that.
MOST_THREADS = 2**31 - 1
# Lists with an entry for each repeat.
REPEAT_COLUMNS = ("repeat_medians_s", "repeat_samples", "repeat_copy_gbs")

CORE_COLUMNS = frozenset(field.name for field in _CELL_FIELDS)
# Of columns that stages put beside those of a data set; no axis can begin with it.
DERIVED = "#"
# What stands in the place of the samples where a stage asks only how many there are.
SAMPLE_COUNT = f"{DERIVED}samples"
# Neither what stages derive, nor what readers of Parquet and frames add (``__filename``,
# ``_1``), looks so; names of figures' files have room for two.
_AXIS = re.compile("[A-Za-z][A-Za-z0-9_]{0,63}")


def is_axis(column: str) -> bool:
    """Whether a column of cells holds a launch parameter."""
    return column not in TAKEN and not column.startswith(DERIVED)


def axis_fault(axes: Iterable[object]) -> str | None:
    """Why the columns of a data set cannot be called so, as a clause; None when they can.

    Case does not tell them apart: SQL and some file systems do not look at it.
    """
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
    """Schema of cells whose kernels have these launch-parameter axes (int64 columns, sorted).

    ``samples_s`` holds every sample in the order taken, ``sampled_at_s`` its start since the
    shard began; ``copy_gbs`` is the runtime's own device-to-device copy of the same buffers in
    the same rounds, or of the inputs from the host to the device where the data live on the host;
    ``over_copy`` is the bandwidth in multiples of it.

    A shard holds one repeat, a data set a row for all repeats of a cell: ``median_s`` is then the
    geometric mean of ``repeat_medians_s``, ``repeat_samples`` says how many of the samples belong
    to each, ``repeat_copy_gbs`` what the copy reached in it. ``median_low_s`` to ``median_high_s``
    is the 95 % interval of what another run may find, ``own_low_s`` to ``own_high_s`` that without
    what all cells of the same rounds share, by which cells are compared (see `statistics`);
    of a single repeat both are the interval that its samples tell. ``within_half_width`` is half of
    that interval over the median, ``between_spread`` the relative standard deviation of the
    repeats' medians.
    ``threads_per_block`` is at most 2³¹ − 1, also of a cell that asks for more.
    Raises ValueError when an axis cannot be a column beside the others (see `axis_fault`).
    """
    names = sorted(set(axes))
    fault = axis_fault(names)
    if fault is not None:
        raise ValueError(f"{fault}.")
    return pa.schema(_CELL_FIELDS + columns(WHOLE, " ".join(names), nullable=True))


# Shares are 0 to 1; what a level of detail does not know is null.
SIMULATION_SCHEMA = pa.schema(
    [
        *columns(TEXT, "device variant level kernel dtype"),
        *columns(WHOLE, "commands height width num_partition tiles row_bytes pad_bytes"),
        *columns(WHOLE, "critical_path_tiles"),
        *columns(NUMBER, "makespan_cycles bus_busy_share lonely_share"),
        *columns(NUMBER, "row_hit_share mean_wait_cycles", nullable=True),
        *columns(WHOLE, "longest_queue", nullable=True),
        *columns(NUMBER, "busiest_partition", nullable=True),
        *columns(NUMBER, "bandwidth_gbs"),
    ]
)

# What a partition did in a stretch of time; `waiting` requests in the mean.
PROFILE_SCHEMA = pa.schema(
    [
        *columns(TEXT, "dtype"),
        *columns(WHOLE, "commands partition"),
        *columns(NUMBER, "from_cycle to_cycle"),
        *columns(WHOLE, "bursts requests row_openings"),
        *columns(NUMBER, "waiting"),
    ]
)

# Measured and simulated bandwidth of one point, in GB/s; `error` is simulated / measured - 1.
SAME_MACHINE_SCHEMA = pa.schema(
    [
        *columns(TEXT, "device level dtype"),
        *columns(WHOLE, "num_partition"),
        *columns(NUMBER, "measured_gbs simulated_gbs error"),
    ]
)

# What cells compete in. Devices of one name share a sweep; each
# row says which of them measured it.
GROUP_FIELDS = [
    *columns(TEXT, "kernel dtype variant"),
    *columns(WHOLE, "height width"),
    *columns(TEXT, "cache_state launch_kind device_name"),
]
GROUP = tuple(f.name for f in GROUP_FIELDS)

# `share_of_ceiling` is of what loading and storing as many bytes takes at least (see
# analysis.ceiling), `over_copy` in multiples of the runtime's own copy, timed in the same rounds.
# `edge`: axes on whose first or last swept value the whole tied set lies, "block_x up, ...".
_BEST_FIELDS = [
    *columns(SMALL, "threads_per_block"),
    *columns(NUMBER, "bandwidth_gbs bandwidth_low_gbs bandwidth_high_gbs"),
    *columns(NUMBER, "share_of_ceiling over_copy", nullable=True),
    *columns(NUMBER, "slower_than_best"),
    *columns(pa.bool_(), "is_fastest"),
    *columns(SMALL, "tied candidates"),
    *columns(TEXT, "edge cell_key"),
]
# Their columns without those of the axes.
BEST_COLUMNS = (*GROUP, *(f.name for f in _BEST_FIELDS))
# Where a stage puts the launch parameters of a best cell in one text, as `params_text` has it.
PARAMS = "params"
# No axis is called so: it would stand twice in a table of cells or of best cells.
TAKEN = CORE_COLUMNS.union(BEST_COLUMNS, [PARAMS])


def best_schema(axes: Iterable[str]) -> pa.Schema:
    """Schema of best cells whose kernels have these axes (int64 columns, sorted)."""
    names = columns(WHOLE, " ".join(sorted(set(axes))), nullable=True)
    return pa.schema([*GROUP_FIELDS, *names, *_BEST_FIELDS])
