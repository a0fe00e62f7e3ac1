"""Picks among cells: the fastest of each group, how its launch reads, what it touches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from ..core.schema import DERIVED, Status, is_axis

# In units of the last cache level: up to the first a working set counts as inside, from the second
# as far outside. Between them a cache may hold a part of it.
INSIDE, OUTSIDE = 1.0, 4.0
# The column of what `bytes_touched` gives.
BYTES_TOUCHED = f"{DERIVED}bytes_touched"


def axes_of(cells: pd.DataFrame) -> list[str]:
    """Names of the launch-parameter columns that hold a value for these cells."""
    return [c for c in cells.columns if is_axis(c) and cells[c].notna().any()]


def params_text(cell: Mapping[str, Any], axes: Sequence[str]) -> str:
    """The launch parameters of `cell` named by `axes`, as in ``block_x=64, block_y=4``."""
    return ", ".join(f"{a}={int(cell[a])}" for a in axes)


def bytes_touched(cells: pd.DataFrame) -> pd.Series:
    """Bytes that a launch reads and writes, each once."""
    return cells["bytes_read"] + cells["bytes_written"]


def fastest(cells: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """The ``ok`` cell of the highest bandwidth in each group of equal `names`, sorted by them.

    The frame has the column BYTES_TOUCHED besides those of `cells`; `names` may hold it.
    """
    ok = cells[cells["status"] == Status.OK]
    ok = ok.assign(**{BYTES_TOUCHED: bytes_touched(ok)})
    ranked = ok.sort_values(["bandwidth_gbs", "cell_key"], ascending=[False, True])
    return ranked.drop_duplicates(list(names)).sort_values(list(names), ignore_index=True)


def cache_bytes(cells: pd.DataFrame) -> int | None:
    """Size of the device's last cache level in bytes; None where the device does not tell it."""
    known = cells[cells["working_set_over_cache"].fillna(0.0) > 0]
    if known.empty:
        return None
    sizes = bytes_touched(known) / known["working_set_over_cache"]
    return round(float(sizes.median()))
