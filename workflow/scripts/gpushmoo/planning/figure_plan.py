"""Which figures of measured cells a sweep has, and what each shows."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..core.space import Problem
from ..workloads.loader import KernelFolder
from ..workloads.views import Swept, View
from .config_schema import ConfigError
from .digest import library_digest, module_digest
from .sweeps import SweepConfig

# More than a report could be looked through.
MOST_FIGURES = 5_000


@dataclass(frozen=True)
class FigureSpec:
    """One figure of a view of the kernel in `folder`.

    `problem` and `cache_state` are None where it shows all that the kernel was swept over, `dtype`
    where it shows all `dtypes`, which are in the order of the configuration.
    """

    folder: KernelFolder
    view: View
    dtypes: tuple[str, ...]
    dtype: str | None = None
    problem: Problem | None = None
    cache_state: str | None = None

    @property
    def name(self) -> str:
        """Name of its files, without the suffix."""
        size = None if self.problem is None else self.problem.label
        parts = (self.folder.name, self.dtype, self.view.label(), size, self.cache_state)
        return "-".join([self.view.kind, *filter(None, parts)])

    @property
    def where(self) -> dict[str, Any]:
        """Column and value of what is shown, for dataset.matching."""
        where: dict[str, Any] = {"kernel": self.folder.name}
        if self.problem is not None:
            where |= {"height": self.problem.height, "width": self.problem.width}
        named = {"dtype": self.dtype, "cache_state": self.cache_state}
        return where | {column: value for column, value in named.items() if value is not None}

    @property
    def code(self) -> list[str]:
        """What the figure changes with: its view, and the code that draws it."""
        entry = self.view.drawing.partition(":")[0]
        drawn_by = [module_digest(entry)] if entry.startswith("gpushmoo.") else []
        if type(self.view).__module__.startswith("gpushmoo."):
            return [repr(self.view), *drawn_by]
        library = library_digest(self.folder.path / "workload.py")
        return [self.folder.digest(None), library, *drawn_by]


def refuse_many_figures(sweeps: Mapping[str, SweepConfig], backend: str) -> None:
    """Raise ConfigError where the sweeps would have more than MOST_FIGURES."""
    left = MOST_FIGURES
    for name, sweep in sweeps.items():
        left -= len(figures_of(sweep, backend))
        if left < 0:
            raise ConfigError(
                f"kernels.{name}.sizes: with its {len(sweep.problems)} sizes the report would have "
                f"more than {MOST_FIGURES} figures; sweep fewer sizes."
            )


def figures_of(sweep: SweepConfig, backend: str) -> list[FigureSpec]:
    """The figures of a sweep, in the order of its kernel's views, sizes, states and dtypes."""
    workload = sweep.folder.workload
    swept = Swept(
        backend,
        sweep.dtypes,
        sweep.variants,
        sweep.problems,
        sweep.cache_states,
        frozenset(workload.mappings),
    )
    return [
        FigureSpec(sweep.folder, view, sweep.dtypes, dtype, problem, state)
        for view in workload.views
        if view.shown(swept)
        for problem, state, dtype in itertools.product(
            sweep.problems if "size" in view.each else (None,),
            sweep.cache_states if "cache_state" in view.each else (None,),
            sweep.dtypes if "dtype" in view.each else (None,),
        )
    ]
