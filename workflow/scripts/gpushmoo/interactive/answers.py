"""Print the results of commands as text, JSON or CSV, and define the JSON Schema of each."""

from __future__ import annotations

import json
import math
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import __name__ as library
from .. import __version__

if TYPE_CHECKING:
    import pyarrow as pa

    from ..core.schema import Table

JSON, CSV = "json", "csv"
# Exit statuses besides 0.
VERDICT, REFUSED, NOT_MEASURED = 1, 2, 3
# Of all objects that are printed as JSON. A greater one has lost a key or changed what one means.
SCHEMA_VERSION = 2
# A time is a text in JSON.
_TYPES = {"int64": "integer", "int32": "integer", "double": "number", "bool": "boolean"}


@dataclass(frozen=True)
class Key:
    """A key of the JSON object that a command prints with ``--json``.

    Attributes
    ----------
    name
        Name of the key.
    schema
        JSON Schema of its value.
    tables
        Classes of the rows if the value is a list of rows, each as ``module.Class`` of the library.
        Only the schema imports these modules.
    """

    name: str
    schema: Mapping[str, Any] = field(default_factory=dict)
    tables: tuple[str, ...] = ()

    def of(self, *tables: str) -> Key:
        """Return a copy of this key whose value is a list of rows of the classes `tables`."""
        return replace(self, tables=tables)


def answer_key(name: str, meaning: str, kind: Any = None, **more: Any) -> Key:
    """Return a key of a command's JSON object.

    Parameters
    ----------
    name
        Name of the key.
    meaning
        Description of its value.
    kind
        Type of its value in JSON Schema, or a list of types. Without it, any type is valid.
    **more
        Other keywords of JSON Schema.
    """
    return Key(name, {**({"type": kind} if kind else {}), **more, "description": meaning})


TEXT = {"type": "string"}

ALONE = answer_key("alone", "kernels that only A has, and those that only B has", "array")
ERROR = answer_key("error", "the problem, in one sentence", "string")
FAILED = answer_key(
    "failed", "why a kernel has no measured launch", "object", additionalProperties=TEXT
)
FILES = answer_key(
    "files", "files that were written; of a run those in its folder itself", "array", items=TEXT
)
FOLDER = answer_key(
    "folder",
    "the folder that was written, or of the run; null without one",
    ["string", "null"],
)
GROUPS = answer_key("groups", "launches that differ in their parameters alone")
NOTES = answer_key("notes", "what was left out, and the reasons", "array", items=TEXT)
ROWS = answer_key("rows", "the table that is printed without --json")
SLOWER = answer_key(
    "slower",
    "kernels that are significantly slower by more than the threshold",
    "array",
    items=TEXT,
)
STATUS = answer_key("status", "exit status", "integer")
STATUSES = answer_key(
    "statuses", "cells by how they ended", "object", additionalProperties={"type": "integer"}
)
TOOK_S = answer_key("took_s", "time that the command took", "number", unit="s")
UNCHANGED = answer_key(
    "unchanged", "kernels that were not measured, since no file differs", "array", items=TEXT
)


@dataclass(frozen=True)
class Answer:
    """The result of a command.

    Attributes
    ----------
    told
        Values by key of the JSON object, see `Key`. ``--csv`` prints its ``rows``. Its ``notes``
        are always printed to stderr.
    text
        Returns the text for a person.
    status
        Exit status.
    page
        Returns Markdown that follows the text. A terminal shows it with tables. If both functions
        are missing, the command has already printed its result.
    """

    told: Mapping[str, Any]
    text: Callable[[], str] | None = None
    status: int = 0
    page: Callable[[], str] | None = None


def print_answer(command: str, form: str | None, answer: Answer, took_s: float) -> None:
    """Print the result of a command.

    Parameters
    ----------
    command
        Name of the command.
    form
        ``json``, ``csv``, or None for text.
    answer
        The result.
    took_s
        Time that the command took, in seconds.
    """
    for sentence in answer.told.get("notes", ()):
        print(f"{library}: {sentence}", file=sys.stderr)
    if form == JSON:
        print_json(command, {"status": answer.status, "took_s": took_s, **answer.told})
    elif form == CSV:
        from .text_tables import joined

        answer.told["rows"].map(joined).to_csv(sys.stdout, index=False)
    else:
        if answer.text is not None:
            print(answer.text())
        if answer.text is not None and answer.page is not None:
            print()
        if answer.page is not None:
            _print_page(answer.page())


