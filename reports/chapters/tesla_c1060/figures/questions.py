"""The first document's open question of 16, 30 and 32 blocks, mechanism by mechanism."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
from gpushmoo.figures.style import OKABE_ITO, PAGE_WIDTH, apply_style, save
from gpushmoo.report.simulated import signed
from gpushmoo.simulation.machine import Level
from matplotlib.axes import Axes

from ..answers import (
    ALONE,
    BOARD,
    EVEN,
    Answer,
    Sizes,
    answers,
    named,
    second_blocks_slow_double,
)

BLOCKS = {16: (OKABE_ITO[0], "o"), 30: (OKABE_ITO[2], "D"), 32: (OKABE_ITO[1], "s")}


def questions(cells: pd.DataFrame, svg: Path) -> None:
    """One row for each variant of the machine, a panel for float and one for double.

    `cells` has the columns of schema.SIMULATION_SCHEMA; their first size is drawn.
    """
    apply_style()
    sizes = answers(cells)
    side, variants = next((side, list(by.values())) for side, by in sizes.items())
    figure, axes = plt.subplots(
        1, 2, figsize=(PAGE_WIDTH, 0.9 + 0.22 * len(variants)), sharey=True, sharex=True
    )
    for ax, dtype in zip(axes, ("float", "double"), strict=True):
        _panel(ax, variants, dtype)
    axes[0].set_yticks(range(len(variants)), [a.variant for a in variants], fontsize=7)
    axes[0].invert_yaxis()
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=7.5)
    title = f"Simulated {cells['device'].iloc[0]}: 16, 30 and 32 blocks, {side} × {side}"
    save(figure, svg, title, _caption(sizes))


def _panel(ax: Axes, variants: list[Answer], dtype: str) -> None:
    for row, answer in enumerate(variants):
        values = [answer.gbs[dtype, n] for n in BLOCKS]
        ax.plot([min(values), max(values)], [row, row], color="0.75", lw=1.2, zorder=1)
    for n, (colour, marker) in BLOCKS.items():
        ax.scatter(
            [a.gbs[dtype, n] for a in variants],
            range(len(variants)),
            s=18,
            color=colour,
            marker=marker,
            label=f"{n} blocks",
            zorder=2,
        )
    ax.set_title(dtype, fontsize=8)
    ax.set_xlabel("bandwidth (GB/s, read + written)")
    ax.set_xlim(left=0)
    ax.grid(axis="y", lw=0.4, color="0.9")


def _caption(sizes: Sizes) -> str:
    side, shown = next(iter(sizes.items()))
    board, alone, even = (shown[named(BOARD, Level.BUS, c)] for c in ("", ALONE, EVEN))
    if second_blocks_slow_double(sizes):
        words = (
            "If an SM takes its second block after its first, with the memory at the board's clock "
            f"on one bus, double falls from 16 to 32 blocks by {-100 * alone.double_change:.0f} %: "
            f"for {100 * alone.lonely_share:.0f} % of the time the SMs with two blocks work alone "
            "and leave the bus idle, which 16 blocks of double keep busy; float does "
            f"{signed(alone.float_change)}. So it is at every size and level. On 32 SMs double "
            f"does {signed(even.double_change)}."
        )
    else:
        words = (
            "With the memory at the board's clock, on one bus, double does from 16 to 32 blocks "
            f"{signed(board.double_change)}, with one block an SM at a time "
            f"{signed(alone.double_change)}, on 32 SMs {signed(even.double_change)}."
        )
    whole = [a.variant for a in shown.values() if a.shows_all]
    facts = (
        f"All three facts of the document (float as it was, double slower, 30 best) come out at "
        f"{side}² for: {'; '.join(whole)}."
        if whole
        else f"In no variant do all three facts of the document come out at {side}²."
    )
    return f"{words} {facts} Nothing here was measured."
