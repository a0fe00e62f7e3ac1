"""The choices as a C header of macros and as a C++ header of constants.

``launches.h`` compiles as C99, C++11 and CUDA, ``launches.hpp`` as C++11 and CUDA. Both say the
same: a name for each launch parameter of each choice, and in a comment above what is known of it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from ..core.display import bare_interval, percent
from .choices import USUAL, Choice, ExportError, ExportGroup, Margin

C_HEADER, CPP_HEADER = "launches.h", "launches.hpp"
NAMESPACE = "gpushmoo"
# Problems that a comment names; the others are counted.
_NAMED = 4
_LEAST_INT, _MOST_INT = -(2**31) + 1, 2**31 - 1


@dataclass(frozen=True)
class Constant:
    """A launch parameter as C calls it, in small letters and without the project's name."""

    name: str
    value: int


@dataclass(frozen=True)
class Entry:
    """What stands in the headers of one choice: lines of its comment, and its constants."""

    comment: Sequence[str]
    constants: Sequence[Constant]


def entries(choices: Sequence[Choice]) -> list[Entry]:
    """Each choice for a header.

    A variant is part of a name where its kernel has several. Raises ExportError for what cannot
    stand in a C identifier, and where two constants would get the same name.
    """
    variants: dict[str, set[str]] = {}
    for choice in choices:
        variants.setdefault(choice.target["kernel"], set()).add(choice.target["variant"])
    made = []
    owners: dict[str, str] = {}
    for choice in choices:
        parts = _parts(choice, len(variants[choice.target["kernel"]]) > 1)
        constants = [
            Constant("_".join(map(identifier, [*parts, axis])), value)
            for axis, value in choice.point
        ]
        what = ", ".join(parts)
        for constant in constants:
            if owners.setdefault(constant.name, what) != what:
                raise ExportError(
                    f"header: both '{owners[constant.name]}' and '{what}' would be called "
                    f"{constant.name} in C; rename one of them, or leave one out."
                )
        made.append(Entry(_comment(choice), constants))
    return made


def _parts(choice: Choice, name_variant: bool) -> list[str]:
    target = choice.target
    variant = [target["variant"]] if name_variant else []
    unusual = [value for value in choice.conditions if value not in USUAL]
    head = [target["device_name"], target["kernel"], *variant, target["dtype"]]
    return [*head, choice.size_class, *unusual]


def identifier(name: str) -> str:
    """`name` as a part of a C identifier: small letters, digits, single underscores between them.

    Two underscores in a row are reserved in C++. Raises ExportError where nothing is left.
    """
    found = re.sub("[^a-z0-9]+", "_", name.lower()).strip("_")
    if not found:
        raise ExportError(
            f"header: '{name}' has no letter or digit that may stand in a C identifier; rename it."
        )
    return found


def c_header(entries: Sequence[Entry], about: Sequence[str]) -> str:
    """Macros ``GPUSHMOO_<DEVICE>_<KERNEL>_<TYPE>_<CLASS>_<PARAMETER>``; `about` stands on top."""
    guard = _guard(entries, "H")
    lines = [*_block(about), "", f"#ifndef {guard}", f"#define {guard}"]
    for entry in entries:
        lines += ["", *_block(entry.comment)]
        for constant in entry.constants:
            name = f"{NAMESPACE}_{constant.name}".upper()
            lines.append(f"#define {name} {_literal(constant.value)}")
    return "\n".join([*lines, "", "#endif", ""])


def cpp_header(entries: Sequence[Entry], about: Sequence[str]) -> str:
    """Constants ``gpushmoo::<device>_<kernel>_<type>_<class>_<parameter>``, as `c_header`."""
    guard = _guard(entries, "HPP")
    lines = [*_block(about), "", f"#ifndef {guard}", f"#define {guard}"]
    lines += ["", f"namespace {NAMESPACE} {{"]
    for entry in entries:
        lines += ["", *_block(entry.comment)]
        for constant in entry.constants:
            kind = "int" if _is_int(constant.value) else "long long"
            # No name begins with a digit.
            name = f"on_{constant.name}" if constant.name[0].isdigit() else constant.name
            lines.append(f"constexpr {kind} {name} = {_literal(constant.value)};")
    return "\n".join([*lines, "", "}", "", "#endif", ""])


def _guard(entries: Sequence[Entry], suffix: str) -> str:
    """Of its own for each run: a program may include the headers of several devices."""
    constants = [(c.name, c.value) for entry in entries for c in entry.constants]
    digest = hashlib.sha256(repr(constants).encode()).hexdigest()[:12]
    return f"{NAMESPACE}_launches_{digest}_{suffix}".upper()


def _is_int(value: int) -> bool:
    return _LEAST_INT <= value <= _MOST_INT


def _literal(value: int) -> str:
    """An expression of C of that value, whatever stands around it."""
    suffix = "" if _is_int(value) else "LL"
    if value == -(2**63):
        return f"(-{2**63 - 1}LL - 1)"
    return f"(-{-value}{suffix})" if value < 0 else f"{value}{suffix}"


def _block(lines: Sequence[str]) -> list[str]:
    """A comment in any C: names of devices and kernels may hold what would end or escape it."""
    texts = [re.sub(r"[^ -~]|\\|\*/|/\*|\?\?", "?", line.replace("×", "x")) for line in lines]
    return [f"{'/*' if n == 0 else ' *'} {text}" for n, text in enumerate(texts)] + [" */"]


def _comment(choice: Choice) -> list[str]:
    target, main = choice.target, choice.main
    kernel = f"{target['kernel']} ({target['variant']}) of {target['dtype']}"
    lines = [f"{kernel} on {target['device_name']}, {_where(choice)}.", _claim(choice)]
    row = main.ok.get(choice.point)
    if row is not None:
        lines.append(
            f"At {main.problem}: {bare_interval(row)} GB/s; {len(main.tied)} of {len(main.ok)} "
            "launches cannot be told from the fastest."
        )
    lines += [_margin_line(margin) for margin in choice.margins]
    lines += [_loss_line(group, choice) for group in choice.not_tied[:_NAMED]]
    if len(choice.not_tied) > _NAMED:
        lines.append(f"So it is at {len(choice.not_tied) - _NAMED} more.")
    return lines


def _where(choice: Choice) -> str:
    return ", ".join([f"data {choice.size_class.replace('_', ' ')}", *choice.conditions])


def _claim(choice: Choice) -> str:
    tied = choice.tied
    named = ", ".join(group.problem for group in tied[:_NAMED])
    rest = f" and {len(tied) - _NAMED} more" if len(tied) > _NAMED else ""
    where = f"{named}{rest}"
    if choice.everywhere and len(tied) > 1:
        return f"As fast as the fastest at all problems measured, as far as can be told: {where}."
    return f"As fast as the fastest, as far as can be told, at {where}."


def _margin_line(margin: Margin) -> str:
    launch = ", ".join(f"{axis}={value}" for axis, value in margin.point)
    interval = f"{percent(margin.low)} to {percent(margin.high)}"
    told = "" if margin.low > 0 or margin.high < 0 else "; they cannot be told apart"
    name = margin.name[0].upper() + margin.name[1:]
    return (
        f"{name} ({launch}) takes {percent(margin.slower)} longer ({interval}, "
        f"{percent(margin.confidence)} sure{told})."
    )


def _loss_line(group: ExportGroup, choice: Choice) -> str:
    lost = group.slower(choice.point)
    if lost is None:
        return f"It was not measured at {group.problem}."
    return f"At {group.problem} it takes {percent(lost)} longer than the fastest."
