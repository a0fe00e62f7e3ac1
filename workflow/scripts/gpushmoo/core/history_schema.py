"""The columns of a history: each group's best in each run, and where its mean changed."""

from __future__ import annotations

import pyarrow as pa

from .schema import GROUP, NUMBER, SMALL, TEXT, best_schema, columns

_GROUP_FIELDS = [best_schema([]).field(name) for name in GROUP]

# Below ``results/<run>/history/``.
HISTORY_FILE, CHANGE_POINTS_FILE = "history.parquet", "change_points.parquet"
# What is looked at: columns of HISTORY_SCHEMA.
BEST, COPY, BESIDE = "bandwidth_gbs", "copy_gbs", "over_copy"

# Of a group's best in each run that has it; `number` counts all runs in time from 1, `candidates`
# the group's verified cells.
HISTORY_SCHEMA = pa.schema(
    [
        *_GROUP_FIELDS,
        *columns(SMALL, "number"),
        *columns(TEXT, "run"),
        *columns(pa.timestamp("ms", tz="UTC"), "measured_at"),
        *columns(TEXT, "device_uuid params"),
        *columns(NUMBER, "bandwidth_gbs bandwidth_low_gbs bandwidth_high_gbs"),
        *columns(NUMBER, "copy_gbs over_copy", nullable=True),
        *columns(SMALL, "candidates"),
    ]
)

# `quantity` is a column of HISTORY_SCHEMA, which from `run` on has another mean; `change` is a
# share of that before. `cause` is told of a bandwidth, `differences` are between that run and the
# one before it.
CHANGE_POINTS_SCHEMA = pa.schema(
    [
        *_GROUP_FIELDS,
        *columns(TEXT, "quantity"),
        *columns(SMALL, "number"),
        *columns(TEXT, "run"),
        *columns(NUMBER, "before after change"),
        *columns(TEXT, "cause", nullable=True),
        *columns(pa.list_(TEXT), "differences"),
    ]
)
