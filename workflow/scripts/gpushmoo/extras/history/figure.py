"""Figures of many runs: each group's bests in the order of time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ...comparing.run_history import BEST, BESTS, COPY, BestChange, bests_of, read_history
from ...core.display import mode_words, size_words
from ...core.schema import GROUP
from ...figures.run_changes import ACROSS, MAX_PANELS
from ...figures.style import OKABE_ITO, PAGE_WIDTH, apply_style, save, save_words

# Quantities below each other, each with a separate scale, because a copy may be much faster:
# column, name, color, mark, height.
_LINES = ((BEST, "best", OKABE_ITO[0], "o", 2.0), (COPY, "copy", OKABE_ITO[1], "s", 1.0))
# Characters a line that a panel's title has.
TITLE_WIDTH = 40
CAPTION = (
    "Bandwidth of each group's best with its 95 % interval, and below it of the runtime's own "
    "copy, over runs in the order of time. Scales differ."
)


def history_figure(tables: Sequence[Path], svg: Path) -> None:
    """Draw the `tables` of a run's history: the groups whose bests changed most."""
    apply_style()
    found = read_history(tables[0].parent)
    if found.why is not None:
        save_words(svg, "There is no history", found.why)
        return
    changes = found.changes()
    few = f" Of {len(changes)} groups the {MAX_PANELS} whose bests changed most."
    title = f"Each group's best over {found.rows['number'].nunique()} runs"
    caption = CAPTION + (few if len(changes) > MAX_PANELS else "")
    save(draw_timelines(_rows_of(changes[:MAX_PANELS], found.rows)), svg, title, caption)


def _rows_of(chosen: Sequence[BestChange], rows: pd.DataFrame) -> pd.DataFrame:
    """Those of the `rows` that are of the `chosen` groups."""
    names = list(GROUP)
    keys = pd.MultiIndex.from_frame(pd.DataFrame([change.group for change in chosen])[names])
    return rows[pd.MultiIndex.from_frame(rows[names]).isin(keys)]


def draw_timelines(rows: pd.DataFrame) -> Figure:
    """Draw a panel for each group: its bests (`rows`) over runs in the order of time."""
    names = list(GROUP)
    groups = list(rows.groupby(names, observed=True))
    down = -(-len(groups) // ACROSS)
    figure, axes = plt.subplots(
        len(_LINES) * down,
        ACROSS,
        figsize=(PAGE_WIDTH, 2.1 * down + 0.4),
        squeeze=False,
        sharex=True,
        height_ratios=[height for *_, height in _LINES] * down,
    )
    for ax in axes.flat:
        ax.set_axis_off()
        ax.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    for place, (_, group) in enumerate(groups):
        top = place // ACROSS * len(_LINES)
        both = axes[top : top + len(_LINES), place % ACROSS]
        for ax, (column, name, colour, mark, _) in zip(both, _LINES, strict=True):
            ax.set_axis_on()
            quantity, columns = bests_of(group) if column == BEST else (column, [column])
            _line(ax, group, columns, colour, mark)
            unit = BESTS.get(quantity, "GB/s")
            ax.set_ylabel(f"{name} ({unit})", fontsize=6.5, color=colour)
        both[0].set_title(_title(group.iloc[0], _named(rows)), fontsize=6.5, loc="left")
        both[-1].set_xlabel("run (number)", fontsize=6.5)
        both[-1].tick_params(labelbottom=True)
    figure.suptitle(_heading(rows), fontsize=9)
    return figure


def _line(ax: Axes, group: pd.DataFrame, columns: Sequence[str], colour: str, mark: str) -> None:
    """One quantity over runs, with the columns of its interval where it has one."""
    numbers = group["number"].to_numpy()
    values, *ends = (group[column].to_numpy(float) for column in columns)
    ax.plot(numbers, values, mark, ls="-", c=colour, ms=2.4, lw=0.7)
    if ends:
        ax.vlines(numbers, *ends, color=colour, lw=0.7)
    ax.yaxis.set_major_locator(MaxNLocator(3))
    ax.tick_params(labelsize=6)


def _heading(rows: pd.DataFrame) -> str:
    days = dict.fromkeys(f"{rows['measured_at'].agg(end):%Y-%m-%d}" for end in ("min", "max"))
    names = ("kernel", "device_name")
    common = (rows[name].iloc[0] for name in names if rows[name].nunique() == 1)
    return ", ".join([*common, " to ".join(days)])


def _named(rows: pd.DataFrame) -> list[str]:
    """Columns that a panel's title names: type, size, and those by which panels differ."""
    asked = ("dtype", "height")
    return [n for n in GROUP if n in asked or (n != "width" and rows[n].nunique() > 1)]


def _title(row: pd.Series, named: Sequence[str]) -> str:
    size = size_words(row["height"], row["width"])
    words = {"height": f"{size} elements", "timing_mode": mode_words(row["timing_mode"])}
    text = ", ".join(words.get(name, str(row[name])) for name in named)
    return "\n".join(wrap(text, TITLE_WIDTH, break_long_words=False))
