"""Rank findings, sentences for the first page, by the time they may save; and name limits."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pandas as pd

from ..analysis.best import Advice, Cost, cost_of
from ..analysis.fastest import OccupancyStep, occupancy_steps, params_text, ratio
from ..core.display import joined, mode_words, number, percent, seconds, significant
from ..core.metric import metric_of, speed_text
from ..core.schema import GROUP, Status
from ..core.space import CACHE_STATES, TIMING_MODES, in_order
from ..model.fit import fit_partitions
from ..model.form import PARAMETERS
from ..model.limits import CountedCells, CountedLimit
from ..storage.dataset import matching, of_one_mode
from .method import fault_rows
from .tables import Json, Namer, launch_words

_VERBS = {"bandwidth": "moves", "rate": "computes"}
# Findings on the first page.
MAX_FINDINGS = 5
# Costs and gains below this share do not make a finding.
WORTH_TELLING = 0.02
# Below this share of the measured peak, something other than memory limits a kernel.
FAR_BELOW = 0.7
_T = TypeVar("_T")


@dataclass(frozen=True)
class Finding:
    """A sentence for the reader.

    Attributes
    ----------
    worth
        Share of time that ignoring it may cost. It is infinite for faults, which make figures
        doubtful. It is halved for properties that a program can seldom change: its element type, or
        the data that it keeps in the cache.
    figure
        File of the figure that shows it; by default the first figure of `kernel`.
    in_cache
        Whether it is about data in the cache; such findings come last.
    """

    sentence: str
    worth: float
    figure: str | None = None
    kernel: str | None = None
    in_cache: bool = False


def ranked(findings: Sequence[Finding]) -> list[Finding]:
    """Sort findings for the first page: faults, then data in memory, then data in the cache.

    Within these, the one of highest worth is first. Findings of no worth are left out.
    """
    told = [f for f in findings if f.worth > 0]
    return sorted(told, key=lambda f: (not math.isinf(f.worth), f.in_cache, -f.worth))[
        :MAX_FINDINGS
    ]


def advice_findings(advice: Sequence[Advice]) -> list[Finding]:
    """Return the findings on the recommended launches: at most one sentence of each kind."""
    decided = [a for a in advice if not a.undecided]
    # For the cost of a block, data in memory count more than data that happen to fit the cache.
    decided = [a for a in decided if a.exceeds_cache] or decided
    kinds = (_in_cache, _types, _faster_in_cache, _far_below, _boundaries)
    return [*_defaults(decided), *(finding for kind in kinds for finding in kind(advice))]


def _largest(shares: Iterable[tuple[float, _T]]) -> Iterator[tuple[float, _T]]:
    """Yield the largest share with its item, if it reaches WORTH_TELLING."""
    most = max(shares, key=lambda each: each[0], default=None)
    if most is not None and most[0] >= WORTH_TELLING:
        yield most


def _who(a: Advice) -> str:
    return f"{a.group['kernel']}, {a.group['dtype']}"


def _in_memory(advice: Sequence[Advice]) -> list[Advice]:
    """Return advice for data that do not fit the cache, or may not."""
    return [a for a in advice if a.place in ("memory", "unknown")]


def _defaults(advice: Sequence[Advice]) -> Iterator[Finding]:
    """Compare the common blocks: the safest one at its worst, and the one that loses most."""
    costs: dict[str, list[tuple[Cost, Advice]]] = {}
    for a in advice:
        for name, usual in a.defaults.items():
            costs.setdefault(name, []).append((usual, a))
    # A block that few kernels were swept with would look safe.
    swept = max(map(len, costs.values()), default=0)
    worst = [
        (*max(of_block, key=lambda each: each[0].supported), name)
        for name, of_block in costs.items()
        if len(of_block) == swept
    ]
    found = ((cost.supported, (cost, a, name)) for cost, a, name in worst)
    for worth, (cost, a, riskiest) in _largest(found):
        least, b, safest = min(worst, key=lambda each: each[0].supported)
        longer = f"{_bound(cost, 'up to ')}{_longer(worth)}"
        than = "as" if worth >= 1 else "than"
        sentence = f"A {riskiest} block takes {longer} {than} the recommended launch ({_who(a)})."
        if safest != riskiest:
            most = "no significant cost"
            if least.sure:
                most = f"at most {_longer(least.value if least.known else least.high)} ({_who(b)})"
            sentence += f" The safest of the common blocks is {safest}: {most}."
        yield Finding(sentence, worth, kernel=a.group["kernel"])


def _in_cache(advice: Sequence[Advice]) -> Iterator[Finding]:
    """Find a launch chosen for memory that is slow inside the cache."""
    losing = (
        (cost.supported, (cost, a.in_cache.best, a))
        for a in advice
        if a.in_cache and (cost := a.in_cache.cost) is not None
    )
    for worth, (cost, best, a) in _largest(losing):
        sentence = (
            "The best launch for data in memory is not the best for data in cache: there, "
            f"{launch_words(a.cell, a.axes)} takes {_bound(cost)}{_longer(worth)} ({_who(a)}). "
            f"Use {launch_words(best, a.axes)} for data that fits in the cache."
        )
        yield Finding(sentence, worth, kernel=a.group["kernel"], in_cache=True)


def _types(advice: Sequence[Advice]) -> Iterator[Finding]:
    """Find the kernel whose bandwidth or rate depends most on the element type."""
    by_problem: dict[tuple[object, ...], list[Advice]] = {}
    for a in _in_memory(advice):
        names = ("device_name", "kernel", "height", "width", "cache_state", "timing_mode")
        if (merit := metric_of(a.cell)).larger:
            key = (*(a.group[n] for n in names), merit)
            by_problem.setdefault(key, []).append(a)
    pairs = [
        tuple(f(several, key=lambda a: metric_of(a.cell).of(a.cell).value) for f in (min, max))
        for several in by_problem.values()
    ]
    gains = ((_gain(b.cell, a.cell).supported, (a, b)) for a, b in pairs)
    for gain, (slow, fast) in _largest(gains):
        sentence = (
            f"The element type matters: {fast.group['kernel']} {_VERBS[metric_of(fast.cell).name]} "
            f"{speed_text(fast.cell)} with {fast.group['dtype']} but {speed_text(slow.cell)} with "
            f"{slow.group['dtype']}, each with its best launch."
        )
        yield Finding(sentence, gain / 2, kernel=fast.group["kernel"])


def _faster_in_cache(advice: Sequence[Advice]) -> Iterator[Finding]:
    """Find the largest gain from keeping data in the cache."""
    gains = (
        ((gain := _gain(a.in_cache.best, a.cell)).supported, (gain, a.in_cache.best, a))
        for a in advice
        if a.in_cache is not None and a.place == "memory" and metric_of(a.cell).larger
    )
    for worth, (gain, best, a) in _largest(gains):
        times = f"{_bound(gain, 'up to ')}{significant(1 + worth, 2)} times as fast"
        sentence = (
            f"Data that stays in the cache moves {times}: {speed_text(best)} instead of "
            f"{speed_text(a.cell)} ({_who(a)})."
        )
        yield Finding(sentence, worth / 2, kernel=a.group["kernel"], in_cache=True)


def _far_below(advice: Sequence[Advice]) -> Iterator[Finding]:
    """Find the kernel whose best launch is farthest below the peak of loads and stores."""
    bound = [(a.of_peak.share, a) for a in _in_memory(advice) if a.of_peak is not None]
    lacking = ((1.0 - share, (share, a)) for share, a in bound if share is not None)
    for lost, (share, a) in _largest(lacking):
        if share * a.cell["bandwidth_high_gbs"] / a.cell["bandwidth_gbs"] <= FAR_BELOW:
            sentence = (
                f"{_who(a)} stays far below the measured peak: its best launch reaches "
                f"{percent(share)}. Something other than memory bandwidth limits it."
            )
            yield Finding(sentence, lost / 2, kernel=a.group["kernel"])


def _boundaries(advice: Sequence[Advice]) -> Iterator[Finding]:
    """Find axes on which a better launch may be outside the swept range."""
    at_boundary = [a for a in advice if a.boundary and not a.undecided]
    if at_boundary:
        axes = sorted({part.split(" ")[0] for a in at_boundary for part in a.boundary.split(", ")})
        sentence = (
            f"For {len(at_boundary)} of {len(advice)} kernels and types, all tied launches are at "
            f"the edge of the swept range (arrows). Extend the range of {joined(axes)}."
        )
        yield Finding(sentence, WORTH_TELLING)


def _gain(cell: Mapping[str, Any], over: Mapping[str, Any]) -> Cost:
    """Return the share by which a cell's bandwidth or rate is higher."""
    gain = ratio(cell, over)
    return Cost(gain.value - 1.0, gain.low - 1.0, gain.high - 1.0)


