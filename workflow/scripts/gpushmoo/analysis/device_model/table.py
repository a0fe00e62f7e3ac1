"""The table that the model of a device is written to; who reads it needs nothing of the fit."""

from __future__ import annotations

import pyarrow as pa

from ...core.schema import GROUP_FIELDS
from .form import LIMITS

# Of each cell the prediction in seconds and GB/s with the band's ends, whether it was fitted to,
# which limit is the largest, and what share of the largest each has; times are null without a band.
DEVICE_MODEL_SCHEMA = pa.schema(
    [
        *GROUP_FIELDS,
        pa.field("cell_key", pa.string(), nullable=False),
        pa.field("trained", pa.bool_(), nullable=False),
        *(pa.field(n, pa.float64(), nullable=False) for n in ("measured_s", "predicted_s")),
        *(pa.field(n, pa.float64(), nullable=True) for n in ("low_s", "high_s")),
        *(pa.field(n, pa.float64(), nullable=False) for n in ("measured_gbs", "predicted_gbs")),
        pa.field("limit", pa.string(), nullable=False),
        *(pa.field(f"{n.lower()}_share", pa.float64(), nullable=False) for n in LIMITS),
    ]
)
