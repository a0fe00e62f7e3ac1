"""Which of the searched machines show what survives of the first document, and what that answers.

The facts and from where on each counts as shown stand here, before the search. Tables 1 and 4 to 6
are lost, and with them the sizes of their arrays: a machine shows all facts if it does at one size.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import pandas as pd
from gpushmoo.core.display import joined

from .checks import DECIMALS, MEASURED_GBS, PUBLISHED, TWO_WITHIN

Json = dict[str, Any]
# Two bandwidths are the same, and a ratio is two, within this share, as in the table of numbers.
SAME = TWO_WITHIN
# 30 blocks are better by more than this share; a smaller lead may be chance.
AHEAD = 0.01
# "Slightly" is at most this share.
SLIGHT = 0.10
# "Dramatically worse" is less than this share.
DRAMATIC = 0.5
# Parameters of the search in words. The size is one, since the document names none with its tables.
PARAMETERS = {
    "width": "array",
    "latency_cycles": "latency in cycles",
    "issue": "issued together",
    "port": "shared port",
    "memory": "memory",
    "memory_clock": "memory clock",
    "held_blocks": "blocks an SM holds",
    "commands": "float3's commands",
}


@dataclass(frozen=True)
class Fact:
    """A fact in the words of the document, shown where `column` is in an interval.

    The interval is from `low` to `high`, without its ends. `counts` is that in words.
    """

    name: str
    quote: str
    counts: str
    column: str
    low: float
    high: float


def facts(same: float = SAME, ahead: float = AHEAD, slight: float = SLIGHT) -> tuple[Fact, ...]:
    """The facts in the order of the document's text; three of the thresholds may be others."""
    half = 0.5 * 10**-DECIMALS
    within = f"within {_percent(same)}"
    single, double = (
        float(PUBLISHED["GB/s"][f"saturated, {d}, 512²"]) for d in ("float", "double")
    )
    model = _percent(round(double / single - 1, 3))
    return (
        Fact(
            "double over float",
            "bandwidth of “float” is slightly smaller than bandwidth of “double”",
            f"coalesced copy: above float by at most {_percent(slight)}; its own model has {model}",
            "coalesced_gain",
            0,
            slight,
        ),
        Fact(
            "float3 worse",
            "bandwidth of “float3” is dramatically worse than “float”",
            f"coalesced copy: less than {_percent(DRAMATIC)} of float, since it is “dramatic”",
            "float3",
            0,
            DRAMATIC,
        ),
        Fact(
            "double twice",
            "bandwidth of “double” is two times the bandwidth of “float”",
            f"1, 2, 4 and 8 blocks: 2 {within}, as in the table of numbers",
            "twice_error",
            -math.inf,
            same,
        ),
        Fact(
            "doubling",
            "when number of active SM is doubled, then bandwidth is doubled",
            f"up to 8 blocks, both types: 2 {within}; it says so of its charts",
            "doubling_error",
            -math.inf,
            same,
        ),
        Fact(
            f"{MEASURED_GBS} GB/s",
            f"bandwidth (1 block, float) is {MEASURED_GBS} GB/s",
            f"{MEASURED_GBS - half:.2f} to {MEASURED_GBS + half:.2f}, which is printed so",
            "one_block_gbs",
            MEASURED_GBS - half,
            MEASURED_GBS + half,
        ),
        Fact(
            "float stays",
            "bandwidth of float does not increase",
            f"32 blocks over 16: 1 {within}; its conclusion says “is the same as”",
            "float_change",
            -same,
            same,
        ),
        Fact(
            "double falls",
            "bandwidth of double decreases",
            f"32 blocks over 16: down by more than {_percent(same)}",
            "double_change",
            -math.inf,
            -same,
        ),
        Fact(
            "30 best",
            "bandwidth of NUM_PARTITION = 30 is better than bandwidth of NUM_PARTITION = 32 and "
            "NUM_PARTITION = 16",
            f"both types: above either by more than {_percent(ahead)}; less may be chance",
            "thirty_gain",
            ahead,
            math.inf,
        ),
    )


@dataclass(frozen=True)
class Region:
    """The searched machines: which `facts` each shows (`shows`), and those that show all.

    `shows` has a column for each fact's name and an index of PARAMETERS; `all_shown` has the
    columns of SEARCH_SCHEMA, and `commands`.
    """

    facts: tuple[Fact, ...]
    shows: pd.DataFrame
    all_shown: pd.DataFrame

    def values(self, parameter: str) -> list[Any]:
        """Values of a parameter with which a machine shows all facts."""
        left = set(self.all_shown[parameter])
        return [value for value in self.tried(parameter) if value in left]

    def tried(self, parameter: str) -> list[Any]:
        """All values of a parameter that were simulated, in the order of the search."""
        return list(self.shows.index.unique(parameter))

    @property
    def at_every_size(self) -> pd.DataFrame:
        """`shows` where a machine has to show each fact at every size."""
        others = [name for name in PARAMETERS if name != "width"]
        return self.shows.groupby(level=others, sort=False).all()


