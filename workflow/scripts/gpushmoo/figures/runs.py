"""Draw figures of runs: changes of the bests between two, and the energy of launches."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ..analysis.energy import TIED_SPEED, EnergyGroup, energy_groups, launch_text, read_energy
from ..core.display import size_words
from .style import OKABE_ITO, PAGE_WIDTH, apply_style, save, save_words

ACROSS = 3
# Panels that have room on a page.
MOST_PANELS = 12
# Groups that one picture shows, those that changed most.
MOST_GROUPS = 30
_COLOURS = {"slower": OKABE_ITO[1], "faster": OKABE_ITO[2], "same": OKABE_ITO[0]}
_MARKERS = {"slower": ">", "faster": "<", "same": "o"}
_OTHER = "#7a7a7a"


def draw_changes(groups: pd.DataFrame, names: Sequence[str], delta: float) -> Figure:
    """Draw each group's change in percent: raw filled, relative to memcpy hollow.

    ±`delta` shaded.
    """
    size = groups["change"].abs().to_numpy(float)
    shown = np.argsort(-size, kind="stable")[:MOST_GROUPS]
    shown = shown[np.argsort(groups["change"].to_numpy(float)[shown], kind="stable")]
    rows = groups.iloc[shown]
    figure, axes = plt.subplots(figsize=(PAGE_WIDTH, 0.7 + 0.19 * len(rows)))
    axes.axvspan(-100 * delta, 100 * delta, color="#e8e8e8", lw=0)
    axes.axvline(0.0, color="#aaaaaa", lw=0.6)
    for place, row in enumerate(rows.to_dict("records")):
        colour = _COLOURS.get(row["verdict"], _OTHER)
        for name, offset, face in (("change", 0.14, colour), ("change_vs_memcpy", -0.16, "white")):
            if pd.isna(row[name]):
                continue
            ends = [100 * row[f"{name}_{end}"] for end in ("low", "high")]
            axes.plot(ends, [place + offset] * 2, color=colour, lw=1.0 if face == colour else 0.5)
            marker = _MARKERS.get(row["verdict"], "o")
            axes.plot(100 * row[name], place + offset, marker, c=colour, mfc=face, ms=3.6, mew=0.7)
    axes.set_yticks(range(len(rows)), [names[i] for i in shown], fontsize=6)
    axes.set_ylim(-0.7, len(rows) - 0.3)
    axes.set_xlabel("change of the time of the group's best in %")
    return figure


# Characters per line of the title of a panel of energy.
_ENERGY_TITLE = 32
_FRONT, _BEHIND = OKABE_ITO[1], OKABE_ITO[0]


def energy_figure(energy: Path, svg: Path) -> None:
    """Draw the table `energy`: a panel for each of the groups that differ most in energy."""
    apply_style()
    table = read_energy(energy)
    groups = energy_groups(table.rows)
    if not groups:
        save_words(svg, "Energy was not measured", table.why or "There is nothing to draw.")
        return
    widest = sorted(groups, key=_spread)[-MOST_PANELS:]
    shown = [group for group in groups if group in widest]
    down = -(-len(shown) // ACROSS)
    figure, axes = plt.subplots(
        down, ACROSS, figsize=(PAGE_WIDTH, 2.15 * down + 0.5), squeeze=False
    )
    for ax, group in zip(axes.flat, shown, strict=False):
        _panel(ax, group)
    for ax in axes.flat[len(shown) :]:
        ax.set_axis_off()
    for ax in axes[:, 0]:
        ax.set_ylabel("energy (GB/J)")
    # Below the lowest panel of each column.
    for column in range(min(ACROSS, len(shown))):
        axes[(len(shown) - 1 - column) // ACROSS, column].set_xlabel("bandwidth (GB/s)")
    marks = (("fastest", ">"), ("cheapest", "^"), ("other", "o"))
    handles = [
        Line2D([], [], color=_FRONT, marker="o", mec="black", ms=5, label="front"),
        *(Line2D([], [], ls="", marker=m, mfc="white", mec=_BEHIND, label=n) for n, m in marks),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, fontsize=7.5)
    title = f"Bandwidth and energy of launches: {table.device}"
    save(figure, svg, title, _caption(shown, len(groups)))


def _spread(group: EnergyGroup) -> float:
    """Return the energy of the most expensive launch divided by that of the cheapest."""
    energies = [row["joules_per_gb"] for row in group.rows]
    return float(max(energies) / min(energies))


def _panel(ax: Axes, group: EnergyGroup) -> None:
    fastest, cheapest, front = group.fastest, group.cheapest, group.front
    points = [(row["gbs"], 1 / row["joules_per_gb"]) for row in front]
    ax.plot(*zip(*points, strict=True), color=_FRONT, lw=0.9, zorder=1)
    for row in group.rows:
        is_front = any(row is one for one in front)
        colour = _FRONT if is_front else _BEHIND
        low, high = row["joules_per_gb_low"], row["joules_per_gb_high"]
        if low is not None and low > 0:
            ax.plot([row["gbs"]] * 2, [1 / high, 1 / low], color=colour, lw=0.8, zorder=2)
        ax.plot(
            row["gbs"],
            1 / row["joules_per_gb"],
            ">" if row is fastest else "^" if row is cheapest else "o",
            mfc=colour if is_front else "white",
            mec="black" if is_front else colour,
            ms=5,
            zorder=3,
        )
    size = size_words(fastest["height"], fastest["width"])
    lines = [f"{fastest['kernel']}, {fastest['dtype']}, {size}"]
    lines.append(f"fastest: {launch_text(fastest)}")
    if cheapest is not fastest:
        lines.append(f"cheapest: {launch_text(cheapest)}")
    wrapped = [part for line in lines for part in wrap(line, _ENERGY_TITLE)]
    ax.set_title("\n".join(wrapped), fontsize=6.5, loc="left")
    ax.margins(0.12)
    # Show at least TIED_SPEED on both sides, so that a tie does not look large.
    for (low, high), widen in ((ax.get_xlim(), ax.set_xlim), (ax.get_ylim(), ax.set_ylim)):
        middle, half = (low + high) / 2, (high - low) / 2
        if half < TIED_SPEED * middle:
            widen((1 - TIED_SPEED) * middle, (1 + TIED_SPEED) * middle)
    ax.locator_params(nbins=4)
    ax.ticklabel_format(useOffset=False)


def _caption(shown: Sequence[EnergyGroup], groups: int) -> str:
    rounds = min(row["rounds"] for group in shown for row in group.rows)
    left_out = (
        f" The {len(shown)} of {groups} groups whose launches differ most in energy."
        if len(shown) < groups
        else ""
    )
    return (
        "Up is cheaper, right is faster; scales differ. Each mark is a launch, with the 95 % "
        f"interval of its energy over {rounds} rounds; idle power is part of it. Filled and joined "
        "by a line: the front, launches of which none is both faster and cheaper." + left_out
    )
