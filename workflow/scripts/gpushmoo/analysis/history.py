"""The tables of a history as the stage wrote them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from ..core.history_schema import (
    CHANGE_POINTS_FILE,
    CHANGE_POINTS_SCHEMA,
    HISTORY_FILE,
    HISTORY_SCHEMA,
)
from ..storage.store import read_metadata, read_table


@dataclass(frozen=True)
class HistoryTables:
    """Each group's best in each run, and where its mean changed.

    `rows` has the columns HISTORY_SCHEMA, `changes` those of CHANGE_POINTS_SCHEMA; `delta` is the
    change that is not told, a share of the bandwidth. `left_out` has a sentence for each run that
    could not be taken in; `why` says why there is no history at all, else it is None.
    """

    rows: pd.DataFrame
    changes: pd.DataFrame
    delta: float
    left_out: tuple[str, ...] = ()
    why: str | None = None


def read_history(folder: Path) -> HistoryTables:
    """The tables in `folder`, which `comparing.history` wrote. Raises BadParquetError."""
    file = folder / HISTORY_FILE
    told = read_metadata(file)
    return HistoryTables(
        read_table(file, HISTORY_SCHEMA).to_pandas(),
        read_table(folder / CHANGE_POINTS_FILE, CHANGE_POINTS_SCHEMA).to_pandas(),
        told["delta"],
        tuple(told["left_out"]),
        told["why"],
    )
