"""The columns of every Parquet file that a run writes, from the schemas themselves."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import pyarrow as pa
from gpushmoo.comparing.compare import ChangedCell, ChangedGroup, Drift
from gpushmoo.comparing.run_history import HistoryRow
from gpushmoo.core.display import joined
from gpushmoo.core.schema import GROUP, Cells, Energy, Meaning, Table
from gpushmoo.interactive.text_tables import Best
from gpushmoo.model.fit_stage import ModelledCell
from streamed_dot.numerics import Errors
from streamed_dot.rivals import TimedWay
from streamed_dot.timeline import TracedSpan
from tesla_c1060.search import SearchedMachine
from tesla_c1060.simulation.run import Profile, SameMachine, Simulated

# Kinds of files by their path below `results/<run>/`.
FILES: Mapping[str, type[Table]] = {
    "dataset/kernel=*/dtype=*/*.parquet, cells/*/*/*.parquet": Cells,
    "summary/best.parquet": Best,
    "model/device.parquet": ModelledCell,
    "studies/energy.parquet": Energy,
    "compare/cells.parquet": ChangedCell,
    "compare/groups.parquet": ChangedGroup,
    "compare/drift.parquet: of the memcpy baseline": Drift,
    "history/history.parquet": HistoryRow,
}
# Of chapters: told where they are declared.
OF_CHAPTERS: Mapping[str, type[Table]] = {
    "simulated/*.parquet, but for these three": Simulated,
    "simulated/*-search.parquet": SearchedMachine,
    "simulated/*-profile.parquet": Profile,
    "simulated/*-measured.parquet": SameMachine,
    "studies/rivals.parquet": TimedWay,
    "studies/errors.parquet": Errors,
    "studies/timeline.parquet": TracedSpan,
}


GROUPED = [f"`{name}`" for name in GROUP]


@cache
def _anywhere() -> dict[str, Meaning]:
    """The meanings of columns in the first table that has them."""
    tables = [*FILES.values(), *OF_CHAPTERS.values()][::-1]
    return {name: meaning for table in tables for name, meaning in table.meanings().items()}


def values() -> dict[str, Any]:
    """For each kind of file its path, the columns that a table before it has told, and the rest."""
    told: dict[str, tuple[str, str]] = {}
    tables = []
    for path, table in FILES.items():
        new: list[list[str]] = []
        again: list[str] = []
        for field, (name, unit, text) in zip(table.fields(), rows(table), strict=True):
            marks = ("[]" if pa.types.is_list(field.type) else "") + "?" * field.nullable
            if told.get(name) == (unit, text):
                again.append(name)
            elif new and new[-1][0] == name.replace("high", "low") + marks and "upper" in text:
                ends = new[-1][1].replace("lower", "lower and upper")
                new[-1] = [f"{new[-1][0]}, {name}{marks}", ends]
            else:
                new.append([name + marks, f"{text} [{unit}]" if unit else text])
            told[name] = (unit, text)
        if set(again) >= set(GROUPED):
            again = ["the group's columns", *(name for name in again if name not in GROUPED)]
        tables.append({"path": path, "rows": new, "again": ", ".join(again)})
    modules = dict.fromkeys(table.__module__ for table in OF_CHAPTERS.values())
    declared = joined(f"`{module.replace('.', '/')}.py`" for module in modules)
    return {"tables": tables, "group": ", ".join(GROUPED), "of_chapters": declared}


def rows(table: type[Table]) -> list[tuple[str, str, str]]:
    """Name, unit and meaning of each column; KeyError where nobody says it."""
    meanings = {**_anywhere(), **table.meanings()}
    told = ((field.name, meanings[field.name]) for field in table.fields())
    return [(f"`{name}`", meaning.unit, meaning.text) for name, meaning in told]
