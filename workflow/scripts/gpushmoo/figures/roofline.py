"""Rate of work over work a byte, below the roof of the measured peaks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from ..analysis.fastest import BYTES_TOUCHED, bytes_touched, fastest
from ..analysis.peak import cell_peak_gbs, told_share
from ..core.display import joined, percent, significant
from ..core.merit import Merit
from ..core.schema import Status
from ..workloads.views import FigureData, Roofline
from .style import (
    DTYPE_COLOURS,
    DTYPE_MARKERS,
    PAGE_WIDTH,
    apply_style,
    dtype_handles,
    save,
    save_words,
    subject,
)

# The axis reaches so many times beyond what is drawn.
_ROOM = 4.0


def draw(view: Roofline, data: FigureData, svg: Path) -> None:
    """Draw the view `Roofline`: all cells as dots, each type's and variant's fastest marked.

    Of each type a line is its roof: what loads and stores of its bytes allow, up to the measured
    peak of its work.
    """
    apply_style()
    title = f"{subject(data.cells, data.named)}: roofline"
    ok = data.cells[(data.cells["status"] == Status.OK) & data.cells["work"].notna()]
    ok = ok[(bytes_touched(ok) > 0) & ~ok["variant"].isin(data.controls)]
    if ok["work_unit"].nunique() != 1:
        save_words(svg, title, "No cells tell both their bytes and their work in one unit.")
        return
    unit = str(ok["work_unit"].iloc[0])
    merit = Merit("rate", f"G{unit}/s")
    best = fastest(ok, ["dtype", "variant"])
    dtypes = [d for d in DTYPE_COLOURS if d in set(ok["dtype"])]
    roofs = {d: _roof(data, best[best["dtype"] == d]) for d in dtypes}
    figure, ax = plt.subplots(figsize=(PAGE_WIDTH, 3.2))
    places = _intensity(ok)
    ridges = [top / slope for slope, top in roofs.values() if slope and top]
    ends = min([*places, *ridges]) / _ROOM, max([*places, *ridges]) * _ROOM
    xs = np.geomspace(*ends, 200)
    for dtype, (slope, top) in roofs.items():
        colour = DTYPE_COLOURS[dtype]
        if slope or top:
            ys = np.minimum((slope or np.inf) * xs, top or np.inf)
            ax.plot(xs, ys, color=colour, lw=1.0)
        for part, size, alpha in ((ok, 6, 0.25), (best, 34, 1.0)):
            own = part[part["dtype"] == dtype]
            mark = DTYPE_MARKERS[dtype]
            rates = merit.of(own).value
            ax.scatter(_intensity(own), rates, s=size, c=colour, marker=mark, alpha=alpha, lw=0)
    ax.set(xscale="log", yscale="log", xlim=ends)
    ax.set_xlabel(f"work a byte read or written ({unit})")
    ax.set_ylabel(merit.label)
    figure.legend(handles=dtype_handles(dtypes), loc="outside lower center", ncols=7, fontsize=7.5)
    save(figure, svg, title, _caption(best, roofs, merit, unit, data))


def _intensity(cells: pd.DataFrame) -> pd.Series:
    return cells["work"] / bytes_touched(cells)


def _roof(data: FigureData, best: pd.DataFrame) -> tuple[float | None, float | None]:
    """GB/s that the fastest cell's bytes allow, and the peak of its type's work, 10⁹ a second."""
    cell = best.loc[best["median_s"].idxmin()]
    names = ("device_name", "dtype", "work_unit")
    tops = [p.rate for p in data.work_peaks if all(getattr(p, n) == cell[n] for n in names)]
    return cell_peak_gbs(data.peak, cell), max(tops, default=None)


def _caption(
    best: pd.DataFrame, roofs: dict[str, Any], merit: Merit, unit: str, data: FigureData
) -> str:
    """The finding: what the fastest reach of their roofs, and which part of a roof is missing."""
    several = best["variant"].nunique() > 1
    told = []
    for cell in best.to_dict("records"):
        slope, top = roofs[cell["dtype"]]
        rate, place = merit.of(cell).value, cell["work"] / cell[BYTES_TOUCHED]
        name = f"{cell['dtype']}, {cell['variant']}" if several else cell["dtype"]
        words = f"{name}: {merit.text(rate)} at {significant(place)} {unit} a byte"
        by_work = top is not None and (slope is None or slope * place > top)
        share = None if by_work else told_share(data.peak, cell)
        if by_work:
            words += f", {percent(rate / top)} of the measured peak of work"
        elif share is not None:
            words += f", {share.words}"
        told.append(words)
    parts = ("bytes (kernels global_load and global_store)", "work (kernel issue)")
    missing = [
        f"the peak of {part}"
        for part, of_types in zip(parts, zip(*roofs.values(), strict=True), strict=True)
        if None in of_types
    ]
    gap = f" Not measured in this run, and not drawn: {joined(missing)}." if missing else ""
    return f"{'; '.join(told)}.{gap}"