def _bound(cost: Cost, known: str = "") -> str:
    """Return the words before `Cost.supported`: ``at least`` if unknown, else `known`."""
    return known if cost.known else "at least "


def _longer(cost: float) -> str:
    """Return ``6.8 % longer``, or ``2.4 times as long`` from a factor of two on."""
    return f"{percent(cost)} longer" if cost < 1 else f"{significant(1 + cost, 2)} times as long"


def fault_findings(cells: pd.DataFrame, notes: Sequence[Mapping[str, str]]) -> list[Finding]:
    """Find kernels that never ran, wrong results, and views that cannot be drawn (`notes`)."""
    never_ran = {Status.BUILD_FAILED.value, Status.WORKLOAD_FAILED.value}
    sentences = [
        f"{f['where']}: {f['message']} ({f['status']}, cells: {f['cells']})."
        for f in fault_rows(cells)
        if f["status"] in never_ran
    ]
    wrong = len(cells[cells["status"] == Status.WRONG_RESULT])
    if wrong:
        sentences.append(
            f"{wrong} cells computed wrong results. They are excluded from all figures."
        )
    sentences += [f"A view of a kernel is not drawn: {n['fault']}." for n in notes if "fault" in n]
    return [Finding(sentence, float("inf")) for sentence in sentences]


