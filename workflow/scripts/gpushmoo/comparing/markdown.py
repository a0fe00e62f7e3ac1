"""A comparison as Markdown, for a pull request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from ..core.display import significant
from ..core.schema import PARAMS
from .decisions import Became

# Of the groups that changed.
HEADS = (
    "group",
    "best of A → B in GB/s",
    "change",
    "beside the copy",
    "verdict",
    "A's best in B",
    "all its cells",
)
# Rows of each table; the rest is in the tables that are saved.
MOST_ROWS = 20
VERDICTS = tuple(verdict.value for verdict in Became)
_MOST_NAMED = 5


@dataclass(frozen=True)
class Told:
    """What a summary says besides the changes.

    Names of A's and B's runs, the day of the last of them, the share that does not matter, on what
    the intervals rest, by what A and B differ, and the cells that only one side has.
    """

    a: Sequence[str]
    b: Sequence[str]
    day: str
    delta: float
    rests: str
    differences: Sequence[str]
    missing: pd.DataFrame


def percent(share: float | None, sign: bool = True) -> str:
    """``+1.23 %``; ``—`` where it is not known."""
    if share is None or pd.isna(share):
        return "—"
    digits = 2 if abs(share) < 0.1 else 1
    return f"{100 * share:{'+' if sign else ''}.{digits}f} %".replace("-", "−")


def change(row: Mapping[str, Any], name: str = "change") -> str:
    """A change with its interval in brackets."""
    value, low, high = row[name], row[f"{name}_low"], row[f"{name}_high"]
    if pd.isna(low):
        return percent(value)
    return f"{percent(value)} ({percent(low)} to {percent(high)})"


def group_words(row: Mapping[str, Any]) -> str:
    """``copy, float, element, 1024 × 1024, warm``."""
    place = f"{row['height']} × {row['width']}"
    return ", ".join((row["kernel"], row["dtype"], row["variant"], place, row["cache_state"]))


METHOD = (
    "Changes are of the time of a launch, with 95 % intervals; {copy} is without what the "
    "runtime's own copy changed by in the same rounds. {same}: both intervals lie within ±{delta}. "
    "All cells of a group together tell a change that its best alone does not."
)


def method(told: Told, mark: str = "") -> str:
    """On what the intervals rest and what the words mean; words are put between `mark`s."""
    words = {"copy": f"{mark}beside the copy{mark}", "same": f"{mark}Same{mark}"}
    return f"{told.rests} {METHOD.format(**words, delta=percent(told.delta, sign=False))}"


def remarks(drift: pd.DataFrame, told: Told) -> list[str]:
    """What the machine did, and which cells only one side has."""
    return [*drift_lines(drift, told.delta), *_missing(told.missing)]


def summary(cells: pd.DataFrame, groups: pd.DataFrame, drift: pd.DataFrame, told: Told) -> str:
    """The whole text, ending in a line break."""
    differ = [f"* {line}" for line in told.differences]
    parts = [
        f"## {title(told)}",
        f"**{headline(groups, told.delta)}**",
        table(["", *VERDICTS], [[what, *map(str, n)] for what, n in counts(cells, groups)]),
        _table(groups),
        "\n".join(f"* {line}" for line in remarks(drift, told)),
        "What else differs (A → B):\n\n" + "\n".join(differ) if differ else "",
        method(told, "*"),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def title(told: Told) -> str:
    """Which runs are compared."""
    return f"{', '.join(told.b)} against {', '.join(told.a)}"


def headline(groups: pd.DataFrame, delta: float) -> str:
    """What a guard decides by, in one sentence."""
    n, slow = len(groups), int(groups["alarm"].sum())
    bound = percent(delta, sign=False)
    if slow:
        whose = "group's best" if n == 1 else "groups' bests"
        return f"{slow} of {n} {whose} got slower by more than {bound}."
    return f"Of {n} groups no best surely got slower by more than {bound}."


def counts(cells: pd.DataFrame, groups: pd.DataFrame) -> list[tuple[str, list[int]]]:
    """How many groups' bests, groups and cells have each of VERDICTS."""
    return [
        (what, [int((told == verdict).sum()) for verdict in VERDICTS])
        for what, told in (
            ("groups' bests", groups["verdict"]),
            ("groups as a whole", groups["whole_verdict"]),
            ("cells", cells["verdict"]),
        )
    ]


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown; a bar in a cell's text is no border."""
    lines = [heads, *rows]
    texts = [" | ".join(cell.replace("|", "\\|") for cell in line) for line in lines]
    first, *others = (f"| {text} |" for text in texts)
    return "\n".join([first, "|---" * len(heads) + "|", *others])


