"""The columns of the table of energy, which `studies.energy` writes and the report reads."""

from __future__ import annotations

import pyarrow as pa

from .schema import NUMBER, SMALL, TEXT, WHOLE, columns

# A row is a cell. `role` says why it was chosen, `message` why it has no figures. `power_w` is the
# mean power while it ran, `gbs` its bandwidth in the same windows, and `joules_per_gb` the one over
# the other, with its 95 % interval over the rounds; `net_joules_per_gb` the same less `idle_w`.
# The lists have an entry for each round. `busy_share` of the time is known to be spent in launches.
ENERGY_SCHEMA = pa.schema(
    [
        *columns(TEXT, "cell_key kernel dtype variant"),
        *columns(WHOLE, "height width"),
        *columns(TEXT, "cache_state params role"),
        *columns(TEXT, "message", nullable=True),
        *columns(WHOLE, "bytes_read bytes_written"),
        *columns(SMALL, "rounds"),
        *columns(SMALL, "launches_per_sample", nullable=True),
        *columns(NUMBER, "power_w idle_w gbs busy_share", nullable=True),
        *columns(NUMBER, "joules_per_gb joules_per_gb_low joules_per_gb_high", nullable=True),
        *columns(NUMBER, "net_joules_per_gb", nullable=True),
        *columns(NUMBER, "net_joules_per_gb_low net_joules_per_gb_high", nullable=True),
        *columns(pa.list_(NUMBER), "window_s window_j window_gbs"),
        *columns(SMALL, "sm_clock_mhz_low sm_clock_mhz_high temperature_c", nullable=True),
        *columns(pa.bool_(), "throttled"),
        *columns(TEXT, "device_uuid device_name"),
    ]
)
