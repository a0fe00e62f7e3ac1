"""What the target ``compare`` is asked to hold against each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..storage.packed import unpacked
from .config_schema import ConfigError


@dataclass(frozen=True)
class ComparedRuns:
    """Folders of runs before (`a`) and after (`b`), and of the `same` thing.

    `delta` is the change that does not matter, a share of the time; with `guard` a slower group is
    an error.
    """

    a: tuple[str, ...]
    b: tuple[str, ...]
    same: tuple[str, ...]
    delta: float
    guard: bool


def read_compared(raw: Mapping[str, Any]) -> ComparedRuns | None:
    """What before, after, same, delta and guard say; None where nothing is compared: ConfigError.

    Relative folders begin at the working directory.
    """
    sides = [_several(raw[side]) for side in ("before", "after")]
    if not any(sides):
        return None
    for side, other, folders in (("before", "after", sides[0]), ("after", "before", sides[1])):
        if not folders:
            raise ConfigError(f"{side}: null, and {other} is not; compare needs both.")
    if len(sides[0]) != len(sides[1]):
        raise ConfigError(
            f"before, after: {len(sides[0])} folders and {len(sides[1])}; they are compared in "
            "pairs."
        )
    if len(raw["same"]) == 1:
        raise ConfigError("same: one run does not tell how far runs lie apart; name two or more.")
    for key, folders in (("before", sides[0]), ("after", sides[1]), ("same", raw["same"])):
        for folder in folders:
            if not unpacked(Path(folder)).is_dir():
                raise ConfigError(f"{key}: '{folder}' is not the folder of a run or of shards.")
    return ComparedRuns(sides[0], sides[1], tuple(raw["same"]), raw["delta"], raw["guard"])


def _several(value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else tuple(value)
