"""What every key of a configuration may hold, by its schema, and the error that names a fault."""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import jsonschema

from .config_sentences import sentence


class ConfigError(ValueError):
    """The configuration is not usable; one sentence names the key and what is allowed."""

    def __init__(self, text: str) -> None:
        # Names and values are the user's and may hold line breaks; the sentence stays one line.
        super().__init__(" ".join(text.split()))


def _is_whole(_: Any, value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_finite(_: Any, value: Any) -> bool:
    return _is_whole(_, value) or (isinstance(value, float) and math.isfinite(value))


def _unique(_: Any, wanted: bool, instance: Any, __: Any) -> Iterator[jsonschema.ValidationError]:
    """As JSON Schema has it, without comparing each entry with each."""
    if wanted and isinstance(instance, list) and len(set(map(repr, instance))) < len(instance):
        yield jsonschema.ValidationError("has non-unique elements")


# JSON Schema takes 7.0 for a whole number, and NaN passes every bound.
_Validator = jsonschema.validators.extend(  # type: ignore[no-untyped-call]
    jsonschema.Draft202012Validator,
    {"uniqueItems": _unique},
    type_checker=jsonschema.Draft202012Validator.TYPE_CHECKER.redefine_many(
        {"integer": _is_whole, "number": _is_finite}
    ),
)


def check_schema(raw: Mapping[str, Any], schema: Mapping[str, Any]) -> None:
    """Raise ConfigError, one sentence, with the first fault of `raw`."""
    validator = _Validator(schema)
    errors = sorted(
        validator.iter_errors(dict(raw)), key=lambda e: (list(map(str, e.path)), e.message)
    )
    if errors:
        raise ConfigError(sentence(errors[0]))


# Of more names than this a sentence shows those that are like the wrong one.
MANY_NAMES = 16


def refuse_unknown(key: str, given: Iterable[Any], allowed: Collection[str]) -> None:
    """Raise ConfigError where one of the names `given` for `key` is not `allowed`."""
    for value in given:
        if value in allowed:
            continue
        if len(allowed) <= MANY_NAMES:
            raise ConfigError(f"{key}: '{value}' is not known; allowed: {', '.join(allowed)}.")
        near = difflib.get_close_matches(str(value), allowed, n=3, cutoff=0.0)
        raise ConfigError(
            f"{key}: '{value}' is not known; the nearest of the {len(allowed)} allowed: "
            f"{', '.join(near)}."
        )
