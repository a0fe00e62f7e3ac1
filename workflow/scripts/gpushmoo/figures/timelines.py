"""Each group's best over runs, the runtime's own copy below it, and where their means changed."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..core.display import kind_words
from ..core.schema import GROUP
from .style import OKABE_ITO, PAGE_WIDTH

_ACROSS = 3
# What stands below each other, each with a scale of its own, as a copy may be many times as fast:
# column, name, colour, mark, height.
_LINES = (
    ("bandwidth_gbs", "best", OKABE_ITO[0], "o", 2.0),
    ("copy_gbs", "copy", OKABE_ITO[1], "s", 1.0),
)
# Room above the highest mark for what is written there, a share of the height.
_HEAD_ROOM = {"bandwidth_gbs": 0.2, "copy_gbs": 0.4}


def draw_timelines(rows: pd.DataFrame, changes: pd.DataFrame) -> Figure:
    """One panel for each group of one kernel: bandwidth in GB/s over runs in the order of time.

    `rows` are its bests by run (HISTORY_SCHEMA), `changes` the change points
    (CHANGE_POINTS_SCHEMA). Scales differ between panels.
    """
    names = list(GROUP)
    groups = list(rows.groupby(names, observed=True))
    down = -(-len(groups) // _ACROSS)
    figure, axes = plt.subplots(
        len(_LINES) * down,
        _ACROSS,
        figsize=(PAGE_WIDTH, 2.1 * down + 0.4),
        squeeze=False,
        sharex=True,
        height_ratios=[height for *_, height in _LINES] * down,
    )
    for ax in axes.flat:
        ax.set_axis_off()
        ax.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    for place, (key, group) in enumerate(groups):
        of_group = changes[(changes[names] == list(key)).all(axis=1)]
        top = place // _ACROSS * len(_LINES)
        both = axes[top : top + len(_LINES), place % _ACROSS]
        for ax, (column, name, colour, mark, _) in zip(both, _LINES, strict=True):
            ax.set_axis_on()
            _line(ax, group, column, colour, mark)
            _mark_changes(ax, of_group[of_group["quantity"] == column], colour)
            ax.set_ylabel(f"{name} (GB/s)", fontsize=6.5, color=colour)
        both[0].set_title(_title(group.iloc[0], _told(rows)), fontsize=6.5, loc="left")
        both[-1].set_xlabel("run", fontsize=6.5)
        both[-1].tick_params(labelbottom=True)
    figure.suptitle(_heading(rows), fontsize=9)
    return figure


def _line(ax: Axes, group: pd.DataFrame, column: str, colour: str, mark: str) -> None:
    """One quantity over runs, with its interval where it has one."""
    numbers = group["number"].to_numpy()
    ax.plot(numbers, group[column].to_numpy(float), mark, ls="-", c=colour, ms=2.4, lw=0.7)
    if column == "bandwidth_gbs":
        low, high = (group[f"bandwidth_{end}_gbs"].to_numpy(float) for end in ("low", "high"))
        ax.vlines(numbers, low, high, color=colour, lw=0.7)
    bottom, top = ax.get_ylim()
    ax.set_ylim(bottom, top + _HEAD_ROOM[column] * (top - bottom))
    ax.yaxis.set_major_locator(MaxNLocator(3))
    ax.tick_params(labelsize=6)


def _mark_changes(ax: Axes, changes: pd.DataFrame, colour: str) -> None:
    """A line between the last run before each change and the first after it."""
    for row in changes.to_dict("records"):
        x = row["number"] - 0.5
        ax.axvline(x, color="black", lw=0.8, ls="--")
        ax.annotate(
            f"{100 * row['change']:+.1f} %".replace("-", "−"),
            (x, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(-2, 0),
            textcoords="offset points",
            ha="right",
            va="top",
            fontsize=6,
            color=colour,
        )


def _heading(rows: pd.DataFrame) -> str:
    days = dict.fromkeys(f"{rows['measured_at'].agg(end):%Y-%m-%d}" for end in ("min", "max"))
    device = f", {rows['device_name'].iloc[0]}" if rows["device_name"].nunique() == 1 else ""
    return f"{rows['kernel'].iloc[0]}{device}, {' to '.join(days)}"


def _told(rows: pd.DataFrame) -> list[str]:
    """What of a group its title says: its type and size, and what else panels differ by."""
    asked = ("dtype", "height")
    return [n for n in GROUP if n in asked or (n != "width" and rows[n].nunique() > 1)]


def _title(row: pd.Series, told: Sequence[str]) -> str:
    height, width = row["height"], row["width"]
    size = f"{height}²" if height == width else f"{height} × {width}"
    words = {"height": f"{size} elements", "launch_kind": kind_words(row["launch_kind"])}
    return ", ".join(words.get(name, str(row[name])) for name in told)
