"""The columns of every Parquet file that a run writes, from the schemas themselves."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import pyarrow as pa
from gpushmoo.comparing.compare import ChangedCell, ChangedGroup, Drift
from gpushmoo.comparing.history import ChangePoint, HistoryRow
from gpushmoo.core.schema import (
    BestCell,
    Cells,
    Energy,
    Group,
    Meaning,
    Table,
)
from gpushmoo.model.stage import ModelledCell
from streamed_dot.numerics import Errors
from streamed_dot.rivals import TimedWay
from streamed_dot.timeline import TracedSpan
from tesla_c1060.search import SearchedMachine
from tesla_c1060.simulation.run import Profile, SameMachine, Simulated


class Best(BestCell, Group):
    """All that is said of a best cell, but for its launch parameters."""


# Kinds of files by their path below `results/<run>/`.
FILES: Mapping[str, type[Table]] = {
    "dataset/kernel=*/dtype=*/*.parquet, cells/*/*/*.parquet": Cells,
    "summary/best.parquet": Best,
    "model/device.parquet": ModelledCell,
    "simulated/*.parquet, but for the three below": Simulated,
    "simulated/*-search.parquet": SearchedMachine,
    "simulated/*-profile.parquet": Profile,
    "simulated/*-measured.parquet": SameMachine,
    "studies/energy.parquet": Energy,
    "compare/cells.parquet": ChangedCell,
    "compare/groups.parquet": ChangedGroup,
    "compare/drift.parquet: of the memcpy baseline": Drift,
    "history/history.parquet": HistoryRow,
    "history/change_points.parquet": ChangePoint,
    "studies/rivals.parquet": TimedWay,
    "studies/errors.parquet": Errors,
    "studies/timeline.parquet": TracedSpan,
}


@cache
def _anywhere() -> dict[str, Meaning]:
    """The meanings of columns in the first table that has them."""
    tables = list(FILES.values())[::-1]
    return {name: meaning for table in tables for name, meaning in table.meanings().items()}


def values() -> dict[str, Any]:
    """For each kind of file its path and a line for each column."""
    return {"tables": [{"path": path, "rows": rows(table)} for path, table in FILES.items()]}


def rows(table: type[Table]) -> list[list[str]]:
    """Name, type, whether it may be null, unit and meaning; KeyError where nobody says it."""
    meanings = {**_anywhere(), **table.meanings()}
    found = []
    for field in table.fields():
        meaning, null = meanings[field.name], "yes" if field.nullable else ""
        found.append([f"`{field.name}`", _type(field.type), null, meaning.unit, meaning.text])
    return found


def _type(kind: pa.DataType) -> str:
    return f"list of {kind.value_type}" if pa.types.is_list(kind) else str(kind)
