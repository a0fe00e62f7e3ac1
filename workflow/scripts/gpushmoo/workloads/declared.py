"""Whether what a workload declares beside its methods can be meant so.

All of it is looked at when the kernel's folder is loaded: Python takes ``("plain")`` for a text and
a text for several letters, and what comes of that would be told in words of the library.
"""

from __future__ import annotations

import reprlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypeGuard

from ..core.dtypes import DTYPES
from ..core.errors import WorkloadError
from ..core.schema import axis_fault
from ..core.space import CACHE_STATES
from ..core.text import one_line
from .contract import Curve, HeatMap, Workload
from .views import view_fault

_NEEDED = ("name", "title", "pattern", "dtypes", "variants", "axes")
_FILLED = frozenset({"dtypes", "variants", "sizes", "cache_states"})


def declared_fault(workload: Workload) -> str | None:
    """What is wrong with a workload's attributes, as a clause after ``its``; None where nothing is.

    It names the attribute, what it holds and what is allowed.
    """
    missing = next((name for name in _NEEDED if not hasattr(workload, name)), None)
    if missing is not None:
        return f"WORKLOAD does not define '{missing}'"
    if not isinstance(workload.axes, Mapping):
        return f"axes are {_show(workload.axes)}; give each its values, as {{'block_x': [8, 16]}}"
    checks = (_names_fault, _axes_fault, _sizes_fault, _views_fault)
    return next(filter(None, (check(workload) for check in checks)), None)


def _axes_fault(workload: Workload) -> str | None:
    least = {axis: 0 if axis in workload.zero_axes else 1 for axis in workload.axes}
    faults = (_values_fault(axis, spec, least[axis]) for axis, spec in workload.axes.items())
    return axis_fault(workload.axes) or next(filter(None, faults), None)


def _values_fault(axis: str, spec: Any, least: int) -> str | None:
    parts = spec if isinstance(spec, list) else [spec]
    if not parts:
        return f"axis '{axis}' has no values"
    for part in parts:
        if _asks_the_device(part):
            continue
        values: dict[str, Any] = part if isinstance(part, dict) else {"from": part, "to": part}
        first, last, step = values.get("from"), values.get("to"), values.get("step", 1)
        known = {*values} <= {"from", "to", "step"}
        if not (known and _is_whole(first) and _is_whole(last) and _is_whole(step)):
            return (
                f"axis '{axis}' holds {_show(part)}; write whole numbers as [8, 16], a range as "
                "{'from': 8, 'to': 64, 'step': 8}, or {'to_resident': 2.0, 'points': 40}"
            )
        if first < least or last < first or step < 1:
            return f"axis '{axis}' holds {_show(part)}; a value must be at least {least}" + (
                ", 'to' at least 'from', and 'step' at least 1" if values is part else ""
            )
    return None


def _asks_the_device(part: Any) -> bool:
    if not isinstance(part, Mapping) or {*part} != {"to_resident", "points"}:
        return False
    waves, points = part["to_resident"], part["points"]
    return isinstance(waves, int | float) and 0 < waves <= 16 and _is_whole(points) and points > 0


def _is_whole(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _show(value: Any) -> str:
    return one_line(reprlib.repr(value), 80)


def _names_fault(workload: Workload) -> str | None:
    """What is wrong with the attributes that hold names."""
    axes, variants = workload.axes, workload.variants
    known: dict[str, Collection[str] | None] = {
        "dtypes": DTYPES,
        **dict.fromkeys(("variants", "images")),
        **dict.fromkeys(("default_variants", "controls", "mappings"), variants),
        "cache_states": CACHE_STATES,
        **dict.fromkeys(("compile_axes", "zero_axes", "most"), axes),
    }
    for name, allowed in known.items():
        values = getattr(workload, name)
        fault = _several(name, values) or _unknown(f"{name} name", values, allowed)
        if fault is not None:
            return fault
    for name, allowed in (("persistent_axis", axes), ("ceiling", ("load", "store"))):
        value = getattr(workload, name)
        if value is not None and value not in [*allowed]:
            return _unknown(f"{name} is", [value], allowed)
    return None


def _several(name: str, values: Any) -> str | None:
    """What is wrong with `values` as several of something."""
    if isinstance(values, str | int | float):
        shown = _show(values)
        return f"{name} are {shown}, a single value; write ({shown},), with the comma"
    if not isinstance(values, Sequence | Mapping | frozenset | set):
        return f"{name} are {_show(values)}, not several values; write them as (…, …)"
    if not values and name in _FILLED:
        return f"{name} are empty; at least one is needed"
    return None


def _unknown(what: str, values: Iterable[Any], allowed: Collection[str] | None) -> str | None:
    seen = set()
    for value in values:
        if not isinstance(value, str) or (allowed is not None and value not in allowed):
            names = "texts" if allowed is None else ", ".join(allowed)
            return f"{what} {_show(value)}; allowed: {names}"
        if value in seen:
            return f"{what} '{value}' twice"
        seen.add(value)
    return None


def _sizes_fault(workload: Workload) -> str | None:
    fault = _several("sizes", workload.sizes)
    for size in () if fault else workload.sizes:
        sides = size if isinstance(size, list | tuple) and len(size) == 2 else [size]
        if not all(map(_is_whole, sides)):
            return f"sizes hold {_show(size)}; a size is a whole number, or (height, width)"
    return fault


def _views_fault(workload: Workload) -> str | None:
    try:
        fault = view_fault(workload.views)
    except WorkloadError as err:
        return f"views cannot be used: {err}"
    if fault is not None:
        return fault
    for view in workload.views:
        shown = (view.x, view.y) if isinstance(view, HeatMap) else ()
        for axis in (view.x,) if isinstance(view, Curve) else shown:
            if axis not in workload.axes:
                there = ", ".join(workload.axes)
                return f"view '{view.name}' shows '{axis}', which is none of its axes: {there}"
    return None
