"""Sentences on what one block too many costs, and on double against float."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd

from ..analysis.contrasts import Ratio, Step, double_over_float, steps
from ..analysis.fastest import axes_of, params_text
from ..core.display import percent, significant
from ..core.space import CACHE_STATES
from ..storage.dataset import of_one_kind
from .findings import FigureOf, Finding
from .tables import Namer


def contrast_findings(
    cells: pd.DataFrame,
    persistent: Sequence[str],
    others: Sequence[str],
    names: Namer,
    figure_of: FigureOf,
) -> list[Finding]:
    """For each kernel's largest problem, on the first device and in the first cache state.

    `persistent` kernels are asked what one block too many costs, they and `others` what double
    moves over float.
    """
    out = []
    for kernel in [*persistent, *others]:
        series = list(_series(cells, kernel))
        if not series:
            continue
        if kernel in persistent:
            losses = [s for variant in series[:1] for s in steps(variant)]
            if losses:
                worth = max(step.lost.value for step in losses)
                sentence = _steps_sentence(series[0], losses, names)
                out.append(Finding(sentence, worth, figure_of(kernel)))
        gaps = [g for g in map(_gap, series) if g]
        if gaps:
            where = names.size(series[0].iloc[0])
            sentence = (
                f"{kernel}, {where}: where float is fastest, double moves {'; '.join(gaps)} what "
                "float does."
            )
            out.append(Finding(sentence, 0.0, figure_of(kernel)))
    return out


def _series(cells: pd.DataFrame, kernel: str) -> Iterator[pd.DataFrame]:
    """The cells of each variant of `kernel`."""
    of_kernel = of_one_kind(cells[cells["kernel"] == kernel])
    if of_kernel.empty:
        return
    of_kernel = of_kernel[of_kernel["device_name"] == of_kernel["device_name"].min()]
    problems = of_kernel[["height", "width"]].drop_duplicates()
    height, width = max(problems.itertuples(index=False), key=lambda p: (p[0] * p[1], p[0]))
    of_kernel = of_kernel[(of_kernel["height"] == height) & (of_kernel["width"] == width)]
    present = set(of_kernel["cache_state"])
    of_kernel = of_kernel[of_kernel["cache_state"] == next(s for s in CACHE_STATES if s in present)]
    for _, variant in of_kernel.groupby("variant", sort=True, observed=True):
        yield variant


def _steps_sentence(cells: pd.DataFrame, losses: Sequence[Step], names: Namer) -> str:
    """Types that lose at the same number of blocks share a clause."""
    clauses = []
    for s in dict.fromkeys((s.blocks, s.units, s.per_unit) for s in losses):
        blocks, units, per_unit = s
        held = f" ({units} × {per_unit} resident)" if blocks == units * per_unit else ""
        costs = ", ".join(
            f"{percent(t.lost.value)} with {t.dtype}"
            for t in losses
            if (t.blocks, t.units, t.per_unit) == s
        )
        clauses.append(f"one block more than {blocks}{held} costs {costs}")
    first = cells.iloc[0]
    return f"{first['kernel']}, {first['variant']}, {names.size(first)}: {'; '.join(clauses)}."


def _gap(cells: pd.DataFrame) -> str | None:
    """How much double moves of what float does; None where no difference is shown."""
    try:
        gap, at = double_over_float(cells, axes_of(cells))
    except ValueError:
        return None
    if gap.low <= 1.0 <= gap.high:
        return None
    launch = params_text(at, axes_of(cells))
    return f"{_range(gap, 1, ' ×')} ({at['variant']}, {launch})"


def _range(r: Ratio, scale: int, unit: str) -> str:
    value, low, high = (significant(scale * x) for x in (r.value, r.low, r.high))
    return f"{value}{unit} ({low} to {high})"
