"""The report's page of energy: what a gigabyte costs, and whether energy breaks ties of speed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..analysis.energy import (
    TIED_SPEED,
    EnergyGroup,
    EnergyTable,
    Row,
    energy_groups,
    is_told_apart,
    joules_ratio,
    launch_text,
)
from ..core.display import percent, significant
from .findings import Finding
from .tables import Json, size_words

FIGURE = "energy.svg"
# A saving below this is not told on the first page.
_WORTH_TELLING = 0.02


def energy_page(table: EnergyTable) -> Json:
    """Sentences and the rows of a table, as display strings."""
    if table.why is not None:
        return {"sentences": [table.why], "rows": [], "device": table.device}
    groups = energy_groups(table.rows)
    return {
        "device": table.device,
        "sentences": [_idle(table), _ties(groups), _cheapest(groups), *_slowed(table.rows)],
        "rows": [_row(row, group) for group in groups for row in group.rows],
    }


def energy_findings(table: EnergyTable) -> list[Finding]:
    """For the first page: the launch that saves most energy over the fastest of its group."""
    saved = _savings(energy_groups(table.rows))
    if not saved or saved[0][0] < _WORTH_TELLING:
        return []
    share, group = saved[0]
    # A program's energy is seldom what it is tuned for.
    return [Finding(_saving_words(share, group), share / 2, FIGURE)]


def _idle(table: EnergyTable) -> str:
    before, *after = (f"{significant(watts)} W" for watts in table.idle_w)
    return (
        f"Energy is that of the whole board, by its own counter. Idle, with the program's context "
        f"open, it took {before} before{f' and {after[-1]} after' if after else ''}; net figures "
        "have the mean of that subtracted."
    )


def _ties(groups: Sequence[EnergyGroup]) -> str:
    """Whether energy tells launches apart that are about as fast."""
    several = [group for group in groups if len(group.tied) > 1]
    if not several:
        return (
            f"No group has two launches within {percent(TIED_SPEED)} of its fastest, so there is "
            "no tie that energy could break."
        )
    apart = [group for group in several if is_told_apart(_tied_ratio(group))]
    words = (
        f"Of {len(several)} groups with several launches within {percent(TIED_SPEED)} of the "
        f"fastest, energy tells the cheapest and the dearest of these apart in {len(apart)}"
    )
    if not apart:
        return f"{words}: it breaks no tie."
    widest = max(apart, key=lambda group: _tied_ratio(group).mean)
    cheap, dear = _ends(widest)
    return (
        f"{words}; at most they differ by {percent(_tied_ratio(widest).mean - 1)} ({_who(widest)}: "
        f"{launch_text(cheap)} takes {_mj(cheap)}, {launch_text(dear)} {_mj(dear)})."
    )


def _ends(group: EnergyGroup) -> tuple[Row, Row]:
    """The cheapest and the dearest of the launches that are as fast as the fastest."""
    in_order = sorted(group.tied, key=lambda row: row["joules_per_gb"])
    return in_order[0], in_order[-1]


def _tied_ratio(group: EnergyGroup) -> Any:
    cheap, dear = _ends(group)
    return joules_ratio(dear, cheap)


def _savings(groups: Sequence[EnergyGroup]) -> list[tuple[float, EnergyGroup]]:
    """The share of energy that the cheapest saves over the fastest, where that is certain."""
    found = []
    for group in groups:
        if group.cheapest is not group.fastest:
            ratio = joules_ratio(group.cheapest, group.fastest)
            if is_told_apart(ratio) and ratio.mean < 1:
                found.append((1 - ratio.mean, group))
    return sorted(found, key=lambda pair: -pair[0])


def _cheapest(groups: Sequence[EnergyGroup]) -> str:
    saved = _savings(groups)
    several = sum(len(group.rows) > 1 for group in groups)
    if not saved:
        return f"In none of {several} groups a launch is certainly cheaper than the fastest one."
    return (
        f"In {len(saved)} of {several} groups a launch is certainly cheaper than the fastest one. "
        + _saving_words(*saved[0])
    )


def _saving_words(share: float, group: EnergyGroup) -> str:
    cheap, fast = group.cheapest, group.fastest
    slower = 1 - cheap["gbs"] / fast["gbs"]
    return (
        f"The cheapest launch need not be the fastest: {launch_text(cheap)} takes {percent(share)} "
        f"less energy a byte than {launch_text(fast)} and is {percent(slower)} slower "
        f"({_who(group)})."
    )


def _slowed(rows: Sequence[Row]) -> list[str]:
    slowed = sum(bool(row["throttled"]) for row in rows)
    return [f"In {slowed} of {len(rows)} cells the device protected itself."] if slowed else []


def _who(group: EnergyGroup) -> str:
    row = group.fastest
    return f"{row['kernel']}, {row['dtype']}, {size_words(row['height'], row['width'])}"


def _mj(row: Row) -> str:
    return f"{significant(1e3 * row['joules_per_gb'], 4)} mJ/GB"


def _row(row: Row, group: EnergyGroup) -> Json:
    marks = {id(group.fastest): "fastest", id(group.cheapest): "cheapest"}
    if group.fastest is group.cheapest:
        marks = {id(group.fastest): "fastest, cheapest"}
    on_front = any(row is one for one in group.front)
    half = None
    if row["joules_per_gb_high"] is not None:
        half = (row["joules_per_gb_high"] - row["joules_per_gb"]) / row["joules_per_gb"]
    return {
        "kernel": row["kernel"],
        "dtype": row["dtype"],
        "size": size_words(row["height"], row["width"]),
        "launch": launch_text(row),
        "gbs": significant(row["gbs"]),
        "power": significant(row["power_w"]),
        "energy": significant(1e3 * row["joules_per_gb"], 4),
        "half": "—" if half is None else percent(half),
        "net": significant(1e3 * row["net_joules_per_gb"], 4),
        "mark": marks.get(id(row), "front" if on_front else ""),
    }
