"""Reads a run's dataset for the analysing stages."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd


def read_cells(dataset: Path) -> pd.DataFrame:
    """All cells, one row each; kernel and dtype (from the path) as plain strings."""
    cells = pd.read_parquet(dataset)
    for name in ("kernel", "dtype"):
        cells[name] = cells[name].astype(str)
    return cells


def matching(rows: pd.DataFrame, where: Mapping[str, Any]) -> pd.DataFrame:
    """The rows that have these values in these columns."""
    return rows[(rows[list(where)] == list(where.values())).all(axis=1)]
