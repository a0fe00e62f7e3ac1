"""What a configuration may hold, and the one sentence for what it may not:
the key, what it is, what is allowed."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from decimal import Decimal
from functools import cache
from importlib.resources import files
from typing import Any

import jsonschema
import yaml

from ..core.backends import AUTO, BACKENDS
from ..core.errors import UserError


class ConfigError(UserError, ValueError):
    """The configuration is not usable; one sentence names the key and what is allowed."""

    def __init__(self, text: str) -> None:
        # Names and values are the user's and may hold line breaks; the sentence stays one line.
        super().__init__(" ".join(text.split()))


# Whether what is checked are a call's arguments; else they are a configuration's keys.
_of_a_call: ContextVar[bool] = ContextVar("of_a_call", default=False)


@contextmanager
def of_a_call() -> Iterator[None]:
    """Have sentences speak of a call's arguments and not of a configuration's keys."""
    token = _of_a_call.set(True)
    try:
        yield
    finally:
        _of_a_call.reset(token)


def named(key: str) -> str:
    """``Config key 'measure.repeats'``, or ``Argument 'repeats'`` of a call."""
    return f"{'Argument' if _of_a_call.get() else 'Config key'} '{key}'"


def within(section: str, rest: str) -> str:
    """`rest` behind the configuration's section that it is in; a call has no sections."""
    return rest if _of_a_call.get() else section + rest


