"""The page of simulated devices that were compared with the measured ones of their names."""

from __future__ import annotations

from typing import Any

import pandas as pd

Json = dict[str, Any]

# Levels of detail, in words.
LEVELS = {"bus": "one bus", "partitions": "partitions", "banks": "banks"}


def same_machine_page(points: pd.DataFrame) -> Json:
    """Rows of strings for the template; `points` have the columns of SAME_MACHINE_SCHEMA."""
    levels = list(dict.fromkeys(points["level"]))
    dtypes = list(dict.fromkeys(points["dtype"]))
    by = points.set_index(["dtype", "num_partition", "level"])
    blocks = list(dict.fromkeys(points["num_partition"]))
    return {
        "device": str(points["device"].iloc[0]),
        "levels": [LEVELS[level] for level in levels],
        "dtypes": dtypes,
        "rows": [
            {
                "blocks": str(n),
                "cells": [
                    value
                    for dtype in dtypes
                    for value in (
                        _gbs(by.loc[(dtype, n, levels[0]), "measured_gbs"]),
                        _gbs(by.loc[(dtype, n, levels[-1]), "simulated_gbs"]),
                        *(signed(by.loc[(dtype, n, level), "error"]) for level in levels),
                    )
                ],
            }
            for n in blocks
            if all((dtype, n, levels[0]) in by.index for dtype in dtypes)
        ],
    }


def signed(change: float) -> str:
    """``+1.2 %``, or ``−1.2 %``; `change` is a share."""
    sign = "+" if change >= 0 else "−"
    return f"{sign}{abs(100 * change):.1f} %"


def _gbs(value: float) -> str:
    return f"{value:.1f}" if value < 100 else f"{value:.0f}"
