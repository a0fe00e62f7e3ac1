"""Columns of Parquet files, each written down once: name, type, unit and meaning in one line.

    class Cells(Table):
        median_s: Number | None  # [s] a launch: the geometric mean of the repeats' medians

The meaning is a comment, so that no other words make a stage run again. A column without one means
what it means in another table. `docs/data.md` is made of it.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa

Text = str
Whole = int
Small = int
Number = float
Flag = bool
Time = datetime
_KINDS = {
    "Text": pa.string(),
    "Whole": pa.int64(),
    "Small": pa.int32(),
    "Number": pa.float64(),
    "Flag": pa.bool_(),
    "Time": pa.timestamp("ms", tz="UTC"),
}
_LINE = re.compile(r"    (?:(\w+): [^#]+|)#(?: \[(.+?)\])? (.+)")


SECONDS, GBS, BYTES, SHARE = "s", "GB/s", "bytes", "0 to 1"


@dataclass(frozen=True)
class Meaning:
    """A column in words; `unit` is empty for texts, keys and what is only counted."""

    text: str
    unit: str = ""


class Table:
    """A kind of file; the annotations of a subclass are its columns, after those of its bases."""

    @classmethod
    def fields(cls) -> list[pa.Field]:
        """The columns."""
        named = [item for base in cls.__mro__[::-1] for item in _annotations(base).items()]
        return [_field(name, annotation) for name, annotation in named]

    @classmethod
    def schema(cls) -> pa.Schema:
        """The schema of a file of this kind."""
        return pa.schema(cls.fields())

    @classmethod
    def meanings(cls) -> dict[str, Meaning]:
        """What the columns mean, as far as comments say it."""
        found: dict[str, Meaning] = {}
        for base in cls.__mro__[-3::-1]:
            name = ""
            for line in filter(None, map(_LINE.fullmatch, inspect.getsource(base).splitlines())):
                before = found[name].text + " " if line[1] is None else ""
                name = line[1] or name
                unit = found[name].unit if before else line[2] or ""
                found[name] = Meaning(before + line[3], unit)
        return found


def _annotations(table: type) -> dict[str, str]:
    return {} if table is object else inspect.get_annotations(table)


def _field(name: str, annotation: str) -> pa.Field:
    kind, _, null = annotation.partition(" | ")
    listed = re.fullmatch(r"list\[(\w+)\]", kind)
    return pa.field(name, pa.list_(_KINDS[listed[1]]) if listed else _KINDS[kind], bool(null))
