"""How much a run asks for: told before anything starts, and refused where it is too much."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ..core.backends import BACKENDS
from ..core.text import joined
from .config_schema import ConfigError
from .sweeps import SweepConfig


@dataclass(frozen=True)
class Bounds:
    """What a run may have at most, as the configuration says: cells, and versions to compile."""

    cells: int
    builds: int


def refuse_large(sweeps: Mapping[str, SweepConfig], backend: str, bounds: Bounds) -> None:
    """Count before any axis is expanded. Raises ConfigError with the time that it would take."""
    counts = {name: sweep.n_cells for name, sweep in sweeps.items()}
    total, name = sum(counts.values()), max(counts, key=lambda name: counts[name])
    if total > bounds.cells:
        raise ConfigError(
            f"kernels.{name}: {_among(counts[name], total, 'cells')}{_time_words(total, backend)}; "
            f"a run may have {_number(bounds.cells)}: sweep fewer values or sizes, or raise "
            "measure.max_cells."
        )
    counts = {name: sweep.n_builds for name, sweep in sweeps.items()}
    total, name = sum(counts.values()), max(counts, key=lambda name: counts[name])
    if total > bounds.builds:
        raise ConfigError(
            f"kernels.{name}: {_among(counts[name], total, 'versions')} to compile, one for each "
            f"value of {joined(sweeps[name].folder.workload.compile_axes) or 'variants'}; a run "
            f"may have {_number(bounds.builds)}: list fewer values, or raise measure.max_builds."
        )


def refuse_impossible(sweeps: Mapping[str, SweepConfig]) -> None:
    """Raise ConfigError where a kernel's `Workload.valid` has something against all its cells."""
    for name, sweep in sweeps.items():
        reason = sweep.refusal
        if reason is not None:
            raise ConfigError(f"kernels.{name}: {reason}.")


def size_sentence(sweeps: Mapping[str, SweepConfig], backend: str) -> str:
    """How many cells and builds, and how long that takes, about, for the terminal."""
    cells = sum(sweep.n_cells for sweep in sweeps.values())
    builds = sum(sweep.n_builds for sweep in sweeps.values())
    counted = f"{_number(cells)} cells, {_number(builds)} build{'s' * (builds != 1)}"
    return f"{counted}{_time_words(cells, backend)}."


def _among(count: int, total: int, what: str) -> str:
    alone = f"{_number(total)} {what}"
    return alone if count == total else f"{_number(count)} of the run's {alone}"


def _time_words(cells: int, backend: str) -> str:
    """``, about 14 hours at 5 ms a cell``; nothing as long as no backend is known."""
    if backend not in BACKENDS:
        return ""
    cell_s = BACKENDS[backend].cell_s
    return f", about {duration(cells * cell_s)} at {cell_s * 1e3:g} ms a cell"


def duration(seconds: float) -> str:
    """In the largest unit of which it has two: ``90 s``, ``14 hours``, ``1,200 years``."""
    units = (("years", 3.156e7), ("days", 86400.0), ("hours", 3600.0), ("min", 60.0))
    for unit, length_s in units:
        if seconds >= 2.0 * length_s:
            return f"{_number(round(seconds / length_s))} {unit}"
    return f"{max(1, round(seconds))} s"


def _number(n: int) -> str:
    """A product of many axes has too many digits to read, or for Python to write."""
    return f"{n:,}" if n < 10**15 else f"about 10^{math.log10(n):.0f}"
