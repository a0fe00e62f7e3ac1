"""The tables of a history as the stage wrote them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from ..core.dictionary import Number, Small, Text, Time
from ..core.schema import Group
from ..storage.store import read_metadata, read_table

# Below ``results/<run>/history/``.
HISTORY_FILE, CHANGE_POINTS_FILE = "history.parquet", "change_points.parquet"
# What is looked at: columns of a history.
BEST, COPY, BESIDE = "bandwidth_gbs", "copy_gbs", "over_copy"


class HistoryRow(Group):
    """A group's best in a run that has it."""

    number: Small  # place of the run among all of the history, in time, from 1
    run: Text  # name of the run, with as much of its path as tells it from others
    measured_at: Time
    device_uuid: Text
    params: Text  # launch parameters, in one text
    bandwidth_gbs: Number
    bandwidth_low_gbs: Number
    bandwidth_high_gbs: Number
    copy_gbs: Number | None
    over_copy: Number | None
    candidates: Small


class ChangePoint(Group):
    """A run from which on a column of a group's history has another mean."""

    quantity: Text  # which column of the history has another mean from this run on
    number: Small
    run: Text
    before: Number  # [of that column] mean of that column since the change point before
    after: Number  # [of that column] mean of that column from this run on
    change: Number  # after over before, minus one
    cause: Text | None  # of a best: what changed, as the runtime's own copy tells; else null
    differences: list[Text]  # what the run was measured with otherwise than the one before it


HISTORY_SCHEMA, CHANGE_POINTS_SCHEMA = HistoryRow.schema(), ChangePoint.schema()


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