def _is_whole(_: Any, value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_finite(_: Any, value: Any) -> bool:
    return _is_whole(_, value) or (isinstance(value, float) and math.isfinite(value))


def _unique(_: Any, wanted: bool, instance: Any, __: Any) -> Iterator[jsonschema.ValidationError]:
    """Check JSON Schema's ``uniqueItems`` without comparing all pairs of entries."""
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


@cache
def config_schema() -> dict[str, Any]:
    """The schema of a run's configuration, with the backends that there are."""
    # A link, of which an installed package holds a copy.
    text = files(__package__).joinpath("config.schema.yaml").read_text(encoding="utf-8")
    schema: dict[str, Any] = yaml.CSafeLoader(text).get_single_data()
    keys = schema["properties"]
    keys["backend"]["enum"] = [AUTO, *BACKENDS]
    keys["opencl_runtime"]["enum"] = [AUTO, *(r for b in BACKENDS.values() for r in b.runtimes)]
    return schema


def with_defaults(given: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """`given`, which the schema allows, and the default of each key that it leaves out."""
    found = dict(given)
    for name, rule in schema["properties"].items():
        if "properties" in rule:
            found[name] = with_defaults(given.get(name, {}), rule)
        elif "default" in rule:
            found.setdefault(name, rule["default"])
    return found


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


def sentence(error: jsonschema.ValidationError) -> str:
    """One sentence for a schema error: the key, what it is, what is allowed."""
    key = ".".join(str(p) for p in error.absolute_path)
    schema: Mapping[str, Any] = error.schema if isinstance(error.schema, Mapping) else {}
    rule: Any = error.validator_value
    renamed: Mapping[str, str] = schema.get("x-formerly", {})
    if isinstance(error.instance, str) and error.instance in renamed:
        return f"{named(key)} is {_show(error.instance)}, now called '{renamed[error.instance]}'."
    if error.validator == "additionalProperties":
        allowed = sorted(schema.get("properties", {}))
        unknown = min((k for k in _mapping(error) if k not in allowed), key=str)
        hint = did_you_mean(str(unknown), allowed)
        where = f"{key}.{unknown}" if key else str(unknown)
        what = named(where)
        if unknown in renamed:
            return f"Unknown {what[0].lower()}{what[1:]}, now called '{renamed[unknown]}'."
        return f"Unknown {what[0].lower()}{what[1:]}; allowed here: {', '.join(allowed)}.{hint}"
    if error.validator == "required":
        missing = next(n for n in rule if n not in _mapping(error))
        return f"{named(f'{key}.{missing}' if key else missing)} is missing."
    if error.validator == "anyOf" and error.context:
        return _any_of(key, error)
    if "propertyNames" in error.relative_schema_path:
        return f"{named(key)} holds the key {_show(error.instance)}; a key must be a text."
    return f"{named(key)} is {_show(error.instance)}; {_allowed(error)}."


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A question that names what is most like `name`; empty where nothing is like it."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f" Did you mean '{near[0]}'?" if near else ""


def _advice(error: jsonschema.ValidationError) -> str:
    """What to do with a text that is nearly what may stand there: a number, or one of a list."""
    text = error.instance
    if not isinstance(text, str):
        return ""
    number = _NUMBER.fullmatch(text)
    if number and _wants(error, "integer", "number"):
        if number["unit"]:
            return f"; write a plain number, without '{number['unit']}'"
        # YAML takes 1e3 for a text, and 1.0e+3 for a number.
        return f"; write {Decimal(text):f}" if number["exponent"] else "; remove the quotes"
    is_entry = not any(map(str.isspace, text)) and _wants(error, "array")
    return f"; write [{text}]" if is_entry and not _wants(error, "integer") else ""


_NUMBER = re.compile(
    r"[-+]?[0-9]+(\.[0-9]*)?(?P<exponent>e[-+]?[0-9]{1,2})? ?(?P<unit>[a-z%]+)?", re.IGNORECASE
)


def _wants(error: jsonschema.ValidationError, *types: str) -> bool:
    """Whether a value of one of these types may stand where another one does."""
    if error.validator == "anyOf":
        return any(_wants(inner, *types) for inner in error.context or [])
    return error.validator == "type" and bool({*types} & set(_types(error)))


def _mapping(error: jsonschema.ValidationError) -> Mapping[str, Any]:
    """The faulty part of the configuration, where the schema has found that it is a mapping."""
    instance: Any = error.instance
    return dict(instance)


def _any_of(key: str, error: jsonschema.ValidationError) -> str:
    """The fault of the alternative that the value comes closest to: of its type, fewest faults."""
    alternatives: dict[Any, list[jsonschema.ValidationError]] = {}
    for e in error.context or []:
        alternatives.setdefault(e.relative_schema_path[0], []).append(e)
    fitting = [faults for faults in alternatives.values() if not any(map(_misses_type, faults))]
    if fitting:
        closest = min(fitting, key=len)
        deepest = max(
            closest, key=lambda e: (len(list(e.relative_path)), e.validator != "required")
        )
        # An alternative of single words is not all that may stand there.
        if deepest.validator != "enum" or deepest.relative_path:
            return sentence(deepest)
    schema: Mapping[str, Any] = error.schema if isinstance(error.schema, Mapping) else {}
    text = str(schema.get("description", "see the schema")).rstrip(".")
    if isinstance(error.instance, float) and not math.isfinite(error.instance):
        return f"{named(key)} is {_show(error.instance)}; it must be {_TYPES['number']}."
    return f"{named(key)} is {_show(error.instance)}; allowed: {text}{_advice(error)}."


def _misses_type(error: jsonschema.ValidationError) -> bool:
    """Whether the value as a whole, not a part of it, is of another type."""
    if list(error.relative_path):
        return False
    if error.validator == "anyOf":
        return all(map(_misses_type, error.context or []))
    return error.validator == "type"


def _show(value: Any) -> str:
    if value == [] or value == {}:
        return "empty"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _types(error: jsonschema.ValidationError) -> list[str]:
    """The types that a schema error of a type names."""
    names: Any = error.validator_value
    return [names] if isinstance(names, str) else names


_TYPES = {
    "integer": "a whole number",
    "number": "a finite number",
    "string": "a text",
    "boolean": "true or false",
    "array": "a list",
    "object": "a mapping (lines of 'key: value')",
    "null": "null",
}


_BOUNDS = {
    "minimum": "at least",
    "exclusiveMinimum": "more than",
    "maximum": "at most",
    "exclusiveMaximum": "less than",
}


def _allowed(error: jsonschema.ValidationError) -> str:
    value: Any = error.validator_value
    schema: Mapping[str, Any] = error.schema if isinstance(error.schema, Mapping) else {}
    if error.validator == "type":
        return "it must be " + " or ".join(_TYPES[n] for n in _types(error)) + _advice(error)
    if error.validator == "enum":
        return "allowed are " + ", ".join(map(str, value))
    if error.validator in _BOUNDS:
        bounds = (f"{words} {schema[rule]}" for rule, words in _BOUNDS.items() if rule in schema)
        return "it must be " + " and ".join(bounds)
    if error.validator in {"minItems", "minProperties"}:
        return f"it needs at least {value} " + ("entry" if value == 1 else "entries")
    if error.validator in {"maxItems", "maxProperties"}:
        return f"it takes at most {value} entries"
    if error.validator == "minLength":
        return "it must not be empty"
    if error.validator == "uniqueItems":
        return "an entry must not stand twice"
    if error.validator == "pattern":
        return str(schema["x-allowed"])
    return error.message
