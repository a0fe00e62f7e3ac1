"""The figure of energy: how much launches take beside how fast they are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from ...core.display import size_words
from ...figures.run_changes import ACROSS, MAX_PANELS
from ...figures.style import OKABE_ITO, PAGE_WIDTH, apply_style, save, save_words
from .energy_table import TIED_SPEED, EnergyGroup, energy_groups, launch_text, read_energy

# Characters a line that the title of a panel of energy has.
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
    widest = sorted(groups, key=_spread)[-MAX_PANELS:]
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
    """Energy of the most expensive launch over that of the cheapest."""
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
    # At least TIED_SPEED either way, so that a tie does not look large.
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