def _print_page(markdown: str) -> None:
    """Print Markdown: rendered in a terminal, otherwise unchanged."""
    if not sys.stdout.isatty():
        print(markdown.rstrip())
        return
    # Slow to import.
    from rich.console import Console
    from rich.markdown import Markdown

    Console(file=sys.stdout, highlight=False).print(Markdown(markdown))


def print_error(status: int, sentence: str, took_s: float) -> None:
    """Print the JSON object of a command that failed.

    Parameters
    ----------
    status
        Exit status.
    sentence
        The error message.
    took_s
        Time until the error, in seconds.
    """
    print_json(ERROR.name, {STATUS.name: status, TOOK_S.name: took_s, ERROR.name: sentence})


def print_json(name: str, told: Mapping[str, Any]) -> None:
    """Print a JSON object that starts with the name of its schema and the library's version.

    Parameters
    ----------
    name
        Name of the command.
    told
        Values by key. Data frames become lists of rows.
    """
    whole = _plain({"schema": _schema_name(name), library: __version__, **told})
    print(json.dumps(whole, allow_nan=False, indent=1, ensure_ascii=False))


def _schema_name(name: str) -> str:
    """Return the value of the key ``schema`` of a command's JSON object."""
    return f"{library}/{name}/{SCHEMA_VERSION}"


def _plain(value: Any) -> Any:
    """Convert a value to JSON types: data frames to rows, missing and infinite numbers to null."""
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if hasattr(value, "to_dict"):
        return _plain(value.astype(object).where(value.notna(), None).to_dict("records"))
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    return str(value) if isinstance(value, Path) else value


def as_typed() -> str:
    """Return this program's command as the user typed it, for commands that a message suggests."""
    if Path(sys.argv[0]).name == library:
        return shlex.quote(sys.argv[0])
    return f"{shlex.quote(sys.executable)} -m {library}"


def answer_schema(command: str, meaning: str, keys: Sequence[Key]) -> dict[str, Any]:
    """Return the JSON Schema of a command's output: an object with `keys`, or an error.

    Parameters
    ----------
    command
        Name of the command.
    meaning
        Description of the command.
    keys
        Keys of the object, besides those of every command.
    """
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"{library} {command} --json",
        "description": meaning,
        "anyOf": [_object_schema(command, keys), _object_schema(ERROR.name, [ERROR])],
    }


def _object_schema(name: str, own: Sequence[Key]) -> dict[str, Any]:
    """Return the schema of the object `name`, which has its `own` keys and those of all objects."""
    keys: dict[str, Any] = {"schema": {"const": _schema_name(name)}, library: {"type": "string"}}
    for key in (STATUS, TOOK_S, *own):
        rows = [_row_schema(table) for table in key.tables]
        of_rows = {"type": "array", "items": {"anyOf": rows}} if rows else {}
        keys[key.name] = {**key.schema, **of_rows}
    return {"type": "object", "required": [*keys], "properties": keys}


def _row_schema(name: str) -> dict[str, Any]:
    """Return the schema of a row of the table ``module.Class``, with units and descriptions."""
    from ..comparing.compare import ChangedCell
    from ..comparing.run_history import HistoryRow
    from ..core.schema import Cells
    from ..model.fit_stage import ModelledCell
    from .text_tables import Best

    module, _, table = name.rpartition(".")
    columns: type[Table] = getattr(import_module(f"{library}.{module}"), table)
    # A column without a meaning has that of another table.
    meant = [t.meanings() for t in (ModelledCell, HistoryRow, ChangedCell, Best, Cells, columns)]
    meanings = {key: meaning for of_table in meant for key, meaning in of_table.items()}
    found = {}
    for column in columns.fields():
        meaning = meanings[column.name]
        unit = {"unit": meaning.unit} if meaning.unit else {}
        found[column.name] = _column_schema(column) | unit | {"description": meaning.text}
    text = str(columns.__doc__).splitlines()[0]
    return {"type": "object", "description": text, "required": [*found], "properties": found}


def _column_schema(column: pa.Field) -> dict[str, Any]:
    """Return the schema of a column without its description."""
    import pyarrow as pa

    if pa.types.is_list(column.type):
        return {"type": "array", "items": _column_schema(column.type.value_field)}
    name = _TYPES.get(str(column.type), "string")
    return {"type": [name, "null"] if column.nullable else name}
