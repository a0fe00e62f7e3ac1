"""Count how often repeated runs without a change (A/A runs) raise an alarm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from scipy.stats import binomtest

from ..core.errors import CompareError
from ..core.median import CONFIDENCE
from ..core.names import several
from .compare import DELTA, Comparison, compare_runs, percent
from .runs import Place, RunCells, levels_of, read_run, usual_spreads

# Other runs from which a pair's run-to-run spread is estimated. With fewer, its repeats are used.
MIN_BESIDE = 2


@dataclass(frozen=True)
class Rate:
    """`hits` of `n`, with the exact 95 % interval of Clopper and Pearson, as shares."""

    hits: int
    n: int

    @property
    def share(self) -> float:
        """Hits divided by trials, 0 to 1; requires at least one trial."""
        return self.hits / self.n

    @property
    def interval(self) -> tuple[float, float]:
        """Lower and upper end of the 95 % interval of `share`, 0 to 1."""
        found = binomtest(self.hits, self.n).proportion_ci(CONFIDENCE, "exact")
        return float(found.low), float(found.high)

    def __str__(self) -> str:
        """Return ``1 of 20 (5.0 %, 95 % interval 0.1 % to 24.9 %)``."""
        low, high = (percent(end, sign=False) for end in self.interval)
        share = percent(self.share, sign=False)
        return f"{self.hits} of {self.n} ({share}, 95 % interval {low} to {high})"


@dataclass(frozen=True)
class FalseAlarms:
    """Verdicts on all pairs of A/A runs.

    `pairs` has the names and the comparison of each pair. `apart` are the pairs that share no run;
    only these are independent of each other.
    """

    pairs: Sequence[tuple[str, str, Comparison]]
    apart: Sequence[int]

    def markdown(self) -> str:
        """Return as Markdown how many pairs raised an alarm, and the interval of the rate."""
        alarmed = [f"{a} → {b}" for a, b, found in self.pairs if len(found.slower)]
        rate = Rate(sum(bool(len(self.pairs[i][2].slower)) for i in self.apart), len(self.apart))
        groups = sum(len(found.groups) for *_, found in self.pairs)
        slower = sum(int((found.groups["verdict"] == "slower").sum()) for *_, found in self.pairs)
        lines = [
            "## False alarms",
            f"**{rate}** of the independent pairs of runs without a change raise an alarm. "
            f"{len(alarmed)} of all {len(self.pairs)} pairs do"
            + (f": {', '.join(alarmed)}." if alarmed else "."),
            f"{slower} of {groups} bests of groups in these pairs have the verdict *slower*.",
        ]
        return "\n\n".join(lines) + "\n"


def false_alarms(noise_runs: Sequence[Place], *, threshold: float = DELTA) -> FalseAlarms:
    """Compare each of these runs without a change with each later one, and count alarms.

    Parameters
    ----------
    noise_runs : sequence
        Folders of two or more runs.
    threshold : float
        The least change that matters, as a share of the time.

    Returns
    -------
    FalseAlarms
        Verdicts on all pairs, which pairs share no run, and a text of both (`markdown()`).

    Raises
    ------
    CompareError
        If a run cannot be read, or there is only one. It is a ValueError with one sentence.
    """
    return false_alarms_of([read_run(place) for place in several(noise_runs)], threshold)


def false_alarms_of(runs: Sequence[RunCells], delta: float = DELTA) -> FalseAlarms:
    """Count the false alarms among runs that were already read."""
    if len(runs) < 2:
        raise CompareError("noise_runs: one run cannot be compared with itself; list two or more.")
    levels = levels_of(runs)
    places = list(combinations(range(len(runs)), 2))
    pairs = []
    for i, j in places:
        usual = usual_spreads(levels, (i, j)) if len(runs) - 2 >= MIN_BESIDE else None
        found = compare_runs([runs[i]], [runs[j]], (), delta, usual)
        pairs.append((runs[i].name, runs[j].name, found))
    apart = [n for n, (i, j) in enumerate(places) if i % 2 == 0 and j == i + 1]
    return FalseAlarms(pairs, apart)
