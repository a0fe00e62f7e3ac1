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
        *columns(NUMBER, "whole whole_low whole_high", nullable=True),
        *columns(TEXT, "whole_verdict"),
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
