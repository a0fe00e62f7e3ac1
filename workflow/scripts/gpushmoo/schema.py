"""The Arrow schemas: the contract between the stages."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum

import pyarrow as pa

SCHEMA_VERSION = 3
METADATA_KEY = b"gpushmoo"


class Status(StrEnum):
    """How a cell ended. Only ``ok`` cells, which are verified, can win."""

    OK = "ok"
    TOO_MANY_THREADS = "too_many_threads"
    RESOURCES = "resources"
    BUILD_FAILED = "build_failed"
    WORKLOAD_FAILED = "workload_failed"
    LAUNCH_FAILED = "launch_failed"
    WRONG_RESULT = "wrong_result"
    TIMEOUT = "timeout"
    THROTTLED = "throttled"
    LOST_DEVICE = "lost_device"


# A cell over a limit is part of the experiment; these are faults that a strict run refuses.
FAULTS = frozenset(
    {
        Status.BUILD_FAILED,
        Status.WORKLOAD_FAILED,
        Status.LAUNCH_FAILED,
        Status.WRONG_RESULT,
        Status.TIMEOUT,
        Status.THROTTLED,
        Status.LOST_DEVICE,
    }
)

# Units: seconds, bytes, GB/s = 10⁹ bytes per second (read plus written).
_CELL_FIELDS: tuple[tuple[str, pa.DataType, bool], ...] = (
    ("cell_key", pa.string(), False),
    ("kernel", pa.string(), False),
    ("dtype", pa.string(), False),
    ("variant", pa.string(), False),
    ("height", pa.int64(), False),
    ("width", pa.int64(), False),
    ("status", pa.string(), False),
    ("message", pa.string(), True),
    ("bandwidth_gbs", pa.float64(), True),
    ("bandwidth_low_gbs", pa.float64(), True),
    ("bandwidth_high_gbs", pa.float64(), True),
    ("median_s", pa.float64(), True),
    ("median_low_s", pa.float64(), True),
    ("median_high_s", pa.float64(), True),
    ("coverage", pa.float64(), True),
    ("own_low_s", pa.float64(), True),
    ("own_high_s", pa.float64(), True),
    ("within_half_width", pa.float64(), True),
    ("between_spread", pa.float64(), True),
    ("repeat_medians_s", pa.list_(pa.float64()), False),
    ("repeat_samples", pa.list_(pa.int32()), False),
    ("repeat_copy_gbs", pa.list_(pa.float64()), False),
    ("samples_s", pa.list_(pa.float64()), False),
    ("sampled_at_s", pa.list_(pa.float64()), False),
    ("launches_per_sample", pa.int32(), True),
    ("bytes_read", pa.int64(), False),
    ("bytes_written", pa.int64(), False),
    ("working_set_over_cache", pa.float64(), True),
    ("cache_state", pa.string(), False),
    ("copy_gbs", pa.float64(), True),
    ("over_copy", pa.float64(), True),
    ("threads_per_block", pa.int32(), False),
    ("blocks", pa.int64(), False),
    ("tiles", pa.int64(), False),
    ("units", pa.int32(), False),
    ("resident_per_unit", pa.int32(), True),
    ("registers", pa.int32(), True),
    ("verified_words", pa.int64(), True),
    ("wrong_words", pa.int64(), True),
    ("device_uuid", pa.string(), False),
    ("device_name", pa.string(), False),
    ("backend", pa.string(), False),
    ("measured_at", pa.timestamp("ms", tz="UTC"), False),
)

# What `threads_per_block` holds at most. No device is near it, but a configuration may ask for
# more, and the shard's other cells shall not be lost for that.
MOST_THREADS = 2**31 - 1
# Lists with an entry for each repeat.
REPEAT_COLUMNS = ("repeat_medians_s", "repeat_samples", "repeat_copy_gbs")

CORE_COLUMNS = frozenset(name for name, _, _ in _CELL_FIELDS)
# Of columns that stages put beside those of a data set; no axis can begin with it.
DERIVED = "#"
# What stands in the place of the samples where a stage asks only how many there are.
SAMPLE_COUNT = f"{DERIVED}samples"
# Neither what stages derive, nor what readers of Parquet and frames add (``__filename``,
# ``_1``), looks so; names of figures' files have room for two.
_AXIS = re.compile("[A-Za-z][A-Za-z0-9_]{0,63}")


def is_axis(column: str) -> bool:
    """Whether a column of cells holds a launch parameter."""
    return column not in CORE_COLUMNS and not column.startswith(DERIVED)


def axis_fault(axes: Iterable[object]) -> str | None:
    """Why the columns of a data set cannot be called so, as a clause; None when they can.

    Case does not tell them apart: SQL and some file systems do not look at it.
    """
    columns = {name.lower(): name for name in CORE_COLUMNS}
    for axis in axes:
        if not isinstance(axis, str) or not _AXIS.fullmatch(axis):
            return (
                f"axis {axis!r} must be called by a letter and then letters, digits and '_', 64 "
                "at most"
            )
        other = columns.setdefault(axis.lower(), axis)
        if other in CORE_COLUMNS:
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
    what all cells of the same rounds share, by which cells are compared (see `analysis.spread`);
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
    fields = [pa.field(n, t, nullable=null) for n, t, null in _CELL_FIELDS]
    return pa.schema(fields + [pa.field(n, pa.int64(), nullable=True) for n in names])


# Shares are 0 to 1; what a level of detail does not know is null.
SIMULATION_SCHEMA = pa.schema(
    [
        pa.field("device", pa.string(), nullable=False),
        pa.field("variant", pa.string(), nullable=False),
        pa.field("level", pa.string(), nullable=False),
        pa.field("kernel", pa.string(), nullable=False),
        pa.field("dtype", pa.string(), nullable=False),
        pa.field("commands", pa.int64(), nullable=False),
        pa.field("height", pa.int64(), nullable=False),
        pa.field("width", pa.int64(), nullable=False),
        pa.field("num_partition", pa.int64(), nullable=False),
        pa.field("tiles", pa.int64(), nullable=False),
        pa.field("critical_path_tiles", pa.int64(), nullable=False),
        pa.field("makespan_cycles", pa.float64(), nullable=False),
        pa.field("bus_busy_share", pa.float64(), nullable=False),
        pa.field("lonely_share", pa.float64(), nullable=False),
        pa.field("row_hit_share", pa.float64(), nullable=True),
        pa.field("mean_wait_cycles", pa.float64(), nullable=True),
        pa.field("longest_queue", pa.int64(), nullable=True),
        pa.field("busiest_partition", pa.float64(), nullable=True),
        pa.field("bandwidth_gbs", pa.float64(), nullable=False),
    ]
)

# What a partition did in a stretch of time; `waiting` requests in the mean.
PROFILE_SCHEMA = pa.schema(
    [
        pa.field("dtype", pa.string(), nullable=False),
        pa.field("commands", pa.int64(), nullable=False),
        pa.field("partition", pa.int64(), nullable=False),
        pa.field("from_cycle", pa.float64(), nullable=False),
        pa.field("to_cycle", pa.float64(), nullable=False),
        pa.field("bursts", pa.int64(), nullable=False),
        pa.field("requests", pa.int64(), nullable=False),
        pa.field("row_openings", pa.int64(), nullable=False),
        pa.field("waiting", pa.float64(), nullable=False),
    ]
)

# Measured and simulated bandwidth of one point, in GB/s; `error` is simulated / measured - 1.
SAME_MACHINE_SCHEMA = pa.schema(
    [
        pa.field("device", pa.string(), nullable=False),
        pa.field("level", pa.string(), nullable=False),
        pa.field("dtype", pa.string(), nullable=False),
        pa.field("num_partition", pa.int64(), nullable=False),
        pa.field("measured_gbs", pa.float64(), nullable=False),
        pa.field("simulated_gbs", pa.float64(), nullable=False),
        pa.field("error", pa.float64(), nullable=False),
    ]
)

# What cells compete in and what one series of the model is.
_GROUP_FIELDS = (
    pa.field("kernel", pa.string(), nullable=False),
    pa.field("dtype", pa.string(), nullable=False),
    pa.field("variant", pa.string(), nullable=False),
    pa.field("height", pa.int64(), nullable=False),
    pa.field("width", pa.int64(), nullable=False),
    pa.field("cache_state", pa.string(), nullable=False),
    # Devices of one name share a sweep; each row says which of them measured it.
    pa.field("device_name", pa.string(), nullable=False),
)
GROUP = tuple(f.name for f in _GROUP_FIELDS)

BEST_SCHEMA = pa.schema(
    [
        *_GROUP_FIELDS,
        pa.field("cell_key", pa.string(), nullable=False),
        pa.field("params", pa.string(), nullable=False),
        pa.field("threads_per_block", pa.int32(), nullable=False),
        pa.field("bandwidth_gbs", pa.float64(), nullable=False),
        pa.field("bandwidth_low_gbs", pa.float64(), nullable=False),
        pa.field("bandwidth_high_gbs", pa.float64(), nullable=False),
        # Of what loading and storing as many bytes takes at least (see analysis.ceiling).
        pa.field("share_of_ceiling", pa.float64(), nullable=True),
        # In multiples of the runtime's own copy, timed in the same rounds.
        pa.field("over_copy", pa.float64(), nullable=True),
        pa.field("slower_than_best", pa.float64(), nullable=False),
        pa.field("is_fastest", pa.bool_(), nullable=False),
        pa.field("tied", pa.int32(), nullable=False),
        pa.field("candidates", pa.int32(), nullable=False),
        # Axes on whose first or last swept value the whole tied set lies: "block_x up, ...".
        pa.field("edge", pa.string(), nullable=False),
    ]
)

PREDICTION_SCHEMA = pa.schema(
    [
        *_GROUP_FIELDS,
        pa.field("blocks", pa.int64(), nullable=False),
        pa.field("held_out", pa.bool_(), nullable=False),
        pa.field("measured_s", pa.float64(), nullable=False),
        pa.field("predicted_s", pa.float64(), nullable=True),
        pa.field("measured_gbs", pa.float64(), nullable=False),
        pa.field("predicted_gbs", pa.float64(), nullable=True),
        pa.field("relative_error", pa.float64(), nullable=True),
    ]
)
