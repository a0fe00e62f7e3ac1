"""Attach the meaning of a key or a column to its annotation."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Meaning:
    """The meaning of a key or a column, which its `Annotated` type has.

    Parameters
    ----------
    text : str
        The meaning in words.
    unit : str
        The unit of its values; empty for texts, keys and counts.
    """

    text: str
    unit: str = ""

    def __get_pydantic_json_schema__(
        self, schema: Any, handler: Callable[[Any], dict[str, Any]]
    ) -> dict[str, Any]:
        """Return the JSON Schema of the key with the meaning as its description."""
        return {**handler(schema), "description": self.text}


def meaning_in(notes: Iterable[object]) -> Meaning | None:
    """Return the meaning among the notes of an annotation, or None."""
    return next((note for note in notes if isinstance(note, Meaning)), None)
