"""Reads a run's dataset for the analysing stages."""

from __future__ import annotations

from pathlib import Path

import pandas as pd


def read_cells(dataset: Path) -> pd.DataFrame:
    """All cells, one row each; kernel and dtype (from the path) as plain strings."""
    cells = pd.read_parquet(dataset)
    for name in ("kernel", "dtype"):
        cells[name] = cells[name].astype(str)
    return cells