def step_findings(cells: pd.DataFrame, persistent: Sequence[str], names: Namer) -> list[Finding]:
    """Find the cost of one block too many for `persistent` kernels, each on its largest problem."""
    found = []
    for kernel in persistent:
        series = _series(cells, kernel)
        if losses := occupancy_steps(series):
            sentence = _steps_sentence(series, losses, names)
            worth = max(_lost(step).supported for step in losses)
            found.append(Finding(sentence, worth, kernel=kernel))
    return found


def _lost(step: OccupancyStep) -> Cost:
    return Cost(step.lost.value, step.lost.low, step.lost.high)


def _series(cells: pd.DataFrame, kernel: str) -> pd.DataFrame:
    """Return the cells of the first variant of `kernel`."""
    own = of_one_mode(cells[cells["kernel"] == kernel])
    if own.empty:
        return own
    own = own[own["device_name"] == own["device_name"].min()]
    problems = own[["height", "width"]].drop_duplicates()
    height, width = max(problems.itertuples(index=False), key=lambda p: (p[0] * p[1], p[0]))
    own = own[(own["height"] == height) & (own["width"] == width)]
    own = own[own["cache_state"] == next(s for s in CACHE_STATES if s in set(own["cache_state"]))]
    return own[own["variant"] == own["variant"].min()]


def _steps_sentence(cells: pd.DataFrame, losses: Sequence[OccupancyStep], names: Namer) -> str:
    """Join types that lose at the same number of blocks in one clause."""
    costs: dict[tuple[int, int, int], list[str]] = {}
    for s in losses:
        lost = _lost(s)
        cost = f"{_bound(lost)}{percent(lost.supported)} with {s.dtype}"
        costs.setdefault((s.blocks, s.multiprocessors, s.resident_blocks), []).append(cost)
    clauses = []
    for (blocks, multiprocessors, resident_blocks), of_types in costs.items():
        held = (
            f" ({multiprocessors} × {resident_blocks} resident)"
            if blocks == multiprocessors * resident_blocks
            else ""
        )
        clauses.append(f"one block more than {blocks}{held} costs {', '.join(of_types)}")
    first = cells.iloc[0]
    return f"{first['kernel']}, {first['variant']}, {names.size(first)}: {'; '.join(clauses)}."


_ALIKE = ("device_name", "kernel", "dtype", "height", "width", "cache_state")


