"""Read the axes of a kernel that `tune` measures. Values that are not integers become indices."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.errors import ConfigError
from ..core.keys import Range
from ..core.numbers import plain, whole
from ..core.schema import TAKEN, axis_fault
from ..core.space import BLOCK_AXES, TYPICAL, expand_axis
from ..planning.refusal import of_a_call, read_section
from ..workloads.call import CLUSTER_AXES, LAUNCH_AXES, Call, compiled
from .tune_arguments import shown
from .tune_source import KernelSource, Parameter, words_of

if TYPE_CHECKING:
    import pandas as pd

# Largest number of a column of cells.
_MAX_VALUE = 2**63 - 1
# Axes that count threads, blocks or bytes of a launch: whole numbers, and the least of each.
_MIN_VALUES = {
    axis: int(axis in BLOCK_AXES or axis in CLUSTER_AXES) for axis in (*BLOCK_AXES, *LAUNCH_AXES)
}


def placed_axes(
    axes: Mapping[str, Any], of_size: Collection[str]
) -> tuple[dict[str, list[int]], dict[str, tuple[Any, ...]]]:
    """Return the values of all axes as integers, and the labels of axes that are swept by index.

    Parameters
    ----------
    axes
        Values by axis, as the caller gave them.
    of_size
        Names of the problem size in expressions, which no axis may have.

    Returns
    -------
    tuple
        Integers by axis, and for each axis with other values these values, in the order of the
        indices.

    Raises
    ------
    ConfigError
        If an axis has a name or a value that is not allowed.
    """
    if not isinstance(axes, Mapping):
        raise ConfigError(f"axes: they are {shown(axes)}; give a mapping of names to values.")
    fault = axis_fault(axes)
    if fault is not None:
        taken = next((a for a in axes if isinstance(a, str) and a.lower() in TAKEN), None)
        hint = f", such as to '{taken}_'" if taken else ""
        raise ConfigError(f"axes: {fault}{hint}.")
    placed, labels = {}, {}
    for axis, given in axes.items():
        if axis in of_size:
            raise ConfigError(
                f"axes: expressions know the problem's size as '{axis}'; rename the axis, such as "
                f"to '{axis}_'."
            )
        values = _values(axis, given)
        if axis in _MIN_VALUES:
            values = [_of_a_launch(axis, value) for value in values]
        if all(isinstance(v, int) and 0 <= v <= _MAX_VALUE for v in values):
            placed[axis] = values
        else:
            placed[axis], labels[axis] = list(range(len(values))), tuple(values)
    return placed, labels


def _values(axis: str, given: Any) -> list[Any]:
    """Return the different values of an axis, where 1, 1.0 and True count as different."""
    if isinstance(given, set | frozenset):
        parts: list[Any] = sorted(given, key=_in_order)
    elif isinstance(given, Iterable) and not isinstance(given, str | bytes | Mapping):
        parts = list(given)
    else:
        parts = [given]
    if isinstance(given, np.ndarray) and given.dtype.kind == "f":
        # Such as of np.linspace, where nobody wrote a point.
        found = [whole(v) for v in given.reshape(-1)]
        parts = parts if None in found else list(found)
    values = [value for part in parts for value in _expanded(axis, part)]
    if not values:
        raise ConfigError(f"axes: '{axis}' has no values.")
    return list({(type(value), value): value for value in values}.values())


def _in_order(value: Any) -> tuple[float, str]:
    is_number = isinstance(value, int | float | np.number)
    return (float(value), "") if is_number else (math.inf, str(value))


def _expanded(axis: str, part: Any) -> list[Any]:
    """Return the values of a part of an axis, which is a range or one value."""
    if isinstance(part, Mapping):
        spec: dict[str, Any] = {
            name: plain(n) if whole(n) is None else whole(n) for name, n in part.items()
        }
        if "to_resident" in spec:
            raise ConfigError(f"axes: '{axis}' asks the device by to_resident; list its values.")
        with of_a_call():
            read_section(Range, spec, f"axes.{axis}.")
        if spec["from"] > spec["to"]:
            said = f"the range from {spec['from']} to {spec['to']} is empty"
            raise ConfigError(f"axes: '{axis}': {said}; 'to' must be at least 'from'.")
        return list(expand_axis(spec, TYPICAL))
    value = plain(part)
    if value is not None and not isinstance(value, int | float | str):
        raise ConfigError(
            f"axes: '{axis}' holds {shown(part)}; a value must be a number or a text."
        )
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"axes: '{axis}' holds {value}; a number must be finite.")
    return [value]


def _of_a_launch(axis: str, value: Any) -> int:
    number = whole(value)
    if number is None or not _MIN_VALUES[axis] <= number <= _MAX_VALUE:
        raise ConfigError(
            f"axes: '{axis}' holds {value!r}; it must be a whole number, at least "
            f"{_MIN_VALUES[axis]}."
        )
    return number


def defined_axes(
    source: KernelSource, axes: Collection[str], texts: Iterable[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the axes that the kernel is compiled for, and those of them that are macros.

    Parameters
    ----------
    source
        The kernel's source.
    axes
        Names of the axes.
    texts
        Texts that are compiled with the source: the name with template arguments, values of axes,
        options.

    Returns
    -------
    tuple
        Both as tuples of names. An axis that is a template parameter is not a macro, because its
        value is put into the name of the instance.
    """
    if source.is_code:
        return (), ()
    if source.constants is not None:
        known = tuple(sorted(source.constants.intersection(axes)))
        return known, known
    named = {word for text in texts for word in words_of(text)}
    templated = source.template_parameters
    compiled_for = [
        axis
        for axis in sorted(axes)
        if axis in named or (axis in source.words and axis not in templated)
    ]
    return tuple(compiled_for), tuple(a for a in compiled_for if a not in templated)


