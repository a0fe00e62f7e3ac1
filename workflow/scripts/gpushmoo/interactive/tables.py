"""What commands have found as text, JSON or CSV, its schema; the kernels and devices there are."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.resources import files
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import yaml

from .. import __name__ as library
from .. import __version__
from ..core.backends import AUTO, BACKENDS
from ..core.errors import ConfigError, KernelFolderError, NoDeviceError
from ..core.paths import KERNELS
from ..core.schema import BestCell, Cells, Group, Number, Small, Table, Text
from ..devices.select import DeviceChoice, probe
from ..registry import extra_commands
from ..storage.temporary import OwnFolder
from ..workloads.loader import find_kernels, load_kernel

if TYPE_CHECKING:
    from pandas import DataFrame

JSON, CSV = "json", "csv"
# Of all objects that are printed as JSON. A greater one has lost a key or changed what one means.
SCHEMA_VERSION = 1
# What each command does, takes and gives, and what each argument and key means.
COMMANDS = yaml.CSafeLoader((files(__package__) / "commands.yaml").read_bytes()).get_single_data()
for _name, _command in extra_commands().items():
    COMMANDS["commands"][_name] = vars(_command)
    COMMANDS["arguments"] |= _command.arguments
    COMMANDS["answers"] |= _command.answers
ERROR = "error"
# The exit status of a command that found a wrong result, or a regression that was asked for.
VERDICT = 1
# A time is a text in JSON.
_TYPES = {"int64": "integer", "int32": "integer", "double": "number", "bool": "boolean"}


@dataclass(frozen=True)
class Answer:
    """What a command has found.

    `told` has the keys that commands.yaml says it gives; CSV is of its `rows`, and its `notes` are
    printed to stderr. `text` makes what a person reads, and `page` what follows it as
    Markdown, which a terminal shows as tables. Without both it was printed.
    """

    told: Mapping[str, Any]
    text: Callable[[], str] | None = None
    status: int = 0
    page: Callable[[], str] | None = None


def print_answer(command: str, form: str | None, answer: Answer, took_s: float) -> None:
    """Print what a command has found in the `form` JSON or CSV, or as text."""
    for sentence in answer.told.get("notes", ()):
        print(f"{library}: {sentence}", file=sys.stderr)
    if form == JSON:
        print_json(command, {"status": answer.status, "took_s": took_s, **answer.told})
    elif form == CSV:
        answer.told["rows"].map(_joined).to_csv(sys.stdout, index=False)
    else:
        if answer.text is not None:
            print(answer.text())
        if answer.text is not None and answer.page is not None:
            print()
        if answer.page is not None:
            _print_page(answer.page())


def _print_page(markdown: str) -> None:
    """Print Markdown as a terminal shows it; as it is elsewhere."""
    if not sys.stdout.isatty():
        print(markdown.rstrip())
        return
    # Slow to import.
    from rich.console import Console
    from rich.markdown import Markdown

    Console(file=sys.stdout, highlight=False).print(Markdown(markdown))


def print_json(name: str, told: Mapping[str, Any]) -> None:
    """Print an object that says by which schema it is made and by which version."""
    whole = _plain({"schema": _schema_name(name), library: __version__, **told})
    print(json.dumps(whole, allow_nan=False, indent=1, ensure_ascii=False))


def _schema_name(name: str) -> str:
    return f"{library}/{name}/{SCHEMA_VERSION}"


def _plain(value: Any) -> Any:
    """Convert to JSON's types: a frame to its rows, missing and infinite numbers to null."""
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


def answer_schema(command: str) -> dict[str, Any]:
    """The JSON Schema of all that the command prints with ``--json``: its object, or an error."""
    told = COMMANDS["commands"][command]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"{library} {command} --json",
        "description": told["does"],
        "anyOf": [_object_schema(command, told["gives"]), _object_schema(ERROR, [ERROR])],
    }


def _object_schema(name: str, gives: Sequence[str]) -> dict[str, Any]:
    keys: dict[str, Any] = {"schema": {"const": _schema_name(name)}, library: {"type": "string"}}
    for key, _, tables in (word.partition(":") for word in ("status", "took_s", *gives)):
        rows = [_row_schema(table) for table in tables.split("|") if table]
        of_rows = {"type": "array", "items": {"anyOf": rows}} if rows else {}
        keys[key] = COMMANDS["answers"][key] | of_rows
    return {"type": "object", "required": [*keys], "properties": keys}


