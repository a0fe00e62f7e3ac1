"""The report's section on energy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...core.display import percent, significant, size_words
from ...report.findings import WORTH_TELLING
from .energy_table import (
    TIED_SPEED,
    EnergyGroup,
    EnergyTable,
    Row,
    differs_significantly,
    energy_groups,
    joules_ratio,
    launch_text,
)


def energy_page(table: EnergyTable) -> dict[str, Any]:
    """Sentences and the rows of a table, as display strings."""
    if table.why is not None:
        return {"sentences": [table.why], "rows": [], "device": table.device, "figured": False}
    groups = energy_groups(table.rows)
    sentences = [_idle(table), _ties(groups), _cheapest(groups)]
    slowed = sum(bool(row["throttled"]) for row in table.rows)
    if slowed:
        sentences.append(f"In {slowed} of {len(table.rows)} cells the device protected itself.")
    return {
        "device": table.device,
        "sentences": sentences,
        "rows": [_row(row, group) for group in groups for row in group.rows],
        "figured": bool(table.rows),
    }


def energy_findings(table: EnergyTable) -> list[tuple[str, float]]:
    """For the first page: which launch saves most energy over the fastest of its group.

    With the sentence stands what it is worth.
    """
    saved = _savings(energy_groups(table.rows))
    if not saved or saved[0][0] < WORTH_TELLING:
        return []
    share, group = saved[0]
    # A program's energy is seldom what it is tuned for.
    return [(_saving_words(share, group), share / 2)]


def _idle(table: EnergyTable) -> str:
    before, *after = (f"{significant(watts)} W" for watts in table.idle_w)
    return (
        f"Energy is that of the whole board, by its own counter. Idle, with the program's context "
        f"open, it took {before} before{f' and {after[-1]} after' if after else ''}; net figures "
        "have the mean of that subtracted."
    )


def _ties(groups: Sequence[EnergyGroup]) -> str:
    """Whether launches of about the same speed differ in energy."""
    several = [group.tied for group in groups if len(group.tied) > 1]
    if not several:
        return (
            f"No group has two launches within {percent(TIED_SPEED)} of its fastest, so there is "
            "no tie that energy could break."
        )
    ends = [[f(tied, key=_joules) for f in (min, max)] for tied in several]
    ratios = [(joules_ratio(dear, cheap), cheap, dear) for cheap, dear in ends]
    apart = [found for found in ratios if differs_significantly(found[0])]
    words = (
        f"Of {len(several)} groups with several launches within {percent(TIED_SPEED)} of the "
        f"fastest, energy distinguishes the cheapest from the dearest of these in {len(apart)}"
    )
    if not apart:
        return f"{words}: it breaks no tie."
    ratio, cheap, dear = max(apart, key=lambda found: found[0].mean)
    return (
        f"{words}; at most they differ by {percent(ratio.mean - 1)} ({_who(cheap)}: "
        f"{launch_text(cheap)} takes {_mj(cheap)} mJ/GB, {launch_text(dear)} {_mj(dear)} mJ/GB)."
    )


def _savings(groups: Sequence[EnergyGroup]) -> list[tuple[float, EnergyGroup]]:
    """Return the significant savings of energy of the cheapest launches over the fastest."""
    found = []
    for group in groups:
        if group.cheapest is not group.fastest:
            ratio = joules_ratio(group.cheapest, group.fastest)
            if differs_significantly(ratio) and ratio.mean < 1:
                found.append((1 - ratio.mean, group))
    return sorted(found, key=lambda pair: -pair[0])


def _cheapest(groups: Sequence[EnergyGroup]) -> str:
    saved = _savings(groups)
    several = sum(len(group.rows) > 1 for group in groups)
    if not saved:
        return (
            f"In none of {several} groups a launch is cheaper than the fastest one, significant at "
            "95 %."
        )
    return (
        f"In {len(saved)} of {several} groups a launch is cheaper than the fastest one, "
        "significant at 95 %. " + _saving_words(*saved[0])
    )


def _saving_words(share: float, group: EnergyGroup) -> str:
    cheap, fast = group.cheapest, group.fastest
    slower = 1 - cheap["gbs"] / fast["gbs"]
    return (
        f"The cheapest launch need not be the fastest: {launch_text(cheap)} takes {percent(share)} "
        f"less energy a byte than {launch_text(fast)} and is {percent(slower)} slower "
        f"({_who(fast)})."
    )


def _who(row: Row) -> str:
    return f"{row['kernel']}, {row['dtype']}, {size_words(row['height'], row['width'])}"


def _joules(row: Row) -> float:
    return float(row["joules_per_gb"])


def _mj(row: Row) -> str:
    return significant(1e3 * row["joules_per_gb"], 4)


def _row(row: Row, group: EnergyGroup) -> dict[str, Any]:
    marks = {"fastest": group.fastest, "cheapest": group.cheapest}
    mark = ", ".join(name for name, one in marks.items() if row is one)
    high = row["joules_per_gb_high"]
    return {
        "kernel": row["kernel"],
        "dtype": row["dtype"],
        "size": size_words(row["height"], row["width"]),
        "launch": launch_text(row),
        "gbs": significant(row["gbs"]),
        "power": significant(row["power_w"]),
        "energy": _mj(row),
        "half": "—" if high is None else percent((high - _joules(row)) / _joules(row)),
        "net": significant(1e3 * row["net_joules_per_gb"], 4),
        "mark": mark or ("front" if any(row is one for one in group.front) else ""),
    }
