"""Verdicts on many changes at once.

A change is believed where the raw one and that beside the runtime's own copy both show it (an
intersection–union test), after a correction for how many are asked: groups first, then the cells
of the groups that changed (Benjamini and Bogomolov, Journal of the Royal Statistical Society B 76,
2014).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt
from scipy.stats import false_discovery_control

from ..core.median import CONFIDENCE
from .spreads import ChangeEstimate, Floats

Booleans = npt.NDArray[np.bool_]

# Share of false ones among the changes that are named.
FALSE_SHARE = 1.0 - CONFIDENCE


class Became(StrEnum):
    """What became of a cell or a group's best."""

    SLOWER = "slower"
    FASTER = "faster"
    SAME = "same"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Changes:
    """Changes of log times, raw and beside the copy; the latter NaN where there was no copy."""

    raw: ChangeEstimate
    over_copy: ChangeEstimate

    def p_beyond(self, bound: float, sign: int) -> Floats:
        """One-sided p value of no change beyond `bound`, by the test that is less sure."""
        p, beside = self.raw.p_beyond(bound, sign), self.over_copy.p_beyond(bound, sign)
        both: Floats = np.where(np.isnan(self.over_copy.change), p, np.maximum(p, beside))
        return both

    @property
    def p(self) -> Floats:
        """Two-sided p value of there being no change."""
        p: Floats = np.minimum(1.0, 2.0 * np.minimum(self.p_beyond(0.0, 1), self.p_beyond(0.0, -1)))
        return p

    def inside(self, bound: float) -> Booleans:
        """Whether both 95 % intervals lie within ±`bound`: an equivalence test."""
        found = _inside(self.raw, bound)
        return found & (np.isnan(self.over_copy.change) | _inside(self.over_copy, bound))


def _inside(of: ChangeEstimate, bound: float) -> Booleans:
    inside: Booleans = np.isfinite(of.error) & (of.low >= -bound) & (of.high <= bound)
    return inside


def verdicts(changes: Changes, believed: Booleans, delta: float) -> list[Became]:
    """The verdict on each change, of which some are `believed`; `delta` is what does not matter.

    What is surely smaller than `delta` (a share of the time) is the same, believed or not.
    """
    same = changes.inside(math.log1p(delta))
    slower = changes.raw.change > 0.0
    return [
        Became.SAME
        if equal
        else Became.UNDECIDED
        if not sure
        else Became.SLOWER
        if up
        else Became.FASTER
        for equal, sure, up in zip(same, believed, slower, strict=True)
    ]


def adjusted(p: Floats) -> Floats:
    """p values adjusted by Benjamini and Hochberg; empty where there is none."""
    if not len(p):
        return p
    out: Floats = false_discovery_control(p)
    return out


def alarms(changes: Changes, delta: float) -> Booleans:
    """Which of all groups' bests got slower by more than `delta`.

    At the lower ends of both intervals, and after the correction for the number of groups: where
    nothing changed, one run in forty raises an alarm at most.
    """
    p = changes.p_beyond(math.log1p(delta), 1)
    alarm: Booleans = adjusted(p) <= FALSE_SHARE / 2.0
    return alarm


def believed_cells(p: Floats, groups: Sequence[Hashable]) -> Booleans:
    """Which cells' changes are believed: those of groups that changed, by p values within these.

    A group's own p value is that of Simes. R of m groups changed, then a cell's adjusted p value
    has to stay under the R-th part in m of FALSE_SHARE.
    """
    places: dict[Hashable, list[int]] = {}
    for place, group in enumerate(groups):
        places.setdefault(group, []).append(place)
    within = [adjusted(p[where]) for where in places.values()]
    # The smallest adjusted p value is that of Simes.
    changed = adjusted(np.array([values.min() for values in within])) <= FALSE_SHARE
    believed = np.zeros(len(p), dtype=bool)
    if changed.any():
        level = FALSE_SHARE * changed.mean()
        for where, values, has_changed in zip(places.values(), within, changed, strict=True):
            believed[where] = has_changed & (values <= level)
    return believed
