"""Columns that are written down once: types, null, units and meanings."""

from __future__ import annotations

from typing import Annotated

import pyarrow as pa
from gpushmoo.core.schema import Float64, Int32, Meaning, String, Table


class First(Table):
    """Hold the columns that both share."""

    name: Annotated[String, Meaning("what it is called")]


class Second(First):
    """Add one column to the first."""

    took_s: Annotated[Float64 | None, Meaning("how long it took, as far as that is known", "s")]
    counts: list[Int32]


def test_columns_are_those_of_the_bases_first_and_their_meanings_are_noted() -> None:
    expected = [
        pa.field("name", pa.string(), nullable=False),
        pa.field("took_s", pa.float64(), nullable=True),
        pa.field("counts", pa.list_(pa.int32()), nullable=False),
    ]
    assert list(Second.schema()) == expected
    assert Second.meanings() == {
        "name": Meaning("what it is called"),
        "took_s": Meaning("how long it took, as far as that is known", "s"),
    }