def of_first_kind(advice: Sequence[Advice]) -> list[Advice]:
    """Return the advice for each kernel and type in its first timing mode (in TIMING_MODES)."""
    first: dict[tuple[object, ...], Advice] = {}
    for a in sorted(advice, key=lambda a: TIMING_MODES.index(a.group["timing_mode"])):
        first.setdefault(tuple(a.group[n] for n in _ALIKE[:3]), a)
    kept = {id(a) for a in first.values()}
    return [a for a in advice if id(a) in kept]


def kind_findings(advice: Sequence[Advice], cells: pd.DataFrame) -> list[Finding]:
    """Find the launch, best in one timing mode, that loses most in another; `advice` has both."""
    losing = [
        (cost.supported, (cost, usual, other))
        for usual in of_first_kind(advice)
        for other in advice
        if all(usual.group[n] == other.group[n] for n in _ALIKE)
        and other.group["timing_mode"] != usual.group["timing_mode"]
        and (cost := _cost(usual, other, cells)) is not None
    ]
    found = []
    for worth, (cost, usual, other) in _largest(losing):
        a, b = (mode_words(each.group["timing_mode"]) for each in (usual, other))
        sentence = (
            f"The best launch depends on the timing mode: for {_who(usual)}, "
            f"{launch_words(usual.cell, usual.axes)} is fastest {a}, but "
            f"{_bound(cost)}{percent(worth)} slower than "
            f"{launch_words(other.cell, other.axes)} {b}."
        )
        found.append(Finding(sentence, worth))
    return found


def _cost(usual: Advice, other: Advice, cells: pd.DataFrame) -> Cost | None:
    """Return the cost of the launch of `usual` in the mode of `other`.

    The result is None if not measured there.
    """
    group = {n: usual.group[n] for n in GROUP} | {"timing_mode": other.group["timing_mode"]}
    launch = {axis: usual.cell[axis] for axis in usual.axes}
    there = matching(matching(cells, group | {"status": Status.OK}), launch)
    return None if there.empty else cost_of(there.iloc[0], other.cell)


# Name of each limit, and the change that would help if it limits a launch, `{}` times.
LIMIT_WORDS: Mapping[str, tuple[str, str]] = {
    "start": ("start of the launch", "a start {} times as fast, or more work in a launch"),
    "dispatch": ("dispatch of blocks", "dispatch {} times as fast, or blocks with more work each"),
    "service": ("the pipelines", "pipelines {} times as fast, or fewer instructions and lines"),
    "waiting": ("waiting for loads", "latencies {} times as short, or more loads out at once"),
    "L2": ("L2", "an L2 {} times as fast"),
    "DRAM": ("DRAM", "a DRAM {} times as fast"),
}
NO_MODEL = (
    "There is no model of this device, so that nothing here says which limit binds a launch: its "
    "runtime tells neither the kernels' machine code nor how many blocks a multiprocessor holds "
    "(its occupancy)."
)


def why_parts(
    devices: Sequence[Json], names: Namer, counted: Mapping[str, CountedCells]
) -> list[Json]:
    """Return for each device its sentences and rows; `counted` has hardware counters by device."""
    if not devices:
        return [{"sentences": [NO_MODEL], "rows": [], "gaps": []}]
    return [_part(device, names, counted.get(device["device"])) for device in devices]


def _part(device: Json, names: Namer, counted: CountedCells | None) -> Json:
    left_out: dict[str, list[str]] = {}
    for kernel, why in sorted(device["left_out"].items()):
        left_out.setdefault(why, []).append(kernel)
    gaps = [f"{joined(k)}: not modelled, as {why}." for why, k in sorted(left_out.items())]
    if "why" in device:
        sentence = f"There is no model of {device['device']}: {device['why']}."
        return {"sentences": [sentence], "rows": [], "gaps": gaps}
    whys = device["whys"]
    limits = [
        None if counted is None else counted.of_limit(why["cell_key"], why["limit"]) for why in whys
    ]
    rows = [
        _row(why, device["device"], names, limit) for why, limit in zip(whys, limits, strict=True)
    ]
    return {"sentences": [_backing(limits), _judged(device)], "rows": rows, "gaps": gaps}


