"""The rules by which other tools call a cell slower, written anew from what they publish.

* nvbench, ``nvbench_compare.py`` (its rule up to 2025, since 2026 ``nvbench_compare_legacy.py``):
  the means differ by more than the smaller of both relative standard deviations.
* nvbench, ``nvbench_compare_robust.py`` (2026, preset ``default``): between the intervals from the
  smallest sample to the third quartile is a gap of 0.5 % or more.
* google/benchmark, ``compare.py`` (1.9): Mann and Whitney's U test, p < 0.05, from two repetitions
  on; no correction for the number of benchmarks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt
import pandas as pd
from gpushmoo.comparing.levels import swept_by_all
from gpushmoo.comparing.runs import RunCells, bests
from scipy.stats import mannwhitneyu

Samples = npt.NDArray[np.float64]
Rule = Callable[[Samples, Samples], bool]

CLEAR_GAP = 0.005
ALPHA = 0.05


def nvbench(first: Samples, second: Samples) -> bool:
    """Whether the mean of `second` is larger by more than the smaller noise."""
    mean = float(first.mean())
    noise = min(float(s.std(ddof=1) / s.mean()) for s in (first, second))
    return (float(second.mean()) - mean) / mean > noise


def nvbench_robust(first: Samples, second: Samples) -> bool:
    """Whether the smallest of `second` lies clearly above the third quartile of `first`."""
    upper = float(np.quantile(first, 0.75))
    return (float(second.min()) - upper) / upper >= CLEAR_GAP


def google_benchmark(first: Samples, second: Samples) -> bool:
    """Whether the U test finds a difference and the median of `second` is the larger one."""
    p = float(mannwhitneyu(first, second, alternative="two-sided").pvalue)
    return p < ALPHA and float(np.median(second)) > float(np.median(first))


RULES: Mapping[str, Rule] = {
    "nvbench": nvbench,
    "nvbench_robust": nvbench_robust,
    "google_benchmark": google_benchmark,
}


def slower_cells(first: RunCells, second: RunCells) -> dict[str, int]:
    """How many of the cells that both verified each rule calls slower."""
    index = first.ok.index.intersection(second.ok.index)
    return _counted(first.ok.loc[index], second.ok.loc[index])


def slower_bests(first: RunCells, second: RunCells) -> dict[str, int]:
    """The same of each group's best cells alone, as our guard looks at no other."""
    swept = swept_by_all([first, second])
    sides = [bests(run, swept) for run in (first, second)]
    index = sides[0].index.intersection(sides[1].index)
    return _counted(*(side.loc[index] for side in sides))


def _counted(first: pd.DataFrame, second: pd.DataFrame) -> dict[str, int]:
    pairs = [
        (np.asarray(a, np.float64), np.asarray(b, np.float64))
        for a, b in zip(first["samples_s"], second["samples_s"], strict=True)
    ]
    return {name: sum(rule(a, b) for a, b in pairs) for name, rule in RULES.items()}