def changed_groups(groups: pd.DataFrame) -> pd.DataFrame:
    """The groups to be named: those with an alarm first, then what changed, the most first."""
    changed = groups[["verdict", "whole_verdict"]].isin([Became.SLOWER, Became.FASTER])
    named = groups[groups["alarm"] | changed.any(axis=1)]
    size = named["change"].abs()
    return (
        named.assign(size=size).sort_values(["alarm", "size"], ascending=False).drop(columns="size")
    )


def _table(groups: pd.DataFrame) -> str:
    named = changed_groups(groups)
    if named.empty:
        return ""
    rows = []
    for row in named.head(MOST_ROWS).to_dict("records"):
        speeds = f"{significant(row['a_gbs'])} → {significant(row['b_gbs'])}"
        verdict = f"**{row['verdict']}**" if row["alarm"] else row["verdict"]
        changes = change(row), change(row, "beside_copy")
        last = winner_words(row), whole_words(row)
        rows.append([group_words(row), speeds, *changes, verdict, *last])
    left = len(named) - MOST_ROWS
    return table(HEADS, rows) + (f"\n\n{left} more changed." if left > 0 else "")


def whole_words(row: Mapping[str, Any]) -> str:
    """What all cells of the group changed by, together."""
    return f"{row['whole_verdict']}: {change(row, 'whole')}"


def winner_words(row: Mapping[str, Any]) -> str:
    """Whether A's best is still among B's best, and what B's is."""
    if row["winner_held"]:
        return "still tied" if row["best_a"] != row["best_b"] else "still the best"
    return f"no longer: {row['best_a']} → {row['best_b']}"


def drift_lines(drift: pd.DataFrame, delta: float) -> list[str]:
    """What the machine itself did, by the runtime's own copy."""
    if drift.empty:
        return ["No copy of the runtime was timed: what the machine itself did is not told apart."]
    middle, most = drift["change"].median(), drift["change"].abs().idxmax()
    row = drift.loc[most].to_dict()
    place = (
        f"{row['kernel']}, {row['dtype']}, {row['height']} × {row['width']}, {row['cache_state']}"
    )
    places = f"{len(drift)} places" if len(drift) > 1 else "one place"
    lines = [
        f"The machine itself: the time of the runtime's own copy changed by {percent(middle)}, the "
        f"median of {places}, and by {change(row)} at most ({place})."
    ]
    if (drift["change"].abs() > delta).mean() > 0.5:
        lines.append(
            "The machine itself changed by more than what is asked for; judge by the changes "
            "beside the copy, and measure again."
        )
    return lines


def _missing(missing: pd.DataFrame) -> list[str]:
    lines = []
    for side, other in (("A", "B"), ("B", "A")):
        lost = missing[missing["verified_in"] == side]
        if lost.empty:
            continue
        how = ", ".join(f"{n} {status}" for status, n in lost["status"].value_counts().items())
        swept = lost[lost["status"] != "not swept"]
        named = [
            f"{row['kernel']} {row['dtype']} {row[PARAMS]} ({row['status']})".replace("  ", " ")
            for row in swept.head(_MOST_NAMED).to_dict("records")
        ]
        lines.append(
            f"{len(lost)} cells that {side} verified have no verified time in {other}: {how}"
            + (f"; such as {'; '.join(named)}." if named else ".")
        )
    return lines
