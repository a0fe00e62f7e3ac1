"""Whether the kind of launch decides which launch to use."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from ..analysis.advice import Advice
from ..core.display import kind_words, percent
from ..core.schema import GROUP, Status
from ..core.space import LAUNCH_KINDS
from ..storage.dataset import matching
from .findings import WORTH_TELLING, Finding
from .launches import launch_words

_ALIKE = ("device_name", "kernel", "dtype", "height", "width", "cache_state")


def of_first_kind(advice: Sequence[Advice]) -> list[Advice]:
    """Of each device, kernel and type the advice for the kind that LAUNCH_KINDS names first."""
    first: dict[tuple[object, ...], Advice] = {}
    for a in sorted(advice, key=lambda a: LAUNCH_KINDS.index(a.group["launch_kind"])):
        first.setdefault(tuple(a.group[n] for n in _ALIKE[:3]), a)
    kept = {id(a) for a in first.values()}
    return [a for a in advice if id(a) in kept]


def kind_findings(advice: Sequence[Advice], cells: pd.DataFrame) -> list[Finding]:
    """Where the launch for one kind loses most when it comes in another, if that is worth telling.

    `advice` has one for each kind, `cells` are those that it was made of.
    """
    losing = []
    for usual in of_first_kind(advice):
        for other in advice:
            alike = all(usual.group[n] == other.group[n] for n in _ALIKE)
            if alike and other.group["launch_kind"] != usual.group["launch_kind"]:
                cost = _cost(usual, other, cells)
                losing += [] if cost is None else [(cost, usual, other)]
    if not losing:
        return []
    cost, usual, other = max(losing, key=lambda each: each[0])
    if cost < WORTH_TELLING:
        return []
    a, b = (kind_words(each.group["launch_kind"]) for each in (usual, other))
    words = (
        f"The best launch depends on how it comes: of {usual.group['kernel']}, "
        f"{usual.group['dtype']}, {launch_words(usual.cell, usual.axes)} is best {a} and "
        f"{percent(cost)} slower than {launch_words(other.cell, other.axes)} {b}."
    )
    return [Finding(words, cost)]


def _cost(usual: Advice, other: Advice, cells: pd.DataFrame) -> float | None:
    """How much slower the launch for `usual` is than that for `other`, as `other` comes.

    None where it was not measured so, or the two cannot be told apart.
    """
    group = {n: usual.group[n] for n in GROUP} | {"launch_kind": other.group["launch_kind"]}
    launch = {axis: usual.cell[axis] for axis in usual.axes}
    there = matching(matching(cells, group | {"status": Status.OK}), launch)
    if there.empty or there["own_low_s"].iloc[0] <= other.cell["own_high_s"]:
        return None
    return float(there["median_s"].iloc[0] / other.cell["median_s"] - 1.0)
