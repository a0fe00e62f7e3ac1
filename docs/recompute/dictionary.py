"""The columns of every Parquet file that a run writes, from the schemas themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from gpushmoo.comparing.comparison import (
    CHANGED_CELLS_SCHEMA,
    CHANGED_GROUPS_SCHEMA,
    DRIFT_SCHEMA,
)
from gpushmoo.core.dictionary import Meaning, meaning
from gpushmoo.core.energy_schema import ENERGY_SCHEMA
from gpushmoo.core.history_schema import CHANGE_POINTS_SCHEMA, HISTORY_SCHEMA
from gpushmoo.core.schema import (
    PROFILE_SCHEMA,
    SAME_MACHINE_SCHEMA,
    SIMULATION_SCHEMA,
    best_schema,
    cell_schema,
)
from gpushmoo.model.stage import DEVICE_MODEL_SCHEMA
from streamed_dot import dictionary as dots
from streamed_dot.numerics import ERRORS_SCHEMA
from streamed_dot.rivals import RIVALS_SCHEMA
from streamed_dot.timeline import TIMELINE_SCHEMA


@dataclass(frozen=True)
class Table:
    """A kind of file: its name in the page, its path below `results/<run>/`, its columns.

    `own` are meanings that a chapter gives to its columns.
    """

    name: str
    path: str
    schema: pa.Schema
    own: dict[str, Meaning]

    def meaning(self, column: str) -> Meaning:
        """What a column says. Raises KeyError where nobody has written it down."""
        return self.own.get(column) or meaning(self.name, column)


TABLES = (
    Table("cells", "dataset/kernel=*/dtype=*/*.parquet, cells/*/*/*.parquet", cell_schema([]), {}),
    Table("best", "summary/best.parquet", best_schema([]), {}),
    Table("device_model", "model/device.parquet", DEVICE_MODEL_SCHEMA, {}),
    Table("simulated", "simulated/*.parquet, but for the two below", SIMULATION_SCHEMA, {}),
    Table("profile", "simulated/*-profile.parquet", PROFILE_SCHEMA, {}),
    Table("same_machine", "simulated/*-measured.parquet", SAME_MACHINE_SCHEMA, {}),
    Table("energy", "studies/energy.parquet", ENERGY_SCHEMA, {}),
    Table("compared_cells", "compare/cells.parquet", CHANGED_CELLS_SCHEMA, {}),
    Table("compared_groups", "compare/groups.parquet", CHANGED_GROUPS_SCHEMA, {}),
    Table("drift", "compare/drift.parquet: of the runtime's own copy", DRIFT_SCHEMA, {}),
    Table("history", "history/history.parquet", HISTORY_SCHEMA, {}),
    Table("change_points", "history/change_points.parquet", CHANGE_POINTS_SCHEMA, {}),
    Table("rivals", "studies/rivals.parquet", RIVALS_SCHEMA, dict(dots.MEANINGS)),
    Table("errors", "studies/errors.parquet", ERRORS_SCHEMA, dict(dots.MEANINGS)),
    Table("timeline", "studies/timeline.parquet", TIMELINE_SCHEMA, dict(dots.MEANINGS)),
)


def values() -> dict[str, Any]:
    """For each table its path and a line for each column."""
    return {"tables": [{"path": table.path, "rows": rows(table)} for table in TABLES]}


def rows(table: Table) -> list[list[str]]:
    """Name, type, whether it may be null, unit and meaning of each column."""
    return [
        [
            f"`{field.name}`",
            _type(field.type),
            "yes" if field.nullable else "",
            table.meaning(field.name).unit,
            table.meaning(field.name).text,
        ]
        for field in table.schema
    ]


def _type(kind: pa.DataType) -> str:
    return f"list of {kind.value_type}" if pa.types.is_list(kind) else str(kind)