def region(cells: pd.DataFrame, **thresholds: float) -> Region:
    """What the machines of `cells` (SEARCH_SCHEMA) show; `thresholds` are those of `facts`."""
    every = pd.concat(
        [
            cells.assign(commands=1, float3=cells["float3_one"]),
            cells.assign(commands=3, float3=cells["float3_three"]),
        ],
        ignore_index=True,
    )
    wanted = facts(**thresholds)
    shown = {f.name: every[f.column].between(f.low, f.high, inclusive="neither") for f in wanted}
    shows = pd.DataFrame(shown)
    whole = every[shows.all(axis=1)]
    shows.index = pd.MultiIndex.from_frame(every[list(PARAMETERS)])
    return Region(wanted, shows, whole)


def conflicts(shows: pd.DataFrame) -> list[tuple[str, ...]]:
    """The least sets of facts that no machine shows together."""
    found: list[tuple[str, ...]] = []
    for size in range(1, len(shows.columns) + 1):
        for names in combinations(shows.columns, size):
            known = any(set(known) <= set(names) for known in found)
            if not known and not shows[list(names)].all(axis=1).any():
                found.append(names)
    return found


def search_page(cells: pd.DataFrame) -> Json:
    """Tables and sentences of the page, as texts."""
    found = region(cells)
    shows = found.shows
    return {
        "device": str(cells["device"].iloc[0]),
        "machines": f"{len(shows):,}",
        "facts": [
            [f.quote, f.counts, _percent(shows[f.name].mean()), str(_without(shows, f.name))]
            for f in found.facts
        ],
        "names": [f.name for f in found.facts],
        "rows": [
            [
                PARAMETERS[parameter] if i == 0 else "",
                worded(parameter, [value]),
                *(f"{100 * share:.0f}" for share in part.mean()),
                str(part.all(axis=1).sum()),
            ]
            for parameter in PARAMETERS
            for i, (value, part) in enumerate(shows.groupby(level=parameter, sort=False))
        ],
        "sentences": [*_region(found), *_conflicts(found), *_thresholds(cells)],
        "verdicts": verdicts(found),
    }


def _without(shows: pd.DataFrame, name: str) -> int:
    """Machines that show all facts but, perhaps, this one."""
    return int(shows.drop(columns=name).all(axis=1).sum())


def _region(found: Region) -> list[str]:
    if found.all_shown.empty:
        return ["No machine shows all facts."]
    values = {name: found.values(name) for name in PARAMETERS}
    tried = {name: found.tried(name) for name in PARAMETERS}
    words = {name: f"{PARAMETERS[name]}: {worded(name, left)}" for name, left in values.items()}
    one = [words[name] for name, left in values.items() if len(left) == 1 < len(tried[name])]
    several = [words[name] for name, left in values.items() if len(left) > 1]
    return [
        f"{len(found.all_shown)} of {len(found.shows):,} machines show all facts.",
        f"All of these have the same value of: {'; '.join(one) or 'nothing'}.",
        f"What no surviving fact excludes: {'; '.join(several) or 'nothing else'}.",
        f"What one fact excludes alone: {'; '.join(_excluded(found)) or 'nothing'}.",
    ]


def _excluded(found: Region) -> list[str]:
    """Values of parameters with which no machine shows some one fact, and that fact."""
    excluded = []
    for parameter in PARAMETERS:
        shown = found.shows.groupby(level=parameter, sort=False).any()
        excluded += [
            f"{PARAMETERS[parameter]} {worded(parameter, list(without))} (“{name}”)"
            for name in shown
            if len(without := shown.index[~shown[name]])
        ]
    return excluded


def worded(parameter: str, values: Sequence[Any]) -> str:
    """Values of a parameter, listed."""
    if parameter == "width":
        return joined(f"{n}²" for n in values)
    return joined(str(value) for value in values)


def _conflicts(found: Region) -> list[str]:
    def listed(sets: Iterable[tuple[str, ...]]) -> str:
        return "; ".join(joined(f"“{name}”" for name in names) for names in sets)

    at_one, at_all = conflicts(found.shows), conflicts(found.at_every_size)
    one = (
        f"no machine shows together: {listed(at_one)}" if at_one else "no facts exclude each other"
    )
    sizes = worded("width", found.tried("width"))
    every = found.at_every_size
    rest = {name: n for name in every if (n := _without(every, name))}
    return [
        f"At one size {one}.",
        f"At {sizes} alike no machine shows together: {listed(at_all)}; without "
        + ", or without ".join(f"“{name}” {n} show the rest" for name, n in rest.items())
        + "."
        if at_all
        else f"At {sizes} alike {every.all(axis=1).sum()} machines show all facts.",
    ]


