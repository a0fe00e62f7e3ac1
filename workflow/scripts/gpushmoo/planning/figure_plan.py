"""Which figures of measured cells a sweep has, what each shows, and what reports say of it."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.space import CACHE_STATES, TIMING_MODES, Problem
from ..storage.wholefile import DamagedFileError, read_json
from ..workloads.loader import KernelFolder
from ..workloads.views import Swept, View
from .digest import library_digest, module_digest
from .sweeps import SweepConfig


@dataclass(frozen=True)
class FigureSpec:
    """One figure of a view of the kernel in `folder`; what is None shows all that was swept."""

    folder: KernelFolder
    view: View
    dtypes: tuple[str, ...]
    dtype: str | None = None
    problem: Problem | None = None
    cache_state: str | None = None
    timing_mode: str = TIMING_MODES[0]

    @property
    def name(self) -> str:
        """Name of its files, without the suffix."""
        size = None if self.problem is None else self.problem.label
        kind = None if self.timing_mode == TIMING_MODES[0] else self.timing_mode
        parts = (self.folder.name, self.dtype, self.view.label(), size, self.cache_state, kind)
        return "-".join([self.view.kind, *filter(None, parts)])

    @property
    def where(self) -> dict[str, Any]:
        """Column and value of what is shown, for dataset.matching."""
        where: dict[str, Any] = {"kernel": self.folder.name, "timing_mode": self.timing_mode}
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


def figures_of(sweep: SweepConfig, backend: str) -> list[FigureSpec]:
    """The figures of a sweep; the largest size, the first state and mode stand for all."""
    workload = sweep.folder.workload
    largest = max(sweep.problems, key=lambda p: (p.height * p.width, p.height))
    first_kind = next(k for k in TIMING_MODES if k in sweep.timing_modes)
    first_state = next(s for s in CACHE_STATES if s in sweep.cache_states)
    swept = Swept(backend, sweep.dtypes, sweep.variants, sweep.problems, sweep.cache_states)
    return [
        FigureSpec(sweep.folder, view, sweep.dtypes, dtype, problem, state, first_kind)
        for view in workload.views
        if view.shown(swept)
        for problem, state, dtype in itertools.product(
            (largest,) if "size" in view.each else (None,),
            (first_state,) if "cache_state" in view.each else (None,),
            sweep.dtypes if "dtype" in view.each else (None,),
        )
    ]


# What reStructuredText takes for markup within a line.
_MARKUP = re.compile(r"[\\*`|_]")
_BRACES = str.maketrans("{}", "()")


def figure_note(wildcards: Any, output: Any) -> dict[str, str]:
    """A figure's caption, for the template of captions; empty as long as there is no figure.

    A parameter of the rule, which Snakemake asks for again when it makes its report. It does not
    compare one whose function takes `output`, so a figure is not drawn again for its own note.
    """
    return {"caption": _MARKUP.sub(r"\\\g<0>", _note(output).get("caption", ""))}


def figure_labels(wildcards: Any, output: Any) -> dict[str, str]:
    """What stands beside a figure in the report's list of them: its title."""
    # Snakemake would take what is in braces for wildcards.
    return {"figure": _note(output).get("title", "").translate(_BRACES)}


def _note(output: Any) -> dict[str, Any]:
    path = Path(str(output.note))
    try:
        return read_json(path)
    except DamagedFileError:
        return {}
