"""Groups of made-up cells for the tests of what is exported."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd
from gpushmoo.core.schema import CORE_COLUMNS, GROUP, Status
from gpushmoo.exporting.choices import ExportGroup, groups_of

# Seconds: the median, and the ends of its interval.
Times = tuple[float, float, float]


def cells(
    times: Mapping[int, Times | Status],
    *,
    size: int = 1024,
    over_cache: float = 0.5,
    **columns: Any,
) -> pd.DataFrame:
    """The rows of a group with the axis ``block_x``, by its value: times, or how a cell ended.

    The times are what tells competing cells apart; every other number is one of its own, so that
    a test sees whose column was taken.
    """
    rows = []
    for value, told in times.items():
        is_ok = not isinstance(told, Status)
        median, low, high = told if is_ok else (math.nan,) * 3
        row = dict.fromkeys(CORE_COLUMNS) | {
            "kernel": "copy",
            "dtype": "float",
            "variant": "plain",
            "backend": "cuda",
            "height": size,
            "width": size,
            "cache_state": "warm",
            "launch_kind": "back_to_back",
            "device_name": "GPU 1",
            "status": Status.OK if is_ok else told,
            "cell_key": f"{size:08}{value:08}",
            "median_s": median,
            "own_low_s": low,
            "own_high_s": high,
            "coverage": 0.95,
            "median_low_s": 0.9 * low,
            "median_high_s": 1.2 * high,
            "within_half_width": 0.013,
            "between_spread": 0.017,
            "bytes_read": 3_000_000_000,
            "bytes_written": 2_000_000_000,
            "bandwidth_gbs": 5 / median,
            "bandwidth_low_gbs": 5 / (1.2 * high),
            "bandwidth_high_gbs": 5 / (0.9 * low),
            "copy_gbs": 7.0,
            "over_copy": 5 / median / 7.0,
            "samples_s": [low, median, high] if is_ok else [],
            "sampled_at_s": [],
            "launches_per_sample": 2 if is_ok else math.nan,
            "working_set_over_cache": over_cache,
            "block_x": value,
            "measured_at": pd.Timestamp("2026-11-22T10:00:00", tz="UTC"),
        }
        rows.append(row | columns)
    return pd.DataFrame(rows).astype({"block_x": "Int64"})


def group(times: Mapping[int, Times | Status], **columns: Any) -> ExportGroup:
    """The same as a group."""
    [made] = groups_of(cells(times, **columns))
    assert set(made.key) == set(GROUP)
    return made


def close(median: float) -> Times:
    """A median with an interval of a hundredth on both sides."""
    return median, 0.99 * median, 1.01 * median
