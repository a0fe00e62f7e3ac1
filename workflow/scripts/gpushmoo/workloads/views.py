"""Define the figures of a kernel's cells: instances of `View` in ``views`` of ``workload.py``.

A kernel folder may define subclasses with a different title, axes and caption.
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

# Headings under which the report places the figures of the library's views.
CACHES = "Measured peak and caches"
BLOCK_SHAPE = "Block shape"
ONE_PARAMETER = "Bandwidth over one parameter"
# Inputs of a view besides the measured peak, and axes that may have a figure for each value.
NEEDS = frozenset({"cells", "device"})
EACH = frozenset({"dtype", "size", "cache_state"})

# With fewer sizes, a table shows as much as a figure of bandwidth over the bytes touched.
MIN_SIZES = 4


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
    """Data of one figure. Tables that the view does not need are empty.

    Attributes
    ----------
    cells
        One row for each cell: its axes, ``variant``, ``dtype``, ``status``, ``bandwidth_gbs`` in
        GB/s with the ends ``bandwidth_low_gbs`` and ``bandwidth_high_gbs`` of its 95 % interval,
        and the other columns of the data set.
    peak, work_peaks
        Measured peaks of the device's loads and stores, and of its work.
    device
        Table of the device's model, if there is one.
    controls
        Variants that never win.
    named
        Columns whose values a title should name.
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
    """Kind of figure of one kernel's cells.

    A sweep has one figure for each value of `each` (of ``dtype``, ``size``, ``cache_state``), or
    one for the whole sweep with (). Without ``size`` the largest size is drawn, and without
    ``cache_state`` the first state. `needs` are of ``cells`` and ``device``. A subclass defines
    `draw`, or sets `drawing` to a function of the same arguments, as ``module:function``.
    """

    # Prefix of the names of its files.
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
        """Name that is unique among the views of a kernel."""
        return "-".join(filter(None, (self.kind, self.label())))

    def label(self) -> str:
        """Return a name unique among views of one kind: letters, digits, ``_``, ``-``.

        By default it is the name of the class.
        """
        return type(self).__name__.lower()

    def section(self) -> str:
        """Return the heading in the report above the figures."""
        return "Further figures"

    def shown(self, swept: Swept) -> bool:
        """Return whether a figure of this sweep has something to show."""
        return True

    def shown_axes(self) -> Sequence[str]:
        """Return the kernel's axes that the figure shows."""
        return ()

    def draw(self, data: FigureData, svg: Path) -> None:
        """Draw the figure and save it by ``gpushmoo.figures.style.save``.

        `save` takes the title, the caption and an optional ``finding``: a sentence for the report's
        first page, which has room for five. Its ``worth`` is the share of the time that a reader
        may lose without it, by default 1. An error affects this figure only.

        Parameters
        ----------
        data
            Cells and peaks to draw.
        svg
            File to write.
        """
        module, _, function = self.drawing.partition(":")
        getattr(import_module(module), function)(self, data, svg)


@dataclass(frozen=True)
class HeatMap(View):
    """Bandwidth over two axes, one panel for each type, of its fastest variant.

    If the device has a model, a second map for each panel shows the limits of the launches.
    `x_unit` and `y_unit` are plural units of the axes. Axes of a block count threads.
    """

    x: str
    y: str
    x_unit: str | None = None
    y_unit: str | None = None

    kind = "heatmap"
    needs = ("cells", "device")
    drawing = "gpushmoo.figures.heatmap:draw"

    def label(self) -> str:
        """Return both axes joined by a hyphen, as in ``block_x-block_y``."""
        return f"{self.x}-{self.y}"

    def shown_axes(self) -> Sequence[str]:
        """Return the axes of both sides."""
        return self.x, self.y

    def section(self) -> str:
        """Return the heading of block shapes, or that of two parameters for other axes."""
        return BLOCK_SHAPE if self.is_block_shape() else "Bandwidth over two parameters"

    def is_block_shape(self) -> bool:
        """Return whether the axes are two sides of a block."""
        return {self.x, self.y} <= set(BLOCK_AXES)

    def units(self) -> tuple[str | None, str | None]:
        """Return the units of `x` and `y`, in the plural; None if unknown."""
        named = ((self.x, self.x_unit), (self.y, self.y_unit))
        x, y = (unit or ("threads" if axis in BLOCK_AXES else None) for axis, unit in named)
        return x, y


@dataclass(frozen=True)
class Curve(View):
    """Bandwidth over one axis, one line for each type, with the device's model if there is one.

    `unit` is the plural unit of the axis.
    """

    x: str
    unit: str

    kind = "curve"
    needs = ("cells", "device")
    drawing = "gpushmoo.figures.curve:draw_curve"

    def label(self) -> str:
        """Return the name of the axis, as in ``num_partition``."""
        return self.x

    def shown_axes(self) -> Sequence[str]:
        """Return the one axis of the curve."""
        return (self.x,)

    def section(self) -> str:
        """Return the heading of all curves over one launch parameter."""
        return ONE_PARAMETER


@dataclass(frozen=True)
class WorkingSet(View):
    """Bandwidth of the best launch over the bytes touched, warm and flushed, for all sizes."""

    kind = "workingset"
    each = ()
    drawing = "gpushmoo.figures.curve:draw_working_set"

    def label(self) -> str:
        """Return an empty text, because a kernel has at most one figure of this kind to name."""
        return ""

    def section(self) -> str:
        """Return the heading of figures on measured peaks and caches."""
        return CACHES

    def shown(self, swept: Swept) -> bool:
        """Return whether there are enough sizes for a curve."""
        return len(swept.problems) >= MIN_SIZES


@dataclass(frozen=True)
class Roofline(View):
    """Rate of work over work per byte, below the measured peaks of bytes and work.

    The kernel must declare both. The run's kernels `global_load` and `global_store` determine the
    slope of the roof, and `issue` its flat part.
    """

    kind = "roofline"
    drawing = "gpushmoo.figures.curve:draw_roofline"

    def label(self) -> str:
        """Return an empty text, because a kernel has at most one figure of this kind to name."""
        return ""

    def section(self) -> str:
        """Return the heading of all rooflines."""
        return "Rooflines"


# Files with other prefixes may belong to another rule.
KINDS = frozenset(view.kind for view in (View, HeatMap, Curve, WorkingSet, Roofline))


def view_fault(views: Any, axes: Collection[str]) -> str | None:
    """Return the fault of the views of a kernel with these axes, as a clause, or None."""
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
                return (
                    f"view '{view.name}' shows '{axis}', but the kernel has only the axes {there}"
                )
    return None
