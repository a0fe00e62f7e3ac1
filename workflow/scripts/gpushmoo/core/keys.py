"""Define the types of configuration keys, for pydantic: sections, axes and sizes.

Each alternative of a value has a tag in angle brackets, by which pydantic selects the intended one.
So an error message describes the fault of that alternative only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from types import UnionType
from typing import Annotated, Any, ClassVar, Union, get_args, get_origin, get_type_hints

from annotated_types import Ge, GroupedMetadata, Gt, Le, Lt
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    WithJsonSchema,
)
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from .meaning import meaning_in

# Types of errors for which `planning.refusal` words the allowed values of the key.
ALTERNATIVES = "alternatives"
TWICE = "twice"
PATTERN = "pattern"
ONE_OF = "one_of"
RENAMED = "renamed"
MAX_VALUE = 2**28


class Section(BaseModel):
    """A mapping of the configuration; an unknown key is refused."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
        defer_build=True,
        validate_by_name=True,
        validate_by_alias=True,
    )

    # Former names of keys, with today's names.
    FORMERLY: ClassVar[Mapping[str, str]] = {}
    # Tag of a section that is an alternative of a value.
    TAG: ClassVar[str] = "<other>"

    @property
    def all_plain(self) -> dict[str, Any]:
        """All keys as plain values."""
        return self.model_dump(mode="json", by_alias=True)

    @property
    def given(self) -> dict[str, Any]:
        """The keys that are given and not null, as plain values."""
        values = self.model_dump(mode="json", by_alias=True, exclude_unset=True)
        return {name: value for name, value in values.items() if value is not None}


def kind_of(value: Any) -> str:
    """Return the tag of the alternative that a value is meant to be."""
    if isinstance(value, bool) or value is None:
        return "<other>"
    if isinstance(value, Section):
        return value.TAG
    if isinstance(value, Mapping):
        names = {"to_resident": "<resident>", "of_cache": "<of_cache>"}
        return next((tag for name, tag in names.items() if name in value), "<range>")
    kinds = {int: "<number>", float: "<float>", str: "<text>", list: "<list>", tuple: "<list>"}
    return kinds.get(type(value), "<other>")


# Replaces the allowed values in messages: the message contains the meaning of the key.
MEANING = "meaning"


def alternatives(allowed: str = MEANING, mapping: str | None = None) -> Discriminator:
    """Choose the intended alternative of a value; without one, the message contains `allowed`.

    A mapping is meant to be the alternative with the tag `mapping`, if that is the only one.
    """

    def choose(value: Any) -> str:
        return mapping if mapping and isinstance(value, Mapping) else kind_of(value)

    return Discriminator(
        choose,
        custom_error_type=ALTERNATIVES,
        custom_error_message=allowed,
    )


def _unique(values: tuple[Any, ...]) -> tuple[Any, ...]:
    # Not all pairs are compared.
    if len(set(map(repr, values))) < len(values):
        raise PydanticCustomError(TWICE, "an entry must not appear twice")
    return values


def matching(pattern: str, allowed: str) -> Any:
    """Return the type of a text that matches `pattern` as a whole; messages contain `allowed`."""
    compiled = re.compile(pattern)

    def check(value: str) -> str:
        if not compiled.fullmatch(value):
            raise PydanticCustomError(PATTERN, allowed)
        return value

    return AfterValidator(check)


@dataclass(frozen=True, eq=False)
class OneOf(GroupedMetadata):
    """One of these names; `formerly` maps former names of values to today's."""

    names: Sequence[str]
    formerly: Mapping[str, str] = field(default_factory=dict)

    def __iter__(self) -> Iterator[object]:
        """Yield the annotations that pydantic reads."""
        yield AfterValidator(self._check)
        yield WithJsonSchema({"enum": [*self.names]})

    def _check(self, value: str) -> str:
        if value in self.formerly:
            raise PydanticCustomError(RENAMED, "{now}", {"now": self.formerly[value]})
        if value not in self.names:
            raise PydanticCustomError(ONE_OF, "{names}", {"names": ", ".join(self.names)})
        return value


Text = Annotated[str, Field(min_length=1)]
Unique = AfterValidator(_unique)
Texts = tuple[Text, ...]


# Axes

Value = Annotated[int, Field(ge=0, le=MAX_VALUE)]


class Range(Section):
    """Evenly spaced values, both ends included."""

    TAG: ClassVar = "<range>"

    from_: int = Field(alias="from", ge=0)
    """First value."""
    to: int = Field(ge=1, le=MAX_VALUE)
    """Last value at most."""
    step: int = Field(default=1, ge=1)
    """Distance of the values."""


class Resident(Section):
    """Numbers of blocks, relative to the number that fit on the device at once."""

    TAG: ClassVar = "<resident>"

    to_resident: float = Field(gt=0, le=16)
    """Full waves of resident blocks, at most."""
    points: int = Field(ge=1, le=100_000)
    """Even steps on the way; both sides of every occupancy step come on top."""


