"""Which figures of measured cells a sweep has, and what each shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .config import ConfigError, SweepConfig
from .space import Problem
from .workload import Footprint, HeatMap, View, WorkingSet

# Of fewer sizes a figure of bandwidth over the bytes touched shows nothing that a table does not.
FEWEST_SIZES = 4
# More than a report could be looked through.
MOST_FIGURES = 5_000


@dataclass(frozen=True)
class FigureSpec:
    """A figure of measured cells: its name and what it shows.

    `problem` and `cache_state` are None where it shows all that the kernel was swept over; `dtypes`
    are in the order of the configuration.
    """

    name: str
    kernel: str
    view: View
    dtypes: tuple[str, ...]
    problem: Problem | None = None
    cache_state: str | None = None

    @property
    def where(self) -> dict[str, Any]:
        """Column and value of what is shown, for dataset.matching."""
        found: dict[str, Any] = {"kernel": self.kernel}
        if self.problem is not None:
            found |= {"height": self.problem.height, "width": self.problem.width}
        if isinstance(self.view, Footprint):
            found["dtype"] = self.dtypes[0]
        return found | ({"cache_state": self.cache_state} if self.cache_state else {})


def refuse_many_figures(sweeps: Mapping[str, SweepConfig]) -> None:
    """Raise ConfigError where the sweeps would have more than MOST_FIGURES."""
    left = MOST_FIGURES
    for name, sweep in sweeps.items():
        for view in sweep.folder.workload.views:
            left -= len(figures_of(sweep, view))
        if left < 0:
            raise ConfigError(
                f"kernels.{name}.sizes: with its {len(sweep.problems)} sizes the report would have "
                f"more than {MOST_FIGURES} figures; sweep fewer sizes."
            )


def figures_of(sweep: SweepConfig, view: View) -> list[FigureSpec]:
    """The figures of one view of a sweep; none where it would show nothing."""
    name = sweep.folder.name
    if isinstance(view, WorkingSet):
        if len(sweep.problems) < FEWEST_SIZES:
            return []
        return [FigureSpec(f"workingset-{name}", name, view, sweep.dtypes)]
    if isinstance(view, Footprint):
        return _footprints(sweep, view)
    axes = f"{view.x}-{view.y}" if isinstance(view, HeatMap) else view.x
    kind = "heatmap" if isinstance(view, HeatMap) else "curve"
    return [
        FigureSpec(
            f"{kind}-{name}-{axes}-{problem.label}-{state}",
            name,
            view,
            sweep.dtypes,
            problem,
            state,
        )
        for problem in sweep.problems
        for state in sweep.cache_states
    ]


def _footprints(sweep: SweepConfig, view: Footprint) -> list[FigureSpec]:
    """One for each dtype, size and cache state of a sweep that compares mappings."""
    if len(set(sweep.variants) & set(sweep.folder.workload.mappings)) < 2:
        return []
    name = sweep.folder.name
    return [
        FigureSpec(
            f"footprint-{name}-{dtype}-{problem.label}-{state}",
            name,
            view,
            (dtype,),
            problem,
            state,
        )
        for problem in sweep.problems
        for state in sweep.cache_states
        for dtype in sweep.dtypes
    ]
