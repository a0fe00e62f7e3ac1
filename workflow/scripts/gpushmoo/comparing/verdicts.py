"""Decide verdicts on many changes at once, between runs or between alternating versions.

A change between runs counts if raw times and multiples of the memcpy baseline both show it (an
intersection–union test), after a correction for multiple tests: first for groups, then for the
cells of the groups that changed (Benjamini and Bogomolov, Journal of the Royal Statistical Society
B 76, 2014).

For versions, a block is A B B A, or its mirror image, so a drift that is linear in time adds the
same to both. The change of a block is the mean of log seconds of B minus that of A. Blocks are the
replicates, not samples.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from ..analysis.statistics import ChangeEstimate, Floats
from ..core.median import CONFIDENCE

Booleans = npt.NDArray[np.bool_]

# False discovery rate of the named changes; half of it for changes in one direction.
FALSE_SHARE = 1.0 - CONFIDENCE
# Fewest blocks that yield an interval.
MIN_BLOCKS = 4


class ChangeVerdict(StrEnum):
    """Verdict on a cell or a group's best; ``same`` means a change significantly below δ."""

    SLOWER = "slower"
    FASTER = "faster"
    SAME = "same"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Changes:
    """Changes of log times, raw and relative to the copy; the latter is NaN without a copy.

    If the two sides were not measured alike, `unlike` is the change that this may cause.
    """

    raw: ChangeEstimate
    vs_memcpy: ChangeEstimate
    unlike: Floats

    def p_beyond(self, bound: float, sign: int) -> Floats:
        """Return p values of one-sided tests for changes of log time larger than `bound`.

        The null hypothesis is that the change in the direction of `sign` is at most `bound`. Raw
        times and multiples of the copy are tested separately, and the larger p value counts.

        Parameters
        ----------
        bound
            Bound on the change of log time, at least 0.
        sign
            1 to test for slower, -1 to test for faster.
        """
        least = bound + self.unlike
        p, beside = self.raw.p_beyond(least, sign), self.vs_memcpy.p_beyond(least, sign)
        both: Floats = np.where(np.isnan(self.vs_memcpy.change), p, np.maximum(p, beside))
        return both

    @property
    def p(self) -> Floats:
        """Two-sided p value of the hypothesis of no change."""
        p: Floats = np.minimum(1.0, 2.0 * np.minimum(self.p_beyond(0.0, 1), self.p_beyond(0.0, -1)))
        return p

    def inside(self, bound: float) -> Booleans:
        """Return whether both 95 % intervals are within ±`bound`: an equivalence test."""
        most = bound - self.unlike
        raw, beside = (
            np.isfinite(of.error) & (of.low >= -most) & (of.high <= most)
            for of in (self.raw, self.vs_memcpy)
        )
        both: Booleans = raw & (np.isnan(self.vs_memcpy.change) | beside)
        return both


def verdicts(changes: Changes, believed: Booleans, delta: float) -> list[str]:
    """Return the verdict on each change, in the order of the changes.

    A change that is significantly smaller than `delta` is ``same``, even if it is believed.

    Parameters
    ----------
    changes
        Changes of log times.
    believed
        Whether each change is significant after the correction.
    delta
        Share of the time up to which a change does not matter.
    """
    same = changes.inside(math.log1p(delta))
    slower = changes.raw.change > 0.0
    return [_verdict(*each).value for each in zip(same, believed, slower, strict=True)]


def _verdict(same: bool, believed: bool, slower: bool) -> ChangeVerdict:
    if same:
        return ChangeVerdict.SAME
    if not believed:
        return ChangeVerdict.UNDECIDED
    return ChangeVerdict.SLOWER if slower else ChangeVerdict.FASTER


def adjusted(p: Floats) -> Floats:
    """Adjust p values by Benjamini and Hochberg (J. R. Stat. Soc. B 57, 1995); may be empty.

    SciPy's function does the same, but to import its statistics takes half a second.
    """
    order = np.argsort(p)
    scaled = p[order] * (len(p) / np.arange(1, len(p) + 1))
    found: Floats = np.empty(len(p))
    found[order] = np.minimum.accumulate(scaled[::-1])[::-1].clip(0.0, 1.0)
    return found


