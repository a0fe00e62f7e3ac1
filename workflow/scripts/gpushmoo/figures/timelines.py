"""Each group's best over runs, the runtime's own copy beside it, and where their means changed."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from ..core.display import kind_words
from ..core.schema import GROUP
from .style import OKABE_ITO, PAGE_WIDTH

_ACROSS = 3
_BEST, _COPY = OKABE_ITO[0], OKABE_ITO[1]
# Column, colour, mark, line, how high (a share of the panel) its changes are written, name. Marks
# and lines tell them apart in grey, too.
_LINES = (
    ("bandwidth_gbs", _BEST, "o", "-", 1.0, "best of the group"),
    ("copy_gbs", _COPY, "s", ":", 0.88, "runtime's own copy"),
)
# A panel's room above its highest mark for what is written there, a share of its height.
_HEAD_ROOM = 0.22


def draw_timelines(rows: pd.DataFrame, changes: pd.DataFrame) -> Figure:
    """One panel for each group of one kernel: bandwidth in GB/s over runs in the order of time.

    `rows` are its bests by run (HISTORY_SCHEMA), `changes` the change points
    (CHANGE_POINTS_SCHEMA). Scales differ between panels.
    """
    names = list(GROUP)
    # What stands beside the names that all panels share.
    told = [name for name in names[:-1] if rows[name].nunique() > 1 or name in ("dtype", "height")]
    told += ["device_name"] if rows["device_name"].nunique() > 1 else []
    groups = list(rows.groupby(names, observed=True))
    down = -(-len(groups) // _ACROSS)
    figure, axes = plt.subplots(
        down, _ACROSS, figsize=(PAGE_WIDTH, 1.75 * down + 0.6), squeeze=False, sharex=True
    )
    for ax, (key, group) in zip(axes.flat, groups, strict=False):
        of_group = changes[(changes[names] == list(key)).all(axis=1)]
        _panel(ax, group, of_group)
        ax.set_title(_title(group.iloc[0], told), fontsize=6.5, loc="left")
    for ax in axes.flat[len(groups) :]:
        ax.set_axis_off()
    for ax in axes[:, 0]:
        ax.set_ylabel("bandwidth (GB/s)", fontsize=7)
    for ax in axes.flat[max(0, len(groups) - _ACROSS) : len(groups)]:
        ax.tick_params(labelbottom=True)
        ax.set_xlabel("run", fontsize=7)
    days = [f"{rows['measured_at'].agg(end):%Y-%m-%d}" for end in ("min", "max")]
    device = f", {rows['device_name'].iloc[0]}" if rows["device_name"].nunique() == 1 else ""
    figure.suptitle(f"{rows['kernel'].iloc[0]}{device}: {' to '.join(dict.fromkeys(days))}")
    figure.legend(handles=_key(), loc="outside lower center", ncols=3, fontsize=7)
    return figure


def _key() -> list[Line2D]:
    marks = [
        Line2D([], [], color=colour, marker=marker, ls=line, lw=0.9, ms=3.5, label=name)
        for _, colour, marker, line, _, name in _LINES
    ]
    return [
        *marks,
        Line2D([], [], color="black", lw=0.9, ls="--", label="change point, in its colour"),
    ]


def _panel(ax: Axes, group: pd.DataFrame, changes: pd.DataFrame) -> None:
    numbers = group["number"].to_numpy()
    for column, colour, marker, line, height, _ in _LINES:
        values = group[column].to_numpy(float)
        ax.plot(numbers, values, marker, ls=line, c=colour, ms=2.4, lw=0.7)
        of_line = changes[changes["quantity"] == column].to_dict("records")
        for row in of_line:
            # Between the last run before and the first after.
            x = row["number"] - 0.5
            ax.axvline(x, color=colour, lw=0.9, ls="--")
            ax.annotate(
                f"{100 * row['change']:+.1f} %".replace("-", "−"),
                (x, height),
                xycoords=("data", "axes fraction"),
                xytext=(-2, -1),
                textcoords="offset points",
                ha="right",
                va="top",
                fontsize=6,
                color=colour,
            )
    low, high = (group[f"bandwidth_{end}_gbs"].to_numpy(float) for end in ("low", "high"))
    ax.vlines(numbers, low, high, color=_BEST, lw=0.7)
    bottom, top = ax.get_ylim()
    ax.set_ylim(bottom, top + _HEAD_ROOM * (top - bottom))
    ax.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    ax.yaxis.set_major_locator(MaxNLocator(4))
    ax.tick_params(labelsize=6.5)


def _title(row: pd.Series, told: Sequence[str]) -> str:
    size = (
        f"{row['height']}²"
        if row["height"] == row["width"]
        else f"{row['height']} × {row['width']}"
    )
    words = {"height": f"{size} elements", "launch_kind": kind_words(row["launch_kind"])}
    shown = [words.get(name, str(row[name])) for name in told if name not in ("kernel", "width")]
    return ", ".join(shown)
