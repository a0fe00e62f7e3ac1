"""Draw the changes between two runs; constants that figures of runs share."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from .style import OKABE_ITO, PAGE_WIDTH

# Panels beside each other, and those that have room on a page.
ACROSS = 3
MAX_PANELS = 12
# Groups that one picture shows, those that changed most.
MAX_GROUPS = 30
_COLOURS = {"slower": OKABE_ITO[1], "faster": OKABE_ITO[2], "same": OKABE_ITO[0]}
_MARKERS = {"slower": ">", "faster": "<", "same": "o"}
_OTHER = "#7a7a7a"


def draw_changes(groups: pd.DataFrame, names: Sequence[str], delta: float) -> Figure:
    """Draw each group's change in percent: raw filled, relative to memcpy hollow.

    ±`delta` shaded.
    """
    size = groups["change"].abs().to_numpy(float)
    shown = np.argsort(-size, kind="stable")[:MAX_GROUPS]
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
