"""The planner that settings ask for."""

from __future__ import annotations

from collections.abc import Sequence

from .candidates import Candidate, Prior
from .guided import GuidedPlanner
from .planner import Planner
from .race import RacePlanner
from .settings import SearchMode, SearchSettings
from .tally import Tally

# A group of fewer cells is raced: a model needs half of them before it says anything.
FEWEST_GUIDED = 24


def planner_for(
    candidates: Sequence[Candidate],
    settings: SearchSettings,
    rule_samples: tuple[int, int],
    seed: int,
    transfer: Sequence[Prior] | None = None,
    half_width: float = 0.01,
) -> Planner:
    """A planner of one group, whose candidates differ in their launch alone.

    `rule_samples` are the fewest and the most samples of a cell that may be the fastest; between
    them it is full where half of the 95 % interval is at most the share `half_width` of its median.
    Of equal arguments and equal samples equal questions follow. Raises ValueError for the mode
    `all`, in which nothing is planned, and where there are no candidates.
    """
    if not candidates:
        raise ValueError("a search among no candidates")
    tally = Tally(len(candidates), *rule_samples, half_width)
    if settings.mode == SearchMode.RACE or (
        settings.mode == SearchMode.GUIDED and len(candidates) < FEWEST_GUIDED
    ):
        return RacePlanner(tally, settings)
    if settings.mode == SearchMode.GUIDED:
        return GuidedPlanner(candidates, tally, settings, seed, transfer or ())
    raise ValueError(f"nothing is planned in the mode '{settings.mode}'")
