"""Sentences for the first page, each with what it is worth to know it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from ..analysis.best import Advice
from ..analysis.contrasts import Ratio, Step, double_over_float, steps
from ..analysis.fastest import axes_of, params_text
from ..core.display import gbs, joined, kind_words, percent, significant
from ..core.schema import GROUP, Status
from ..core.space import CACHE_STATES, LAUNCH_KINDS
from ..storage.dataset import matching, of_one_kind
from .appendix import fault_rows
from .tables import Json, Namer, launch_words

# So many stand on the first page.
MOST = 5
# A cost or a gain below this is not told.
WORTH_TELLING = 0.02
# Where memory is not what limits a kernel, by its share of the ceiling.
FAR_BELOW = 0.7
# Names a figure of a kernel, if there is one.
FigureOf = Callable[[str], str | None]


@dataclass(frozen=True)
class Finding:
    """A sentence for the reader.

    `worth` is the share of the time that somebody who does not know it may lose, infinite of what
    must be known before any figure is believed. What a program can seldom change, its element type
    or what it keeps in the cache, counts half. `figure` is the file of the figure that shows it.
    """

    sentence: str
    worth: float
    figure: str | None = None


def ranked(findings: Sequence[Finding]) -> list[Finding]:
    """The findings for the first page, the one worth most first."""
    return sorted(findings, key=lambda f: -f.worth)[:MOST]


def advice_findings(advice: Sequence[Advice], figure_of: FigureOf) -> list[Finding]:
    """What follows from the launches to use: at most one sentence of each kind."""
    told_apart = [a for a in advice if not a.undecided]
    found = (
        _defaults(told_apart, figure_of),
        _in_cache(advice, figure_of),
        _types(advice, figure_of),
        _faster_in_cache(advice, figure_of),
        _far_below(advice, figure_of),
        _edges(advice),
    )
    return [finding for finding in found if finding is not None]


def _who(a: Advice) -> str:
    return f"{a.group['kernel']}, {a.group['dtype']}"


def _in_memory(advice: Sequence[Advice]) -> list[Advice]:
    """Those whose data do not fit the cache, as far as is known."""
    return [a for a in advice if a.place in ("memory", "unknown")]


def _defaults(advice: Sequence[Advice], figure_of: FigureOf) -> Finding | None:
    """The usual blocks: the one that loses least at its worst, and the one that loses most."""
    worst: dict[str, tuple[float, Advice]] = {}
    swept: dict[str, int] = {}
    for a in advice:
        for name, cost in a.defaults.items():
            swept[name] = swept.get(name, 0) + 1
            if name not in worst or cost > worst[name][0]:
                worst[name] = cost, a
    # Blocks that few kernels were swept with look safe.
    compared = {name: w for name, w in worst.items() if swept[name] == max(swept.values())}
    if not compared:
        return None
    safest, riskiest = (f(compared, key=lambda n: compared[n][0]) for f in (min, max))
    cost, a = compared[riskiest]
    if cost < WORTH_TELLING:
        return None
    sentence = f"A block of {riskiest} costs up to {_slower(cost)} ({_who(a)})"
    if safest != riskiest:
        least, b = compared[safest]
        sentence += (
            f"; of the usual blocks {safest} loses least, at most {_slower(least)} ({_who(b)})"
        )
    return Finding(f"{sentence}.", cost, figure_of(a.group["kernel"]))


def _in_cache(advice: Sequence[Advice], figure_of: FigureOf) -> Finding | None:
    """A launch chosen for memory that is a bad one inside the cache."""
    losing = [(a.in_cache.cost or 0.0, a.in_cache.best, a) for a in advice if a.in_cache]
    if not losing:
        return None
    cost, best, a = max(losing, key=lambda each: each[0])
    if cost < WORTH_TELLING:
        return None
    return Finding(
        f"The best launch for memory need not be the best in cache: {launch_words(a.cell, a.axes)} "
        f"costs {_slower(cost)} there ({_who(a)}); use {launch_words(best, a.axes)}.",
        cost,
        figure_of(a.group["kernel"]),
    )


def _types(advice: Sequence[Advice], figure_of: FigureOf) -> Finding | None:
    """The kernel whose bandwidth depends most on the element type."""
    by_problem: dict[tuple[object, ...], list[Advice]] = {}
    for a in _in_memory(advice):
        names = ("device_name", "kernel", "height", "width", "cache_state", "launch_kind")
        by_problem.setdefault(tuple(a.group[n] for n in names), []).append(a)
    pairs = [
        tuple(f(several, key=lambda a: a.cell["bandwidth_gbs"]) for f in (min, max))
        for several in by_problem.values()
    ]
    gains = [fast.cell["bandwidth_gbs"] / slow.cell["bandwidth_gbs"] - 1.0 for slow, fast in pairs]
    gain = max(gains, default=0.0)
    if gain < WORTH_TELLING:
        return None
    slow, fast = pairs[gains.index(gain)]
    return Finding(
        f"The element type matters: {fast.group['kernel']} moves "
        f"{gbs(fast.cell['bandwidth_gbs'])} with {fast.group['dtype']} and "
        f"{gbs(slow.cell['bandwidth_gbs'])} with {slow.group['dtype']}, each at its best launch.",
        gain / 2,
        figure_of(fast.group["kernel"]),
    )


def _faster_in_cache(advice: Sequence[Advice], figure_of: FigureOf) -> Finding | None:
    """What keeping data in the cache is worth at most."""
    gains = [
        (a.in_cache.best["bandwidth_gbs"] / a.cell["bandwidth_gbs"] - 1.0, a.in_cache.best, a)
        for a in advice
        if a.in_cache is not None and a.place == "memory"
    ]
    if not gains:
        return None
    gain, best, a = max(gains, key=lambda each: each[0])
    if gain < WORTH_TELLING:
        return None
    return Finding(
        f"Data that stay in the cache move up to {significant(1 + gain, 2)} times as fast: "
        f"{gbs(best['bandwidth_gbs'])} against {gbs(a.cell['bandwidth_gbs'])} ({_who(a)}).",
        gain / 2,
        figure_of(a.group["kernel"]),
    )


def _far_below(advice: Sequence[Advice], figure_of: FigureOf) -> Finding | None:
    """The kernel whose best launch is farthest from what loading and storing allow."""
    told = [(a.of_ceiling.share, a) for a in _in_memory(advice) if a.of_ceiling is not None]
    shares = [(share, a) for share, a in told if share is not None]
    share, a = min(shares, key=lambda pair: pair[0], default=(1.0, None))
    if a is None or share > FAR_BELOW:
        return None
    return Finding(
        f"No launch brings {_who(a)} near what the device can do: its best reaches "
        f"{percent(share)} of the ceiling, so something else than memory limits it.",
        (1.0 - share) / 2,
        figure_of(a.group["kernel"]),
    )


def _edges(advice: Sequence[Advice]) -> Finding | None:
    """Where a better launch may lie outside of what was swept."""
    at_edge = [a for a in advice if a.edge and not a.undecided]
    if not at_edge:
        return None
    axes = sorted({part.split(" ")[0] for a in at_edge for part in a.edge.split(", ")})
    return Finding(
        f"For {len(at_edge)} of {len(advice)} the fastest launch lies at the edge of what was "
        f"swept (arrows in the table): sweep {joined(axes)} further.",
        WORTH_TELLING,
    )


def _slower(cost: float) -> str:
    """``6.8 % more time``, or ``2.4 times as long`` for what doubles it."""
    return (
        f"{percent(cost)} more time" if cost < 1 else f"{significant(1 + cost, 2)} times the time"
    )


def fault_findings(cells: pd.DataFrame, notes: Sequence[Mapping[str, str]]) -> list[Finding]:
    """Kernels that never ran, wrong results, and views that cannot be drawn; see `notes`."""
    never_ran = {Status.BUILD_FAILED.value, Status.WORKLOAD_FAILED.value}
    faults: list[Json] = [f for f in fault_rows(cells) if f["status"] in never_ran]
    sentences = [
        f"{f['where']}: {f['message']} ({f['status']}, cells: {f['cells']})." for f in faults
    ]
    wrong = len(cells[cells["status"] == Status.WRONG_RESULT])
    if wrong:
        sentences.append(f"{wrong} cells computed a wrong result and are in no figure.")
    sentences += [f"A view of a kernel is not drawn: {n['fault']}." for n in notes if "fault" in n]
    return [Finding(sentence, float("inf")) for sentence in sentences]


def contrast_findings(
    cells: pd.DataFrame,
    persistent: Sequence[str],
    others: Sequence[str],
    names: Namer,
    figure_of: FigureOf,
) -> list[Finding]:
    """Findings on each kernel's largest problem, on the first device and in the first cache state.

    For `persistent` kernels: what one block too many costs. For these and `others`: how much more
    double moves than float.
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
    return f"{_gap_words(gap, 1, ' ×')} ({at['variant']}, {launch})"


def _gap_words(r: Ratio, scale: int, unit: str) -> str:
    value, low, high = (significant(scale * x) for x in (r.value, r.low, r.high))
    return f"{value}{unit} ({low} to {high})"


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
