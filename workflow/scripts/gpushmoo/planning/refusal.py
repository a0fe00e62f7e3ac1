"""Check the values of a configuration or of a call.

A fault is one sentence: the key, its value, and the values that are allowed.
"""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from decimal import Decimal
from types import NoneType
from typing import Any, Literal, TypeVar, get_args, get_origin

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from ..core.errors import ConfigError
from ..core.keys import (
    ALTERNATIVES,
    MEANING,
    ONE_OF,
    RENAMED,
    Section,
    bounds_of,
    keys_of,
    kinds_of,
)

S = TypeVar("S", bound=Section)

# Whether what is checked are a call's arguments; else they are a configuration's keys.
_of_a_call: ContextVar[bool] = ContextVar("of_a_call", default=False)


@contextmanager
def of_a_call() -> Iterator[None]:
    """Make messages in this context name a call's arguments instead of a configuration's keys."""
    token = _of_a_call.set(True)
    try:
        yield
    finally:
        _of_a_call.reset(token)


def named(key: str) -> str:
    """Return the name of a key in messages: ``Config key 'seed'``, or ``Argument 'seed'``."""
    return f"{'Argument' if _of_a_call.get() else 'Config key'} '{key}'"


def within(section: str, rest: str) -> str:
    """Return the text `rest` after the name of its `section`, without that name in a call.

    Arguments of a call are not in sections.
    """
    return rest if _of_a_call.get() else section + rest


# Of more names than this a sentence shows those that are like the wrong one.
MANY_NAMES = 16


def refuse_unknown(key: str, given: Iterable[Any], allowed: Collection[str]) -> None:
    """Raise ConfigError if a name is not allowed.

    Parameters
    ----------
    key
        Key under which the names are, for the message.
    given
        The names to check.
    allowed
        The allowed names. If there are many, the message lists only the nearest ones.
    """
    allowed = list(dict.fromkeys(allowed))
    for value in given:
        if value in allowed:
            continue
        if len(allowed) <= MANY_NAMES:
            raise ConfigError(f"{key}: '{value}' is not known; allowed: {', '.join(allowed)}.")
        near = difflib.get_close_matches(str(value), allowed, n=3, cutoff=0.6)
        near = near or difflib.get_close_matches(str(value), allowed, n=3, cutoff=0.0)
        raise ConfigError(
            f"{key}: '{value}' is not known; the nearest of the {len(allowed)} allowed: "
            f"{', '.join(near)}."
        )


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a question with the known name that is most similar to `name`, empty without one."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f" Did you mean '{near[0]}'?" if near else ""


def read_section(kind: type[S], raw: Mapping[Any, Any], above: str = "") -> S:
    """Return a section of the configuration from plain values, with defaults for missing keys.

    Parameters
    ----------
    kind
        Class that defines the keys of the section.
    raw
        Values by key.
    above
        Prefix of the keys in messages, for example ``chapters.mine.``.

    Raises
    ------
    ConfigError
        With one sentence that names the key, for the first fault.
    """
    _refuse_keys_of_other_types(raw, above)
    try:
        # In JSON, types are strict and lists become tuples.
        text = json.dumps(dict(raw), default=str)
        return kind.model_validate_json(text, strict=True)
    except ValidationError as err:
        first = min(err.errors(include_url=False), key=_order)
        raise ConfigError(_Fault(kind, first, above).sentence()) from None


def _order(error: ErrorDetails) -> tuple[Any, ...]:
    """Return a sort key for errors of pydantic: by key, unknown keys first.

    A list without a valid entry also counts as too short. That error comes last, because the
    invalid entry is its cause.
    """
    follows = error["type"] == "too_short" and bool(error["input"]) and not _length(error)
    *above, last = [str(part) for part in error["loc"]] or [""]
    return follows, above, error["type"] not in UNKNOWN, last, error["type"]


def _length(error: ErrorDetails) -> int:
    return int(error.get("ctx", {}).get("actual_length", 0))


def _refuse_keys_of_other_types(raw: Mapping[Any, Any], above: str) -> None:
    """Raise ConfigError for a key that is not a string, because JSON has no other keys.

    Keys of the outermost mapping are reported later as unknown ones.
    """
    for key, value in raw.items():
        inner = value if isinstance(value, Mapping) else {}
        for name in inner:
            if not isinstance(name, str):
                raise ConfigError(
                    f"{named(f'{above}{key}')} holds the key {_show(name)}; a key must be a text."
                )
        _refuse_keys_of_other_types(inner, f"{above}{key}.")
        for place, entry in enumerate(value if isinstance(value, list | tuple) else ()):
            if isinstance(entry, Mapping):
                _refuse_keys_of_other_types({place: entry}, f"{above}{key}.")


