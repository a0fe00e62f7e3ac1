"""The change between two versions that were sampled alternately, block by block.

A block is A B B A, or its mirror image: what drifts linearly in time adds as much to both. Its
change is the mean of log seconds of B less that of A, and blocks, not samples, are what is
replicated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

Array = npt.NDArray[np.float64]

# Fewer blocks leave an interval that says nothing.
LEAST_BLOCKS = 4
# Of the intervals; its rest is the share of verdicts that may be wrong.
LEVEL = 0.95


class PairedVerdict(StrEnum):
    """Of B beside A; a change is ``same`` where it is shown to be smaller than δ either way."""

    SLOWER = "slower"
    FASTER = "faster"
    SAME = "same"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class PairedChange:
    """Log ratios of B's seconds to A's, over 0 where B is slower.

    `estimate` is the Hodges–Lehmann estimate over blocks, `low` and `high` bound the t interval of
    LEVEL. p-values: `p_other` that nothing changed, `p_same` that the change is δ or more either
    way, `p_beyond` that B is not slower by more than δ.
    """

    estimate: float
    low: float
    high: float
    p_other: float
    p_same: float
    p_beyond: float


@dataclass(frozen=True)
class JudgedChange:
    """A change with its verdict; `beyond` where B is shown to be slower by more than δ."""

    change: PairedChange
    verdict: PairedVerdict
    beyond: bool


def block_changes(a_s: Any, b_s: Any) -> Array:
    """The change of each block; `a_s` and `b_s` are seconds of shape (blocks, 2)."""
    change: Array = np.log(np.asarray(b_s)).mean(axis=1) - np.log(np.asarray(a_s)).mean(axis=1)
    return change


def hodges_lehmann(values: Array) -> float:
    """The median of the means of all pairs, each value with itself included.

    Hodges and Lehmann, "Estimates of location based on rank tests", Ann. Math. Statist. 34 (1963).
    """
    first, second = np.triu_indices(len(values))
    return float(np.median((values[first] + values[second]) / 2))


def paired_change(changes: Array, delta: float) -> PairedChange:
    """What so many blocks' changes say; `delta` is a share (0.01).

    Raises ValueError below LEAST_BLOCKS. Equivalence is shown by two one-sided tests (Schuirmann,
    J. Pharmacokinet. Biopharm. 15, 1987).
    """
    if len(changes) < LEAST_BLOCKS:
        raise ValueError(f"{len(changes)} blocks; an interval needs {LEAST_BLOCKS}")
    t = stats.t(len(changes) - 1)
    mean, margin = float(changes.mean()), float(np.log1p(delta))
    error = float(changes.std(ddof=1)) / np.sqrt(len(changes))
    half = float(t.ppf((1 + LEVEL) / 2)) * error

    def above(bound: float) -> float:
        """The p-value that the change is `bound` or less."""
        if error == 0.0:
            return float(mean <= bound)
        return float(t.sf((mean - bound) / error))

    def below(bound: float) -> float:
        """The p-value that the change is `bound` or more."""
        return float(mean >= bound) if error == 0.0 else float(t.cdf((mean - bound) / error))

    return PairedChange(
        hodges_lehmann(changes),
        mean - half,
        mean + half,
        min(1.0, 2 * min(above(0.0), below(0.0))),
        max(above(-margin), below(margin)),
        above(margin),
    )


def judged(changes: Sequence[PairedChange]) -> list[JudgedChange]:
    """Verdicts of all cells together: of those of one kind at most 1 − LEVEL are wrong.

    So many on average, by the rule of Benjamini and Hochberg (J. R. Stat. Soc. B 57, 1995) for each
    of the three p-values.
    """
    if not changes:
        return []
    most = 1 - LEVEL
    # The last of one side, as an interval's lower end has it: so what is beyond is slower, too.
    other, same, beyond = (
        stats.false_discovery_control([getattr(c, name) for c in changes]) <= share
        for name, share in (("p_other", most), ("p_same", most), ("p_beyond", most / 2))
    )
    return [
        JudgedChange(change, _verdict(change, bool(other[i]), bool(same[i])), bool(beyond[i]))
        for i, change in enumerate(changes)
    ]


def _verdict(change: PairedChange, other: bool, same: bool) -> PairedVerdict:
    if same:
        return PairedVerdict.SAME
    if not other:
        return PairedVerdict.UNDECIDED
    # Its sign is that of the interval, which a verdict keeps off 0.
    return PairedVerdict.SLOWER if change.low + change.high > 0 else PairedVerdict.FASTER