def _row_schema(name: str) -> dict[str, Any]:
    """A row of the table ``module.Class`` of the library, with its units and meanings."""
    from ..comparing.compare import ChangedCell
    from ..comparing.history import HistoryRow
    from ..model.stage import ModelledCell

    module, _, table = name.rpartition(".")
    columns: type[Table] = getattr(import_module(f"{library}.{module}"), table)
    # A column without a meaning has that of another table.
    meant = [t.meanings() for t in (ModelledCell, HistoryRow, ChangedCell, Best, Cells, columns)]
    meanings = {key: meaning for of_table in meant for key, meaning in of_table.items()}
    found = {}
    for field in columns.fields():
        meaning = meanings[field.name]
        unit = {"unit": meaning.unit} if meaning.unit else {}
        found[field.name] = _column_schema(field) | unit | {"description": meaning.text}
    text = str(columns.__doc__).splitlines()[0]
    return {"type": "object", "description": text, "required": [*found], "properties": found}


def _column_schema(field: pa.Field) -> dict[str, Any]:
    if pa.types.is_list(field.type):
        return {"type": "array", "items": _column_schema(field.type.value_field)}
    name = _TYPES.get(str(field.type), "string")
    return {"type": [name, "null"] if field.nullable else name}


class Best(BestCell, Group):
    """A best cell; its launch parameters are further keys."""


class ListedKernel(Table):
    """A kernel of the clone, or of the folder kernels."""

    kernel: Text
    dtypes: list[Text]  # its element types
    variants: list[Text]  # its variants
    axes: list[Text]  # its launch parameters
    backends: list[Text]  # backends that have its source
    title: Text  # what it is called in reports


class ListedDevice(Table):
    """A device that kernels can be measured on, and how to choose it."""

    device: Small  # its place among those of the backend, from 0
    backend: Text
    opencl_runtime: Text | None  # which OpenCL runtime; null of another backend
    device_name: Text
    memory_gib: Number  # [GiB] memory of the device
    driver: Text  # version of its driver
    device_uuid: Text  # what tells it from others


def aligned(rows: DataFrame, justify: Callable[[str, int], str] = str.ljust) -> str:
    """Texts in columns, left-aligned by default."""
    words = [[*rows], *rows.map(_joined).fillna("").astype(str).to_numpy().tolist()]
    widths = [max(map(len, column)) for column in zip(*words, strict=True)]
    lines = ("  ".join(map(justify, row, widths)).rstrip() for row in words)
    return "\n".join(lines)


def _joined(value: Any) -> Any:
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else value


def found_kernels() -> tuple[DataFrame, list[str]]:
    """A row for each kernel of the clone and of the folder ``kernels``, and sentences.

    These are of each bad one, and of where kernels were looked for if there are none.

    Raises ConfigError where a kernel is there twice.
    """
    import pandas as pd

    rows, notes = [], []
    try:
        paths = find_kernels(p for p in (KERNELS, Path("kernels").resolve()) if p.is_dir())
    except KernelFolderError as err:
        raise ConfigError(str(err)) from err
    for name, path in sorted(paths.items()):
        try:
            workload = load_kernel(path).workload
        except KernelFolderError as err:
            notes.append(str(err))
            continue
        has = [
            b.name
            for b in BACKENDS.values()
            if any((path / f"kernel{suffix}").is_file() for suffix in b.suffixes)
        ]
        rows.append(
            {
                "kernel": name,
                **{c: list(getattr(workload, c)) for c in ("dtypes", "variants", "axes")},
                "backends": has if workload.device_code else list(BACKENDS),
                "title": workload.title,
            }
        )
    if not rows:
        notes.append(
            f"There is no kernel in '{Path('kernels').resolve()}'; run this in a clone or beside "
            f"your folder 'kernels', or write a kernel by `{library} new NAME`."
        )
    return pd.DataFrame(rows), notes


def found_devices() -> tuple[DataFrame, list[str]]:
    """A row for each device that answers; why none does, where none does."""
    import pandas as pd

    rows, reasons = [], []
    with OwnFolder() as cache:
        for backend, runtime in ((b, r) for b in BACKENDS.values() for r in b.runtimes or (AUTO,)):
            for index in count():
                try:
                    info = probe(DeviceChoice(backend.name, index, runtime, Path(cache)))
                except NoDeviceError as err:
                    reasons.append(str(err))
                    break
                rows.append(
                    {
                        "device": index,
                        "backend": backend.name,
                        "opencl_runtime": runtime if backend.runtimes else None,
                        "device_name": info.name,
                        "memory_gib": round(info.global_memory / 2**30, 1),
                        "driver": info.driver,
                        "device_uuid": info.uuid,
                    }
                )
    return pd.DataFrame(rows), [] if rows else reasons
