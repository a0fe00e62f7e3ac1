"""The figures of a kernel's cells: instances of `View` in the ``views`` of its ``workload.py``.

A kernel folder may define subclasses with a title, axes and a caption of their own.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.space import BLOCK_AXES, Size
from .user_code import guard_methods, instance_fault

if TYPE_CHECKING:
    import pandas as pd

# Headings under which the report always places the figures of the library's views.
CACHES = "Measured peak and caches"
BLOCK_SHAPE = "Block shape"
ONE_PARAMETER = "Bandwidth over one parameter"
# The inputs of a view besides the measured peak, and the axes with a figure for each value.
NEEDS = frozenset({"cells", "device"})
EACH = frozenset({"dtype", "size", "cache_state"})

# With fewer sizes a table shows as much as a figure of bandwidth over the bytes touched.
FEWEST_SIZES = 4


@dataclass(frozen=True)
class Swept:
    """The axes of a sweep, and its `backend`. Sizes may depend on the device."""

    backend: str
    dtypes: tuple[str, ...]
    variants: tuple[str, ...]
    problems: tuple[Size, ...]
    cache_states: tuple[str, ...]


@dataclass(frozen=True)
class FigureData:
    """The data of one figure. Tables that the view does not need are empty.

    `cells` has one row for each cell: its axes, ``variant``, ``dtype``, ``status``,
    ``bandwidth_gbs`` with the bounds of its 95 % interval ``bandwidth_low_gbs`` and
    ``bandwidth_high_gbs``, and the other columns of the data set. `peak` is the device's largest
    bandwidth of loads and stores, `work_peaks` its rates of work, `device` the table of its model,
    if there is one. `controls` are variants that compete for no place. A title should name the
    values of the `named` columns.
    """

    kernel: str
    dtypes: tuple[str, ...]
    controls: tuple[str, ...]
    named: tuple[str, ...]
    cells: pd.DataFrame
    peak: Sequence[Any]
    device: pd.DataFrame | None = None
    work_peaks: Sequence[Any] = ()


class View:
    """A kind of figure of one kernel's cells.

    A sweep has one figure for each value of `each` (of ``dtype``, ``size``, ``cache_state``; with
    () one for the whole sweep). Without ``size`` the largest size is drawn, without ``cache_state``
    the first state. `needs` are of ``cells`` and ``device``. A subclass defines `draw`, or names in
    `drawing` a function of the same arguments as ``module:function``.
    """

    # The beginning of its files' names.
    kind = "view"
    each: Sequence[str] = ("size", "cache_state")
    needs: Sequence[str] = ("cells",)
    drawing = ""

    def __init_subclass__(cls) -> None:
        """Guard the methods of a subclass."""
        checks = {"shown": instance_fault(bool), "label": instance_fault(str)}
        guard_methods(cls, View, {**checks, "section": instance_fault(str)})

    @property
    def name(self) -> str:
        """Unique among the views of a kernel."""
        return "-".join(filter(None, (self.kind, self.label())))

    def label(self) -> str:
        """Unique among views of one kind: letters, digits, ``_``, ``-``; by default the class."""
        return type(self).__name__.lower()

    def section(self) -> str:
        """The heading in the report under which the figures stand."""
        return "Further figures"

    def shown(self, swept: Swept) -> bool:
        """Whether a figure of this sweep has something to show."""
        return True

    def shown_axes(self) -> Sequence[str]:
        """The kernel's axes that it shows."""
        return ()

    def draw(self, data: FigureData, svg: Path) -> None:
        """Draw the figure and save it by ``gpushmoo.figures.style.save``.

        `save` takes the title, the caption and an optional ``finding``: a sentence for the report's
        first page, which holds five. Its ``worth`` is the share of the time that a reader may lose
        without it, by default 1. An error costs this figure alone.
        """
        module, _, function = self.drawing.partition(":")
        getattr(import_module(module), function)(self, data, svg)


