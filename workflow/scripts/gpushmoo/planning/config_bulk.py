"""What no configuration may hold, whatever its keys mean; found before all else."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from typing import Any

# Keys and values in all. A list of YAML that stands in several places (``*name``) counts in each.
MOST_VALUES = 20_000
# Lists and mappings within each other; a list of YAML that holds itself has no end.
MOST_DEPTH = 32
# Characters of a text, and the first whole number (or its negative) that no key takes. Python does
# not write out what has more than some thousand digits, not even into a sentence.
MOST_TEXT, TOO_LARGE = 100_000, 2**63


def bulk_fault(raw: Mapping[Any, Any]) -> str | None:
    """One sentence on what makes `raw` too much to be looked through; None where nothing does.

    Takes as long and as much memory as what it may hold, not as what it holds.
    """
    left: list[tuple[tuple[Any, ...], Any]] = [((), raw)]
    count = 0
    while left:
        path, value = left.pop()
        count += 1
        fault = _fault(value)
        if fault is not None:
            return f"Config key '{_name(path)}' {fault}."
        if len(path) > MOST_DEPTH:
            return (
                f"Config key '{_name(path[:3])}' holds lists or mappings more than {MOST_DEPTH} "
                "deep; no key takes that."
            )
        inner = list(itertools.islice(_inner(value), MOST_VALUES + 1))
        if count + len(left) + len(inner) > MOST_VALUES:
            return (
                f"The configuration holds more than {MOST_VALUES} values; write a range "
                "{from, to, step} in place of a list, and fewer sweeps."
            )
        for key, child in inner:
            fault = _fault(key)
            if fault is not None:
                return f"Config key '{_name(path)}' holds a key that {fault}."
            left.append(((*path, key), child))
    return None


def _inner(value: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(value, Mapping):
        return value.items()
    return enumerate(value) if isinstance(value, list | tuple | set | frozenset) else ()


def _fault(value: Any) -> str | None:
    """What is wrong with a number or a text, as a clause that follows its key."""
    if isinstance(value, int) and not -TOO_LARGE < value < TOO_LARGE:
        digits = round(value.bit_length() * math.log10(2))
        return f"is a whole number of about {digits} digits; no key takes that"
    if isinstance(value, str | bytes) and len(value) > MOST_TEXT:
        return f"is a text of {len(value)} characters; no key takes more than {MOST_TEXT}"
    return None


def _name(path: Iterable[Any]) -> str:
    """The key as sentences name it; the last parts of a long one are left out."""
    return ".".join(str(part)[:64] for part in path)
