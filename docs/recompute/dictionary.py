"""The columns of every Parquet file that a run writes, from the schemas themselves."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import pyarrow as pa
from gpushmoo.comparing.compare import ChangedCell, ChangedGroup, Drift
from gpushmoo.comparing.history import ChangePoint, HistoryRow
from gpushmoo.core.dictionary import Meaning, Table
from gpushmoo.core.schema import (
    BestCell,
    Cells,
    Energy,
    Group,
)
from gpushmoo.model.stage import ModelledCell
from streamed_dot.numerics import Errors
from streamed_dot.rivals import TimedWay
from streamed_dot.timeline import TracedSpan
from tesla_c1060.simulation.run import Profile, SameMachine, Simulated


class Best(BestCell, Group):
    """All that is said of a best cell, but for its launch parameters."""


@dataclass(frozen=True)
class Files:
    """A kind of file: its path below `results/<run>/`, its columns and what is said of them."""

    path: str
    schema: pa.Schema
    own: dict[str, Meaning]


def _files(path: str, table: type[Table]) -> Files:
    return Files(path, table.schema(), table.meanings())


FILES = (
    _files("dataset/kernel=*/dtype=*/*.parquet, cells/*/*/*.parquet", Cells),
    _files("summary/best.parquet", Best),
    _files("model/device.parquet", ModelledCell),
    _files("simulated/*.parquet, but for the two below", Simulated),
    _files("simulated/*-profile.parquet", Profile),
    _files("simulated/*-measured.parquet", SameMachine),
    _files("studies/energy.parquet", Energy),
    _files("compare/cells.parquet", ChangedCell),
    _files("compare/groups.parquet", ChangedGroup),
    _files("compare/drift.parquet: of the runtime's own copy", Drift),
    _files("history/history.parquet", HistoryRow),
    _files("history/change_points.parquet", ChangePoint),
    _files("studies/rivals.parquet", TimedWay),
    _files("studies/errors.parquet", Errors),
    _files("studies/timeline.parquet", TracedSpan),
)


@cache
def _anywhere() -> dict[str, Meaning]:
    """What columns mean in the first table that says it."""
    return {name: told for files in FILES[::-1] for name, told in files.own.items()}


def values() -> dict[str, Any]:
    """For each kind of file its path and a line for each column."""
    return {"tables": [{"path": files.path, "rows": rows(files)} for files in FILES]}


def rows(files: Files) -> list[list[str]]:
    """Name, type, whether it may be null, unit and meaning; KeyError where nobody says it."""
    meanings = {**_anywhere(), **files.own}
    return [
        [
            f"`{field.name}`",
            _type(field.type),
            "yes" if field.nullable else "",
            meanings[field.name].unit,
            meanings[field.name].text,
        ]
        for field in files.schema
    ]


def _type(kind: pa.DataType) -> str:
    return f"list of {kind.value_type}" if pa.types.is_list(kind) else str(kind)