def alarms(changes: Changes, delta: float) -> Booleans:
    """Return which of all groups' bests got slower by more than `delta`.

    The lower ends of both intervals decide, after a correction for the number of groups. Without a
    change, at most one run in forty raises an alarm.
    """
    alarm: Booleans = adjusted(changes.p_beyond(math.log1p(delta), 1)) <= FALSE_SHARE / 2.0
    return alarm


def believed_cells(p: Floats, groups: Sequence[Hashable]) -> Booleans:
    """Return which cells' changes count: those of groups that changed, by p values within these.

    A group's p value is that of Simes. If R of m groups changed, a cell's adjusted p value must be
    below R / m times FALSE_SHARE.
    """
    places: dict[Hashable, list[int]] = {}
    for place, group in enumerate(groups):
        places.setdefault(group, []).append(place)
    within = [adjusted(p[where]) for where in places.values()]
    # The smallest adjusted p value equals that of Simes.
    changed = adjusted(np.array([values.min() for values in within])) <= FALSE_SHARE
    believed = np.zeros(len(p), dtype=bool)
    for where, values, has_changed in zip(places.values(), within, changed, strict=True):
        believed[where] = has_changed & (values <= FALSE_SHARE * changed.mean())
    return believed


@dataclass(frozen=True)
class PairedChange:
    """Log ratios of B's seconds to A's; above 0, B is slower.

    `estimate` is the Hodges–Lehmann estimate over blocks, and `low` to `high` the 95 % t interval.
    The p values: `p_other` of no change, `p_same` of a change of δ or more in either direction,
    `p_beyond` of B not being slower by more than δ.
    """

    estimate: float
    low: float
    high: float
    p_other: float
    p_same: float
    p_beyond: float


def block_changes(a_s: Any, b_s: Any) -> Floats:
    """Return the change of each block; `a_s` and `b_s` are seconds of shape (blocks, 2)."""
    change: Floats = np.log(np.asarray(b_s)).mean(axis=1) - np.log(np.asarray(a_s)).mean(axis=1)
    return change


def hodges_lehmann(values: Floats) -> float:
    """Return the median of the means of all pairs of values.

    It is the estimate of Hodges and Lehmann (Ann. Math. Statist. 34, 1963).
    """
    first, second = np.triu_indices(len(values))
    return float(np.median((values[first] + values[second]) / 2))


def paired_change(changes: Floats, delta: float) -> PairedChange:
    """Estimate a change from the changes of blocks; `delta` is a share (0.01).

    Equivalence is tested by two one-sided tests (Schuirmann, J. Pharmacokinet. Biopharm. 15, 1987).

    Parameters
    ----------
    changes
        Change of log seconds in each block, shape (blocks,).
    delta
        Share of the time up to which a change does not matter.

    Raises
    ------
    ValueError
        With fewer than MIN_BLOCKS blocks.
    """
    if len(changes) < MIN_BLOCKS:
        raise ValueError(f"{len(changes)} blocks; an interval needs {MIN_BLOCKS}")
    error = changes.std(ddof=1) / np.sqrt(len(changes))
    of = ChangeEstimate(*(np.array([v]) for v in (changes.mean(), error, len(changes) - 1.0)))
    margin = math.log1p(delta)

    def p_beyond(bound: float, sign: int) -> float:
        return float(of.p_beyond(bound, sign)[0])

    return PairedChange(
        hodges_lehmann(changes),
        float(of.low[0]),
        float(of.high[0]),
        min(1.0, 2.0 * min(p_beyond(0.0, 1), p_beyond(0.0, -1))),
        max(p_beyond(-margin, 1), p_beyond(-margin, -1)),
        p_beyond(margin, 1),
    )


def judged(changes: Sequence[PairedChange]) -> list[tuple[ChangeVerdict, bool]]:
    """Return all pairs' verdicts, and whether B is significantly slower by more than δ."""
    if not changes:
        return []
    # p_beyond is one-sided, like an interval's lower end, so a change beyond δ is slower, too.
    other, same, beyond = (
        adjusted(np.array([getattr(change, name) for change in changes])) <= share
        for name, share in (
            ("p_other", FALSE_SHARE),
            ("p_same", FALSE_SHARE),
            ("p_beyond", FALSE_SHARE / 2.0),
        )
    )
    # The sign is that of the interval, which a verdict keeps away from 0.
    slower = [change.low + change.high > 0.0 for change in changes]
    verdict = [_verdict(*each) for each in zip(same, other, slower, strict=True)]
    return list(zip(verdict, beyond.tolist(), strict=True))
