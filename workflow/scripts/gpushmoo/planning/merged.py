"""A configuration put together from the parts in which it was given: what counts of each."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

# A part of the configuration that was given, and the folder that its relative paths refer to.
Part = tuple[Mapping[str, Any], Path]


def last_said(parts: Sequence[Part], key: str) -> tuple[Any, Path]:
    """The last word on `key`, and the folder of what said it; None where nothing did."""
    said = ((part[key], folder) for part, folder in reversed(parts) if key in part)
    return next(said, (None, Path()))


def located(said: Any, folder: Path, merged: Any) -> Any:
    """The folders that were said, from `folder` on; what is no list of texts stays as `merged`."""
    if not isinstance(said, list) or not all(isinstance(name, str) for name in said):
        return merged
    return [os.path.join(folder, name) for name in said]


def with_whole_axes(merged: dict[str, Any], given: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The configuration with every axis as the last of the `given` ones says it.

    Merged key by key, a range would keep the step of the one that it is to replace.
    """
    axes = {
        (sweep, axis): spec
        for config in given
        for sweep, asked in _mapping(config.get("kernels")).items()
        for axis, spec in _mapping(_mapping(asked).get("axes")).items()
    }
    whole = copy.deepcopy(merged)
    for (sweep, axis), spec in axes.items():
        if axis in _mapping(_mapping(_mapping(whole["kernels"]).get(sweep)).get("axes")):
            whole["kernels"][sweep]["axes"][axis] = spec
    return whole


def _mapping(value: Any) -> Mapping[Any, Any]:
    """`value`, or an empty mapping in its place where it is something else."""
    return value if isinstance(value, Mapping) else {}
