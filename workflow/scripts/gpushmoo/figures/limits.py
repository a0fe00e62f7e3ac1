"""Which limit binds each launch, by the model of the device: a map beside that of bandwidth."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.patches import Patch

from ..analysis.device_model.form import LIMITS
from ..core.display import percent
from .light_seaborn import sns
from .style import OKABE_ITO

# The palette without its black, which would outweigh all others; one colour a limit.
LIMIT_COLOURS = dict(zip(LIMITS, OKABE_ITO, strict=False))
# Limits of fewer launches than this are not named in a caption.
NAMED_SHARE = 0.05


def with_limits(cells: pd.DataFrame, device: pd.DataFrame | None) -> pd.DataFrame | None:
    """`cells` with the ``limit`` that the table of the device's model names, of those that it has.

    None without a model, or where it says nothing of any of them.
    """
    if device is None:
        return None
    names = ["device_name", "cell_key"]
    found = cells.merge(device[[*names, "limit"]], on=names)
    return None if found.empty else found


def draw_limits(ax: Axes, cells: pd.DataFrame, x: str, y: str, like: pd.DataFrame) -> None:
    """A map of ``limit`` over the rows and columns of the grid `like`; none where there is none."""
    places = cells.assign(place=cells["limit"].map({n: k for k, n in enumerate(LIMITS)}))
    grid = places.pivot_table(values="place", index=y, columns=x, aggfunc="first")
    sns.heatmap(
        grid.reindex(index=like.index, columns=like.columns),
        ax=ax,
        cmap=list(LIMIT_COLOURS.values()),
        norm=Normalize(-0.5, len(LIMITS) - 0.5),
        cbar=False,
        rasterized=True,
        xticklabels=False,
        yticklabels=False,
    )
    ax.invert_yaxis()


def limit_handles(cells: pd.DataFrame) -> list[Patch]:
    """For a legend: the colours of the limits that bind any of the cells."""
    shown = set(cells["limit"])
    return [Patch(fc=c, label=f"limit: {n}") for n, c in LIMIT_COLOURS.items() if n in shown]


def limits_words(cells: pd.DataFrame) -> str:
    """Which limits bind most of the cells: the end of a caption's last sentence."""
    shares = cells["limit"].value_counts(normalize=True)
    named = ", ".join(f"{n} {percent(s)}" for n, s in shares.items() if s >= NAMED_SHARE)
    return f"; below, the limits that the model of the device infers: {named}."