def refuse_parameters(macros: Collection[str], parameters: Mapping[str, Parameter]) -> None:
    """Raise ConfigError if a macro has the name of a kernel parameter, which it would replace.

    Parameters
    ----------
    macros
        Names of axes that are macros.
    parameters
        Parameters of the kernel.
    """
    for parameter in parameters.values():
        if parameter.name in macros:
            raise ConfigError(
                f"axes: '{parameter.name}' is a parameter of the kernel ('{parameter}'), which a "
                "macro of this name would replace; rename the axis."
            )


def with_unseen(call: Call, axes: Mapping[str, Any], source: KernelSource) -> Call:
    """Return the call, in which an axis that only an unknown header can use becomes a macro.

    Parameters
    ----------
    call
        The call.
    axes
        Integers by axis.
    source
        The kernel's source.

    Raises
    ------
    ConfigError
        If nothing can use an axis, because all of its values would be the same launch.
    """
    used = {*call.defined, *LAUNCH_AXES, *(BLOCK_AXES if call.block is None else ())}
    first = call.values({axis: call.labels.get(axis, at)[0] for axis, at in axes.items()})
    for _, one in call.expressions:
        used |= _names_in(one, first)
    unused = [axis for axis in axes if axis not in used]
    if unused and source.may_use(call.options):
        return replace(call, defined=(*call.defined, *unused))
    for axis in unused:
        near = difflib.get_close_matches(axis, source.words - {axis}, n=1, cutoff=0.8)
        hint = f" Did you mean '{near[0]}'?" if near else ""
        raise ConfigError(
            f"axes: nothing uses '{axis}', neither the source nor block, grid, valid, shared, work "
            f"or bytes_moved; use it, or leave it out.{hint}"
        )
    return call


def _names_in(expression: Any, values: Mapping[str, Any]) -> set[str]:
    """Return the names that an expression uses. For a function, those that it may use."""
    if isinstance(expression, str):
        return set(compiled(expression).co_names) | _inner_names(compiled(expression))
    if not callable(expression):
        return set()
    if not isinstance(expression, FunctionType) or _calls_others(expression):
        return set(values)
    seen = _Seen(values)
    try:
        expression(seen)
    except Exception:  # which its cells will show
        return set(values)
    return seen.names | _constants(expression.__code__)


class _Seen(dict[str, Any]):
    """Dictionary that records which of its values are read."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        super().__init__(values)
        self.names = set[str]()

    def __getitem__(self, name: str) -> Any:
        self.names.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.names.add(name)
        return super().get(name, default)

    def __iter__(self) -> Iterator[str]:
        self.names.update(super().keys())
        return super().__iter__()

    def keys(self) -> Any:
        self.names.update(super().keys())
        return super().keys()

    def values(self) -> Any:
        self.names.update(super().keys())
        return super().values()

    def items(self) -> Any:
        self.names.update(super().keys())
        return super().items()


def _calls_others(function: Callable[..., Any]) -> bool:
    """Return whether a function may pass its values to another Python function."""
    code, known = function.__code__, function.__globals__
    free = [cell.cell_contents for cell in function.__closure__ or ()]
    named = [known[name] for name in _inner_names(code) | {*code.co_names} if name in known]
    return any(isinstance(one, FunctionType | type) for one in [*free, *named])


def _inner_names(code: CodeType) -> set[str]:
    inner = [one for one in code.co_consts if isinstance(one, CodeType)]
    return {name for one in inner for name in {*one.co_names} | _inner_names(one)}


def _constants(code: CodeType) -> set[str]:
    """Return the strings in a function's code, which may be names of values."""
    found = {one for one in code.co_consts if isinstance(one, str)}
    inner = [one for one in code.co_consts if isinstance(one, CodeType)]
    return found.union(*map(_constants, inner))


def labelled(frame: pd.DataFrame, labels: Mapping[str, Sequence[Any]]) -> pd.DataFrame:
    """Return a table in which the columns of axes contain labels instead of indices.

    Parameters
    ----------
    frame
        The table.
    labels
        Values by axis, in the order of the indices.
    """
    import pandas as pd

    def column(axis: str) -> pd.Series[Any]:
        values = [labels[axis][place] for place in frame[axis]]
        # Values of several types keep their types: 1 beside 1.0 or None.
        alike = len({*map(type, labels[axis])}) == 1 and None not in labels[axis]
        return pd.Series(values, frame.index, None if alike and values else object)

    return frame.assign(**{axis: column(axis) for axis in labels if axis in frame})
