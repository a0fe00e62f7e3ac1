"""The columns of what a comparison writes. Changes are of times: 0.02 is two percent slower."""

from __future__ import annotations

import pyarrow as pa

from ..core.schema import GROUP, NUMBER, SMALL, TEXT, best_schema, columns

_GROUP_FIELDS = [best_schema([]).field(name) for name in GROUP]
_CHANGE_FIELDS = [
    *columns(NUMBER, "change change_low change_high", nullable=True),
    *columns(NUMBER, "beside_copy beside_copy_low beside_copy_high", nullable=True),
]

CHANGED_CELLS_SCHEMA = pa.schema(
    [
        *_GROUP_FIELDS,
        *columns(TEXT, "cell_key params"),
        *columns(NUMBER, "a_s b_s"),
        *_CHANGE_FIELDS,
        *columns(NUMBER, "p_value"),
        *columns(TEXT, "verdict"),
    ]
)

CHANGED_GROUPS_SCHEMA = pa.schema(
    [
        *_GROUP_FIELDS,
        *columns(TEXT, "best_a best_b"),
        *columns(NUMBER, "a_gbs b_gbs"),
        *_CHANGE_FIELDS,
        *columns(NUMBER, "p_value"),
        *columns(TEXT, "verdict"),
        *columns(pa.bool_(), "alarm winner_held"),
        *columns(SMALL, "tied_a tied_b tied_both"),
        *columns(SMALL, "only_a only_b slower faster same undecided"),
    ]
)

DRIFT_SCHEMA = pa.schema(
    [
        *columns(TEXT, "kernel dtype"),
        *columns(pa.int64(), "height width"),
        *columns(TEXT, "cache_state device_name"),
        *columns(NUMBER, "change change_low change_high", nullable=True),
    ]
)

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