class _Fault:
    """Message of this project for one error that pydantic reports."""

    def __init__(self, root: type[Section], error: ErrorDetails, above: str) -> None:
        self._type = error["type"]
        self._value = error["input"]
        self._message = error["msg"]
        self._context: Mapping[str, Any] = error.get("ctx", {})
        # The section that the last key is in, what that key may be, and what is said of it.
        self._owner: Any = root
        self._allowed: Any = root
        self._meaning = ""
        path: list[str] = []
        tag = ""
        for part in error["loc"]:
            if isinstance(part, str) and part.startswith("<"):
                tag = part
                continue
            found = self._step(part, tag)
            if found is None and part != error["loc"][-1]:
                # The name that pydantic gives an alternative without a tag.
                continue
            if found is None and not self._is_unknown:
                continue
            path.append(str(part))
            tag = ""
            if found is not None:
                self._allowed = found
        self._last = path[-1] if path else ""
        self._key = above + ".".join(path)

    @property
    def _is_unknown(self) -> bool:
        return self._type in UNKNOWN

    def _step(self, key: str | int, tag: str) -> Any:
        """Return the annotation at a key of the present one; None if it has no such key."""
        for kind in _other_kinds(self._allowed):
            if tag and isinstance(kind, type) and issubclass(kind, Section) and tag != kind.TAG:
                continue
            keys = keys_of(kind)
            if keys:
                self._owner = kind
                if key in keys:
                    self._meaning = keys[str(key)].meaning
                    return keys[str(key)].annotation
            elif get_origin(kind) is dict and isinstance(key, str):
                return get_args(kind)[1]
            elif get_origin(kind) is tuple and isinstance(key, int):
                return get_args(kind)[0]
        return None

    def sentence(self) -> str:
        """Return one sentence: the key, its value, and the values that are allowed."""
        what = named(self._key)
        if self._is_unknown:
            return self._unknown(what)
        if self._type == "missing":
            return f"{what} is missing."
        if self._type == RENAMED:
            return f"{what} is {_show(self._value)}, now called '{self._message}'."
        return f"{what} is {_show(self._value)}; {self._wanted()}."

    def _unknown(self, what: str) -> str:
        allowed = sorted(keys_of(self._owner))
        unknown = f"Unknown {what[0].lower()}{what[1:]}"
        former: Mapping[str, str] = getattr(self._owner, "FORMERLY", {})
        if self._last in former:
            return f"{unknown}, now called '{former[self._last]}'."
        hint = did_you_mean(self._last, allowed)
        return f"{unknown}; allowed here: {', '.join(allowed)}.{hint}"

    def _wanted(self) -> str:
        is_word = self._type in ("literal_error", ONE_OF)
        is_typed = self._type in _TYPES
        several = len(_other_kinds(self._allowed)) > 1
        if isinstance(self._value, float) and not math.isfinite(self._value):
            return f"it must be {_TYPES['float_type']}"
        if self._type == ALTERNATIVES:
            allowed = self._meaning.rstrip(".") if self._message == MEANING else self._message
            return f"allowed: {allowed}{self._advice()}"
        is_limit = self._type in _LIMITS
        names_words = any(get_origin(kind) is Literal for kind in _other_kinds(self._allowed))
        if several and (is_word or is_typed or (is_limit and names_words)):
            return f"allowed: {self._meaning.rstrip('.')}{self._advice()}"
        if is_typed:
            null = " or null" if NoneType in kinds_of(self._allowed) else ""
            return f"it must be {_TYPES[self._type]}{null}{self._advice()}"
        if is_word:
            names = [name for kind in _other_kinds(self._allowed) for name in get_args(kind)]
            return f"allowed are {self._context.get('names') or ', '.join(map(str, names))}"
        if is_limit:
            bounds = bounds_of(self._allowed)
            words = [f"{_LIMITS[n]} {_number(bounds[n])}" for n in _LIMITS if n in bounds]
            return "it must be " + " and ".join(words)
        if self._type not in _LENGTH_BOUNDS:
            return self._message
        return _LENGTH_BOUNDS[self._type].format(**self._context, entries=_entries(self._context))

    def _advice(self) -> str:
        """Return advice on a string that is almost an allowed number or entry of a list."""
        text = self._value
        if not isinstance(text, str):
            return ""
        kinds = {get_origin(kind) or kind for kind in _other_kinds(self._allowed)}
        number = _NUMBER.fullmatch(text)
        if number and kinds & {int, float}:
            if number["unit"]:
                return f"; write a plain number, without '{number['unit']}'"
            # YAML takes 1e3 for a text, and 1.0e+3 for a number.
            return f"; write {Decimal(text):f}" if number["exponent"] else "; remove the quotes"
        is_entry = not any(map(str.isspace, text))
        return f"; write [{text}]" if is_entry and tuple in kinds and int not in kinds else ""


# The types of errors of keys that a section does not have.
UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")
_TYPES = {
    "int_type": "a whole number",
    "float_type": "a finite number",
    "finite_number": "a finite number",
    "string_type": "a text",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "dict_type": "a mapping (lines of 'key: value')",
    "model_type": "a mapping (lines of 'key: value')",
    "dataclass_type": "a mapping (lines of 'key: value')",
}
_LIMITS = {
    "greater_than_equal": "at least",
    "greater_than": "more than",
    "less_than_equal": "at most",
    "less_than": "less than",
}
_LENGTH_BOUNDS = {
    "too_short": "it needs at least {entries}",
    "too_long": "it takes at most {entries}",
    "string_too_short": "it must not be empty",
}
_NUMBER = re.compile(
    r"[-+]?[0-9]+(\.[0-9]*)?(?P<exponent>e[-+]?[0-9]{1,2})? ?(?P<unit>[a-z%]+)?", re.IGNORECASE
)


def _other_kinds(allowed: Any) -> list[Any]:
    """Return the alternatives of an annotation, without None."""
    return [kind for kind in kinds_of(allowed) if kind is not NoneType]


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else str(value)


def _entries(context: Mapping[str, Any]) -> str:
    count = context.get("min_length", context.get("max_length", 0))
    return f"{count} {'entry' if count == 1 else 'entries'}"


def _show(value: Any) -> str:
    if value == [] or value == {}:
        return "empty"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
