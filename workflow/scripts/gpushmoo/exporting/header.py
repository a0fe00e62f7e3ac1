"""The choices as a C header of macros and as a C++ header of constants.

``launches.h`` compiles as C99, C++11 and CUDA, ``launches.hpp`` as C++11 and CUDA. Both have a name
for each launch parameter of each choice, and a comment above it on how fast the choice is.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..core.display import bare_interval, percent
from .choices import USUAL, Choice, ExportError

C_HEADER, CPP_HEADER = "launches.h", "launches.hpp"
NAMESPACE = "gpushmoo"
# Problems that a comment names; the others are counted.
_NAMED = 4
_LEAST_INT, _MOST_INT = -(2**31) + 1, 2**31 - 1


@dataclass(frozen=True)
class Entry:
    """One choice in the headers: its comment's lines, and its launch parameters by C identifier."""

    comment: Sequence[str]
    constants: Mapping[str, int]


def entries(choices: Sequence[Choice]) -> list[Entry]:
    """Each choice for a header. Raises ExportError where two constants would get the same name."""
    variants: dict[str, set[str]] = {}
    for choice in choices:
        variants.setdefault(choice.target["kernel"], set()).add(choice.target["variant"])
    made = []
    owners: dict[str, str] = {}
    for choice in choices:
        target, kernel = choice.target, choice.target["kernel"]
        variant = [target["variant"]] if len(variants[kernel]) > 1 else []
        unusual = [value for value in choice.main.conditions if value not in USUAL]
        parts = [target["device_name"], kernel, *variant, target["dtype"], choice.size_class]
        parts += unusual
        constants = {"_".join(map(identifier, [*parts, a])): value for a, value in choice.point}
        what = ", ".join(parts)
        for name in constants:
            if owners.setdefault(name, what) != what:
                raise ExportError(
                    f"header: both '{owners[name]}' and '{what}' would be called {name} in C; "
                    "rename one of them, or leave one out."
                )
        made.append(Entry(_comment(choice), constants))
    return made


def identifier(name: str) -> str:
    """`name` as part of a C identifier; two underscores in a row are reserved in C++."""
    found = re.sub("[^a-z0-9]+", "_", name.lower()).strip("_")
    if not found:
        raise ExportError(
            f"header: '{name}' has no letter or digit that may stand in a C identifier; rename it."
        )
    return found


def c_header(entries: Sequence[Entry], about: Sequence[str]) -> str:
    """Macros ``GPUSHMOO_<DEVICE>_<KERNEL>_<TYPE>_<CLASS>_<PARAMETER>``; `about` stands on top."""
    lines = []
    for entry in entries:
        lines += ["", *_block(entry.comment)]
        for name, value in entry.constants.items():
            lines.append(f"#define {NAMESPACE.upper()}_{name.upper()} {_literal(value)}")
    return _guarded(entries, "H", about, lines)


def cpp_header(entries: Sequence[Entry], about: Sequence[str]) -> str:
    """Constants ``gpushmoo::<device>_<kernel>_<type>_<class>_<parameter>``, as `c_header`."""
    lines = ["", f"namespace {NAMESPACE} {{"]
    for entry in entries:
        lines += ["", *_block(entry.comment)]
        for name, value in entry.constants.items():
            kind = "int" if _is_int(value) else "long long"
            # No name begins with a digit.
            named = f"on_{name}" if name[0].isdigit() else name
            lines.append(f"constexpr {kind} {named} = {_literal(value)};")
    return _guarded(entries, "HPP", about, [*lines, "", "}"])


def _guarded(
    entries: Sequence[Entry], suffix: str, about: Sequence[str], lines: Sequence[str]
) -> str:
    # Each run has its own guard: a program may include the headers of several devices.
    constants = [constant for entry in entries for constant in entry.constants.items()]
    digest = hashlib.sha256(repr(constants).encode()).hexdigest()[:12]
    guard = f"{NAMESPACE}_launches_{digest}_{suffix}".upper()
    head = [*_block(about), "", f"#ifndef {guard}", f"#define {guard}"]
    return "\n".join([*head, *lines, "", "#endif", ""])


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
    where = ", ".join([f"data {choice.size_class.replace('_', ' ')}", *main.conditions])
    lines = [f"{kernel} on {target['device_name']}, {where}.", _claim(choice)]
    row = main.ok.get(choice.point)
    if row is not None:
        lines.append(
            f"At {main.problem}: {bare_interval(row)} GB/s; {len(main.tied)} of {len(main.ok)} "
            "launches are statistically tied with the fastest."
        )
    for margin in choice.margins:
        launch = ", ".join(f"{axis}={value}" for axis, value in margin.launch)
        tied = "" if margin.low > 0 or margin.high < 0 else "; they are statistically tied"
        lines.append(
            f"{margin.than[0].upper()}{margin.than[1:]} ({launch}) takes {percent(margin.slower)} "
            f"longer ({percent(margin.low)} to {percent(margin.high)}, "
            f"{percent(margin.confidence)} sure{tied})."
        )
    for group in choice.not_tied[:_NAMED]:
        lost = group.contest.slower(choice.point)
        lines.append(
            f"It was not measured at {group.problem}."
            if lost is None
            else f"At {group.problem} it takes {percent(lost)} longer than the fastest."
        )
    if len(choice.not_tied) > _NAMED:
        lines.append(f"So it is at {len(choice.not_tied) - _NAMED} more.")
    return lines


def _claim(choice: Choice) -> str:
    where = ", ".join(group.problem for group in choice.tied[:_NAMED])
    if len(choice.tied) > _NAMED:
        where += f" and {len(choice.tied) - _NAMED} more"
    if choice.everywhere and len(choice.tied) > 1:
        return f"As fast as the fastest at all problems measured, as far as can be told: {where}."
    return f"As fast as the fastest, as far as can be told, at {where}."
