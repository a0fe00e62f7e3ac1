"""Where a run's seconds went, rule by rule: read from the files of Snakemake's ``benchmark:``."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

# Lines of the table between its head and its end.
MOST_LINES = 10


@dataclass(frozen=True)
class RuleSeconds:
    """The jobs of one rule that ended in a run: how many, and their seconds by the wall's clock."""

    rule: str
    jobs: int
    total_s: float
    longest_s: float


def benchmark_seconds(path: Path) -> float | None:
    """Seconds (s) by the wall's clock that a benchmark file tells of its job.

    None where there is no such file, or no number in it: it is for information alone.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file, delimiter="\t"))
        return float(rows[0]["s"])
    except (OSError, csv.Error, LookupError, TypeError, ValueError):
        return None


def seconds_by_rule(jobs: Iterable[tuple[str, float | None]]) -> list[RuleSeconds]:
    """Each rule's seconds from pairs of a rule and a job's seconds; the longest rule first.

    None of a job about which nothing is known, which is left out.
    """
    times: dict[str, list[float]] = {}
    for rule, seconds in jobs:
        if seconds is not None:
            times.setdefault(rule, []).append(seconds)
    rules = [RuleSeconds(rule, len(t), sum(t), max(t)) for rule, t in times.items()]
    return sorted(rules, key=lambda r: (-r.total_s, r.rule))


def seconds_table(rules: Sequence[RuleSeconds], run_s: float) -> str:
    """A table for the terminal: a line for each rule, the shortest in one; `run_s` in seconds."""
    shown, rest = rules[:MOST_LINES], rules[MOST_LINES:]
    if len(rest) == 1:
        shown, rest = rules, ()
    if rest:
        count, total = sum(r.jobs for r in rest), sum(r.total_s for r in rest)
        other = RuleSeconds(f"{len(rest)} others", count, total, max(r.longest_s for r in rest))
        shown = [*shown, other]
    width = max(len(r.rule) for r in shown)
    lines = [
        f"  {r.rule:<{width}}  {r.jobs:>5}  {r.total_s:>7.1f}  {r.longest_s:>7.1f}" for r in shown
    ]
    head = f"  {'rule':<{width}}  {'jobs':>5}  {'seconds':>7}  {'longest':>7}"
    whole = f"gpushmoo: {run_s:.0f} s from start to end; the jobs, of which several run at once:"
    return "\n".join([whole, head, *lines])