def _backing(limits: Sequence[CountedLimit | None]) -> str:
    """Count how many of the limits hardware counters of the same launches confirm."""
    counted = [limit for limit in limits if limit is not None]
    if not counted:
        return "Every limit is inferred by the model: no hardware counter backs one."
    backed = sum(limit.backed for limit in counted)
    against = len(counted) - backed
    inferred = len(limits) - len(counted)
    return (
        f"Of {len(counted)} limits {backed} are backed by hardware counters of the same launches "
        "on such a device"
        + (f", {against} are not (marked “not”)" if against else "")
        + (f"; the other {inferred} are inferred by the model." if inferred else ".")
    )


def _row(why: Json, device: str, names: Namer, counted: CountedLimit | None) -> Json:
    limit, lever = LIMIT_WORDS[why["limit"]]
    if why["factor"] is None:
        gain = f"not by this limit alone: then {LIMIT_WORDS[why['then']][0]} binds"
    else:
        gain = lever.format(significant(why["factor"]))
    backing = "inferred"
    if counted is not None:
        backing = counted.words if counted.backed else f"not: {counted.words}"
    return {
        "kernel": why["kernel"],
        "type": why["dtype"],
        "launch": f"{params_text(why['params'], in_order(why['params']))}, {why['variant']}",
        "size": names.size({**why, "device_name": device}),
        "measured": significant(why["measured_gbs"]),
        "predicted": significant(why["predicted_gbs"]),
        "limit": limit,
        "counted": backing,
        "next": f"{LIMIT_WORDS[why['next']][0]} {percent(why['next_share'])}",
        "gain": gain,
    }


def _judged(device: Json) -> str:
    """Describe the model's error on cells that were not fitted, and on kernels not seen."""
    kernels = "; ".join(
        f"{kernel} {percent(e['median'])}, {percent(e['p95'])}"
        for kernel, e in sorted(device["errors"].items())
    )
    others = device["bands"]["of_others"]
    if others is None:
        unseen = "no band is known for a kernel that it has not seen"
    else:
        factor = significant(math.exp(others))
        unseen = f"for a kernel that it has not seen the band is a factor of {factor} either way"
    return (
        f"The model of {device['device']} was fitted to {device['trained']} of {device['cells']} "
        f"cells. It misses half of a kernel's other cells by more than the first figure and 5 % by "
        f"more than the second ({kernels}); {unseen}."
    )


def parameter_tables(devices: Sequence[Json]) -> list[Json]:
    """Return the determined parameters of each fitted device; one sentence names the others."""
    tables = []
    for device in devices:
        if "parameters" not in device:
            continue
        # Keep the parameters of one part of the device together.
        found = [device["parameters"].get(name) for name in PARAMETERS]
        rows = [
            {
                "words": p["words"],
                "value": significant(p["value"]),
                "unit": p["unit"],
                "interval": f"{significant(p['low'])} to {significant(p['high'])}",
            }
            for p in found
            if p and p["determined"]
        ]
        others = "; ".join(p["words"] for p in found if p and not p["determined"])
        tables.append({"device": device["device"], "rows": rows, "others": others})
    return tables


# Parameters of the formula of persistent blocks: their names in the table, and their format.
_PARTITION = {
    "start_s": ("start", seconds),
    "tile_s": ("a tile", seconds),
    "bus_s": ("its part of the bus", seconds),
    "overlap": ("overlap", number),
}


def partition_rows(cells: pd.DataFrame, names: Namer) -> list[Json]:
    """Return a line for each series of persistent blocks, with the determined parameters."""
    rows = []
    for fit, _ in fit_partitions(cells):
        row = {"series": names.series(fit), "why": fit.get("why")}
        if "why" not in fit:
            determined = [
                f"{words} {show(fit['values'][name])}"
                for name, (words, show) in _PARTITION.items()
                if fit["half_widths"][name] < fit["values"][name]
            ]
            row |= {
                "parameters": ", ".join(determined) or "none",
                "points": f"{fit['fitted']} + {fit['left_out']}",
                "median": percent(fit["errors"]["median"]),
                "worst": f"{percent(fit['errors']['worst'])} at {fit['worst_blocks']}",
            }
        rows.append(row)
    return rows
