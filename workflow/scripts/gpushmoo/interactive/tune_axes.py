"""The axes of a kernel that `tune` measures: whole numbers, others by their places."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.schema import axis_fault
from ..core.space import TYPICAL, expand_axis
from ..planning.config_schema import ConfigError
from .tune_source import WORD

if TYPE_CHECKING:
    import pandas as pd


def placed_axes(axes: Mapping[str, Any]) -> tuple[dict[str, list[int]], dict[str, tuple[Any, ...]]]:
    """Axes as whole numbers, and the values of those that are swept by their places."""
    fault = axis_fault(axes)
    if fault is not None:
        raise ConfigError(f"axes: {fault}.")
    placed, labels = {}, {}
    for axis, given in axes.items():
        one = isinstance(given, str) or not isinstance(given, Sequence | np.ndarray)
        parts = [given] if one else given
        every = (expand_axis(p, TYPICAL) if isinstance(p, Mapping) else [plain(p)] for p in parts)
        values = list(dict.fromkeys(value for part in every for value in part))
        if not values:
            raise ConfigError(f"axes: '{axis}' has no values.")
        if all(isinstance(v, int) and v >= 0 for v in values):
            placed[axis] = values
        else:
            placed[axis], labels[axis] = list(range(len(values))), tuple(values)
    return placed, labels


def plain(value: Any) -> Any:
    """Python's own number for NumPy's, and a whole one for a fraction that is whole."""
    plain = value.item() if isinstance(value, np.generic) else value
    if isinstance(plain, float) and plain.is_integer() and not isinstance(value, float):
        return int(plain)
    return int(plain) if isinstance(plain, bool) else plain


def defined_axes(text: str, named: str, axes: Mapping[str, Any]) -> tuple[str, ...]:
    """The axes that the source has as a word, or a template's instance or an axis's value does."""
    words = {*re.findall(WORD, f"{text} {named}")}
    return tuple(sorted(axis for axis in axes if axis in words))


def labelled(frame: pd.DataFrame, labels: Mapping[str, Sequence[Any]]) -> pd.DataFrame:
    """A table with the values of axes for their places."""
    return frame.assign(
        **{x: frame[x].map(dict(enumerate(v))) for x, v in labels.items() if x in frame}
    )