def _thresholds(cells: pd.DataFrame) -> list[str]:
    """How many machines are left with other thresholds, and what all of them have."""
    usual = {"same": SAME, "ahead": AHEAD, "slight": SLIGHT}
    words = {
        "same": "same is within",
        "ahead": "30 blocks are better by more than",
        "slight": "double is slightly over float by at most",
    }
    others = {
        (name, share): region(cells, **{name: share})
        for name, value in usual.items()
        for share in (value / 2, 2 * value)
    }
    counts = [
        f"{words[name]} {_percent(share)}: {len(found.all_shown)}"
        for (name, share), found in others.items()
    ]
    left = pd.concat([found.all_shown for found in others.values()])
    one = [
        f"{PARAMETERS[name]}: {worded(name, values)}"
        for name in PARAMETERS
        if len(values := list(left[name].unique())) == 1
    ]
    shown = region(cells).all_shown
    return [
        "The word “slightly” decides most: in the machines that show all facts double is "
        f"{changes(shown['coalesced_gain'])} over float. Machines that are left with half and with "
        f"twice a threshold: {'; '.join(counts)}. "
        f"All of these have the same value of: {'; '.join(one) or 'nothing'}."
    ]


NOT_SHOWN = "No machine shows what an answer would rest on."


def verdicts(found: Region) -> list[Json]:
    """The document's questions, and what the machines that show all facts answer."""
    whole, shows = found.all_shown, found.shows
    by_three = shows.xs(3, level="commands")["float3 worse"]
    answers: Mapping[str, tuple[bool, str]] = {
        "Why does double get slower from 16 to 32 blocks?": (
            second_blocks_slow_double(found),
            "A hypothesis: an SM holds one block at a time, though the document says that it has "
            "room for two. In all machines that show all facts it does, with the memory at "
            f"{worded('memory_clock', found.values('memory_clock'))}. 16 blocks of double keep "
            f"the bus busy for {span(whole['bus_busy_share'])} of the time. With 32, the second "
            f"blocks of two SMs work alone for {span(whole['lonely_share'])} of it: double does "
            f"{changes(whole['double_change'])}, float {changes(whole['float_change'])}. On 32 "
            f"SMs, where no block is a second one, double does {changes(whole['even_change'])}.",
        ),
        "Do banks or partitions explain it?": (
            camping_is_not_needed(found),
            f"They are not needed: these are the memories of machines that show all facts: "
            f"{worded('memory', found.values('memory'))}.",
        ),
        "Why is float3's coalesced copy dramatically worse than float's?": (
            commands_slow_float3(found),
            "Not by camping: by one access, as the document assumes, no machine shows it. By three "
            "commands, as compiled code copies a structure of three floats, "
            f"{_percent(by_three.mean())} do: each command moves all bytes. In the machines that "
            f"show all facts one access gives {span(whole['float3_one'])} of float's bandwidth, "
            f"three commands {span(whole['float3_three'])}.",
        ),
    }
    return [
        {"question": question, "answer": words if holds else NOT_SHOWN}
        for question, (holds, words) in answers.items()
    ]


def second_blocks_slow_double(found: Region) -> bool:
    """Whether all facts need one block an SM, and double does not fall without second blocks."""
    return found.values("held_blocks") == [1] and bool((found.all_shown["even_change"] > 0).all())


def camping_is_not_needed(found: Region) -> bool:
    """Whether a machine with nothing but a bus shows all facts."""
    return any(str(memory).startswith("one bus") for memory in found.values("memory"))


def commands_slow_float3(found: Region) -> bool:
    """Whether float3 collapses in no machine that copies it by one access, and in some by three."""
    collapses = found.shows["float3 worse"].groupby(level="commands").any()
    return not collapses[1] and bool(collapses[3])


def span(shares: Iterable[float]) -> str:
    """``12 to 34 %``, or one of them where they read the same."""
    values = [f"{100 * share:.0f}" for share in sorted(shares)] or ["—"]
    return f"{' to '.join(dict.fromkeys((values[0], values[-1])))} %"


def changes(shares: Iterable[float]) -> str:
    """``−1.2 % to +3.4 %``, or one of them where they read the same."""
    values = [signed(share) for share in sorted(shares)] or ["—"]
    return " to ".join(dict.fromkeys((values[0], values[-1])))


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def signed(change: float) -> str:
    """``+1.2 %``, or ``−1.2 %``; `change` is a share."""
    sign = "+" if change >= 0 else "−"
    return f"{sign}{abs(100 * change):.1f} %"