AxisPart = Annotated[
    Annotated[Value, Tag("<number>")]
    | Annotated[Range, Tag("<range>")]
    | Annotated[Resident, Tag("<resident>")],
    alternatives("A whole number, a range {from, to, step}, or {to_resident, points}"),
]
AxisParts = Annotated[tuple[AxisPart, ...], Field(min_length=1)]
Axis = Annotated[
    Annotated[Value, Tag("<number>")]
    | Annotated[Range, Tag("<range>")]
    | Annotated[Resident, Tag("<resident>")]
    | Annotated[AxisParts, Tag("<list>")],
    alternatives("An integer, a range {from, to, step}, {to_resident, points}, or a list of these"),
]


# Sizes

# The least size depends on the kernel.
Elements = Annotated[int, Field(le=MAX_VALUE)]
Sides = Annotated[tuple[Elements, ...], Field(min_length=2, max_length=2)]
Extent = Annotated[
    Annotated[Elements, Tag("<number>")] | Annotated[Sides, Tag("<list>")],
    alternatives("Elements, one number or [height, width]"),
]


class OfCache(Section):
    """Size relative to the device's last cache level.

    All types of the sweep have one size. For a factor of 1 or more it is computed for the smallest
    type and rounded up, otherwise for the largest type and rounded down.
    """

    TAG: ClassVar = "<of_cache>"

    of_cache: float = Field(gt=0, le=65536)
    """Bytes that a launch reads and writes over those of the device's last cache level."""
    on_cpu: Extent | None = None
    """The size on a CPU, and on a device that does not report its cache; without it the factor
    counts on a CPU, too."""


SizeKey = Annotated[
    Annotated[Elements, Tag("<number>")]
    | Annotated[Sides, Tag("<list>")]
    | Annotated[OfCache, Tag("<of_cache>")],
    alternatives(
        "A multiple of the device's last cache level as {of_cache}, or elements, one number for a "
        "square problem (or a vector) or [height, width]",
        "<of_cache>",
    ),
]


# The keys of sections, for sentences and tables

# Marks a key without a default.
REQUIRED = object()


@dataclass(frozen=True)
class Key:
    """Allowed values of a key, as an annotation, with its meaning and its default.

    The `annotation` includes all notes on the key, and `allowed` is its type.
    """

    annotation: Any
    allowed: Any
    meaning: str
    default: Any = REQUIRED


def keys_of(kind: Any) -> dict[str, Key]:
    """Return the keys of a section, or of a dataclass in one, by name; empty for other kinds."""
    if not isinstance(kind, type):
        return {}
    if issubclass(kind, Section):
        return {
            field.alias or name: Key(
                Annotated[field.annotation, field],
                field.annotation,
                " ".join((field.description or _meaning(field.metadata)).split()),
                _default(field),
            )
            for name, field in kind.model_fields.items()
        }
    if not is_dataclass(kind):
        return {}
    hints = get_type_hints(kind, include_extras=True)
    made = kind()
    return {
        name: Key(hints[name], hints[name], _meaning(get_args(hints[name])), getattr(made, name))
        for name in (field.name for field in fields(kind))
    }


def _default(field: FieldInfo) -> Any:
    return REQUIRED if field.is_required() else field.get_default(call_default_factory=True)


def _meaning(notes: Iterable[object]) -> str:
    """Return the meaning that an annotation notes, or ""."""
    noted = meaning_in(notes)
    return noted.text if noted else ""


def bounds_of(allowed: Any) -> dict[str, float]:
    """Return the bounds of an annotation's numbers, by the names of pydantic's errors."""
    if get_origin(allowed) in (Union, UnionType):
        return {k: v for part in get_args(allowed) for k, v in bounds_of(part).items()}
    if get_origin(allowed) is not Annotated:
        return {}
    inner, *notes = get_args(allowed)
    for note in [*notes]:
        notes += note.metadata if isinstance(note, FieldInfo) else []
    found = bounds_of(inner)
    for name, (kind, attribute) in _NUMBER_BOUNDS.items():
        for note in notes:
            if isinstance(note, kind):
                found[name] = getattr(note, attribute)
    return found


_NUMBER_BOUNDS: dict[str, tuple[type, str]] = {
    "greater_than_equal": (Ge, "ge"),
    "greater_than": (Gt, "gt"),
    "less_than_equal": (Le, "le"),
    "less_than": (Lt, "lt"),
}


def kinds_of(allowed: Any) -> list[Any]:
    """Return the alternatives of an annotation without their notes; None is NoneType."""
    if get_origin(allowed) is Annotated:
        return kinds_of(get_args(allowed)[0])
    if get_origin(allowed) in (Union, UnionType):
        return [kind for part in get_args(allowed) for kind in kinds_of(part)]
    return [allowed]