@dataclass(frozen=True)
class HeatMap(View):
    """Bandwidth over two axes, one panel for each dtype, of its fastest variant.

    With a model of the device, as many maps of the limits of the launches follow. `x_unit` and
    `y_unit` are the plural of what the axes count; axes of a block count threads.
    """

    x: str
    y: str
    x_unit: str | None = None
    y_unit: str | None = None

    kind = "heatmap"
    needs = ("cells", "device")
    drawing = "gpushmoo.figures.heatmap:draw"

    def label(self) -> str:
        """Both axes joined by a hyphen, as in ``block_x-block_y``."""
        return f"{self.x}-{self.y}"

    def shown_axes(self) -> Sequence[str]:
        """Return the axes of both sides."""
        return self.x, self.y

    def section(self) -> str:
        """The heading of block shapes, or that of two parameters where the axes are others."""
        return BLOCK_SHAPE if self.is_block_shape() else "Bandwidth over two parameters"

    def is_block_shape(self) -> bool:
        """Whether the axes are two sides of a block."""
        return {self.x, self.y} <= set(BLOCK_AXES)

    def units(self) -> tuple[str | None, str | None]:
        """The units of `x` and `y`, in the plural; None if unknown."""
        named = ((self.x, self.x_unit), (self.y, self.y_unit))
        x, y = (unit or ("threads" if axis in BLOCK_AXES else None) for axis, unit in named)
        return x, y


@dataclass(frozen=True)
class Curve(View):
    """Bandwidth over one axis, one line for each dtype, with the device's model if there is one.

    `unit` is the plural of what the axis counts.
    """

    x: str
    unit: str

    kind = "curve"
    needs = ("cells", "device")
    drawing = "gpushmoo.figures.curve:draw_curve"

    def label(self) -> str:
        """The name of the axis, as in ``num_partition``."""
        return self.x

    def shown_axes(self) -> Sequence[str]:
        """Return the one axis of the curve."""
        return (self.x,)

    def section(self) -> str:
        """The heading of all curves over one launch parameter."""
        return ONE_PARAMETER


@dataclass(frozen=True)
class WorkingSet(View):
    """Bandwidth of the best launch over the bytes touched, warm and flushed, of all sizes."""

    kind = "workingset"
    each = ()
    drawing = "gpushmoo.figures.curve:draw_working_set"

    def label(self) -> str:
        """Empty: a kernel has at most one view of this kind."""
        return ""

    def section(self) -> str:
        """The heading of figures on measured peaks and caches."""
        return CACHES

    def shown(self, swept: Swept) -> bool:
        """Whether there are sizes enough for a curve."""
        return len(swept.problems) >= FEWEST_SIZES


@dataclass(frozen=True)
class Roofline(View):
    """Rate of work over work a byte, with what the measured peaks of bytes and work allow.

    Of a kernel that tells both. The run's kernels `global_load` and `global_store` are the slope of
    the roof, `issue` is its flat part.
    """

    kind = "roofline"
    drawing = "gpushmoo.figures.curve:draw_roofline"

    def label(self) -> str:
        """Empty: a kernel has at most one view of this kind."""
        return ""

    def section(self) -> str:
        """The heading of all rooflines."""
        return "Rooflines"


# Files whose names begin otherwise may belong to another rule.
KINDS = frozenset(view.kind for view in (View, HeatMap, Curve, WorkingSet, Roofline))


def view_fault(views: Any, axes: Collection[str]) -> str | None:
    """The fault of the views of a kernel with these axes, as a clause; None without one."""
    if not isinstance(views, Sequence):
        return f"views are {views!r}, not several; write (view,) for a single one"
    names = set()
    for view in views:
        if not isinstance(view, View):
            return f"view {view!r} is not an instance of View"
        chosen = (("kind", (view.kind,), KINDS), ("each", view.each, EACH))
        for what, given, allowed in (*chosen, ("needs", view.needs, NEEDS)):
            for word in given:
                if word not in allowed:
                    names_allowed = ", ".join(sorted(allowed))
                    return f"view '{view.name}' has {word!r} in '{what}'; allowed: {names_allowed}"
        if not re.fullmatch("[A-Za-z0-9_-]+", view.name):
            return f"view '{view.name}' must be called by letters, digits, '_' and '-'"
        if view.name in names:
            return f"views are both called '{view.name}'; give one of them another label"
        names.add(view.name)
        view.section()
        for axis in view.shown_axes():
            if axis not in axes:
                there = ", ".join(axes)
                return f"view '{view.name}' shows '{axis}', which is none of its axes: {there}"
    return None
