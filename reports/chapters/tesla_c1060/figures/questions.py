"""The first document's open question of 16, 30 and 32 blocks, mechanism by mechanism."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
from gpushmoo.figures.style import OKABE_ITO, PAGE_WIDTH, apply_style, save
from matplotlib.axes import Axes

from ..answers import Answer, answers, second_blocks_slow_double

BLOCKS = {16: (OKABE_ITO[0], "o"), 30: (OKABE_ITO[2], "D"), 32: (OKABE_ITO[1], "s")}


def questions(cells: pd.DataFrame, svg: Path) -> None:
    """One row for each variant of the machine, a panel for float and one for double.

    `cells` has the columns of schema.SIMULATION_SCHEMA.
    """
    apply_style()
    variants = answers(cells)
    figure, axes = plt.subplots(
        1, 2, figsize=(PAGE_WIDTH, 0.9 + 0.22 * len(variants)), sharey=True, sharex=True
    )
    for ax, dtype in zip(axes, ("float", "double"), strict=True):
        _panel(ax, variants, dtype)
    axes[0].set_yticks(range(len(variants)), [a.variant for a in variants], fontsize=7)
    axes[0].invert_yaxis()
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=7.5)
    side = int(cells["width"].iloc[0])
    title = f"Simulated {cells['device'].iloc[0]}: 16, 30 and 32 blocks, {side} × {side}"
    save(figure, svg, title, _caption(variants))


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


def _caption(variants: list[Answer]) -> str:
    whole = [a.variant for a in variants if a.shows_all]
    named = {a.variant: a for a in variants}
    parts = []
    board, level = named["board's clock: one bus"], named["board's clock: one bus, 32 SMs"]
    if second_blocks_slow_double(named):
        parts.append(
            "With the memory at the board's clock double falls by "
            f"{-100 * board.double_change:.0f} % from 16 to 32 blocks: for "
            f"{100 * board.lonely_share:.0f} % of the time the SMs with two blocks work alone and "
            "leave the bus idle, which 16 blocks of double keep busy. On 32 SMs nothing "
            f"falls ({100 * level.double_change:+.0f} %)."
        )
    else:
        parts.append(
            "With the memory at the board's clock, on one bus, double changes from 16 to 32 blocks "
            f"by {100 * board.double_change:+.0f} %, and on 32 SMs by "
            f"{100 * level.double_change:+.0f} %."
        )
    if whole:
        parts.append(
            "All three facts of the document (float as it was, double slower, 30 best) come out "
            f"for: {'; '.join(whole)}."
        )
    else:
        parts.append("In no variant do all three facts of the document come out.")
    parts.append("Nothing here was measured.")
    return " ".join(parts)
