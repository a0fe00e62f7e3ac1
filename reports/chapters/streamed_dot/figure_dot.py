"""The document's dot-product plots drawn again, with our measurements in them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from gpushmoo.core.display import gbs, length, percent, seconds, significant
from gpushmoo.core.paths import CHAPTERS
from gpushmoo.figures.style import OKABE_ITO, PAGE_WIDTH, apply_style, save
from gpushmoo.storage.dataset import read_medians
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullLocator

from .analysis import (
    DEVICE_TO_HOST,
    DOTS,
    HOST_TO_DEVICE_GBS,
    PCIE,
    PLOTS,
    copied_gbs,
    plot_series,
    read_dot,
)

TYPES = ("(double)", "(float)")
SQUARE = "(square)"
# By kind of published series: muted, so that measured series are prominent.
MUTED = {"AVX": "#a89878", "CUDA": "#8798a8", f"CUDA {SQUARE}": "#a88fa6"}
PUBLISHED_MARKERS = {"(double)": "s", "(float)": "o"}
OUR_MARKERS = ("^", "D", "v", "P", "X")
REFERENCE_COLOUR = "#555555"
OUR_LINE = "#000000"
REFERENCE_DASHES = {PCIE: "-", DEVICE_TO_HOST: (0, (1, 1.5))}
HOST_TO_DEVICE_DASHES = (0, (7, 3))
MAX_TICKS = 12
FEW_DECADES = 1e3


def draw_plot(plot: str, dataset: Path, svg: Path) -> None:
    """One of `PLOTS`, with the dot products of the data set in it."""
    cells = read_medians(dataset, {"kernel": DOTS})
    ours = plot_series(cells, PLOTS[plot].unit, square=plot.endswith("_square"))
    published = read_dot(CHAPTERS / "streamed_dot/published", plot)
    dot(published, ours, plot, svg, copied_gbs(cells))


def dot(
    published: pd.DataFrame,
    ours: pd.DataFrame,
    plot: str,
    svg: Path,
    copied_gbs: float | None = None,
) -> None:
    """One of `PLOTS` over n, the elements of one array.

    `published` is what `read_dot` gives for `plot`. `ours` has the columns ``series``, ``n`` and
    ``value``, the latter in the plot's unit (ms or GB/s), and may be empty. The caption compares a
    series of ours with the published ones when its name has their type, ``(float)`` or
    ``(double)``, and has ``(square)`` where they have it. `copied_gbs` is what our own link carries
    from the host to the device: a line beside the document's.
    """
    apply_style()
    figure, ax = plt.subplots(figsize=(PAGE_WIDTH, 3.7))
    measured = published[~published["reference"]]
    for name, rows in measured.groupby("series", sort=False):
        _published_series(ax, str(name), rows)
    for i, (name, rows) in enumerate(ours.groupby("series", sort=False)):
        colour, marker = OKABE_ITO[i % len(OKABE_ITO)], OUR_MARKERS[i % len(OUR_MARKERS)]
        ax.plot(rows["n"], rows["value"], c=colour, lw=1.3, marker=marker, ms=4, label=name)
    times = PLOTS[plot].unit == "ms"
    if not times:
        _reference_lines(ax, published)
        if copied_gbs is not None:
            label = f"host to device, ours, {gbs(copied_gbs)}"
            ax.axhline(copied_gbs, ls=HOST_TO_DEVICE_DASHES, c=OUR_LINE, lw=0.8, label=label)
    _axes(ax, [*published["n"], *ours["n"]], plot)
    entries = len(ax.get_legend_handles_labels()[1])
    columns = 2 if entries <= 4 else 3
    figure.legend(loc="outside lower center", ncols=columns, fontsize=7, columnspacing=1.2)
    findings = _time_findings(measured) if times else _throughput_findings(published)
    parts = [*findings, *_our_findings(measured, ours, times)]
    what = "sum of squares" if plot.endswith("_square") else "dot product"
    title = f"{what}: {'running time' if times else 'throughput'} over the array's length"
    save(figure, svg, title, " ".join(parts), plot=plot)


def _type(name: str) -> str | None:
    return next((t for t in TYPES if t in name), None)


def _published_series(ax: Axes, name: str, rows: pd.DataFrame) -> None:
    dtype = _type(name) or TYPES[0]
    colour = MUTED[name.removesuffix(dtype).strip()]
    ax.plot(
        rows["n"],
        rows["value"],
        color=colour,
        ls="--",
        lw=0.9,
        marker=PUBLISHED_MARKERS[dtype],
        ms=3.5,
        mfc="white" if dtype == "(float)" else colour,
        mew=0.8,
        label=f"{name}, published",
    )


def _reference_lines(ax: Axes, published: pd.DataFrame) -> None:
    style: dict[str, Any] = {"color": REFERENCE_COLOUR, "lw": 0.8}
    for name, dashes in REFERENCE_DASHES.items():
        value = _line(published, name)
        ax.axhline(value, ls=dashes, label=f"{_short(name)}, {gbs(value)}", **style)
    label = f"host to device, {gbs(HOST_TO_DEVICE_GBS)}"
    ax.axhline(HOST_TO_DEVICE_GBS, ls=HOST_TO_DEVICE_DASHES, label=label, **style)


def _line(published: pd.DataFrame, name: str) -> float:
    return float(published.loc[published["series"] == name, "value"].iloc[0])


def _short(reference: str) -> str:
    return "device to host" if reference == DEVICE_TO_HOST else reference


def _axes(ax: Axes, lengths: list[int], plot: str) -> None:
    ax.set_xscale("log", base=2)
    first, last = int(np.floor(np.log2(min(lengths)))), int(np.ceil(np.log2(max(lengths))))
    step = -(-(last - first + 1) // MAX_TICKS)
    ticks = [2**e for e in range(first, last + 1) if (last - e) % step == 0]
    ax.set_xlim(2 ** (first - 0.5), 2 ** (last + 0.5))
    ax.set_xticks(ticks, [length(t) for t in ticks])
    ax.minorticks_off()
    ax.set_xlabel("length n of an array (elements)")
    if PLOTS[plot].unit == "ms":
        _time_axis(ax)
        return
    arrays = "both arrays" if PLOTS[plot].x_per_n == 2 else "one array"
    ax.set_ylabel(f"throughput (GB/s, bytes of {arrays})")
    ax.set_ylim(bottom=0)


def _time_axis(ax: Axes) -> None:
    ax.set_yscale("log")
    ax.set_ylabel("running time (ms)")
    low, high = ax.get_ylim()
    # Powers of ten alone would leave a short axis with one or two numbers.
    if high < FEW_DECADES * low:
        ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        ax.yaxis.set_major_formatter("{x:g}")
        ax.yaxis.set_minor_locator(NullLocator())


def _time_findings(measured: pd.DataFrame) -> Iterator[str]:
    """AVX against CUDA of a type; without AVX the squares against the products."""
    names = list(measured["series"].unique())
    for dtype in TYPES:
        pair = [n for n in names if _type(n) == dtype]
        fast, slow = sorted(pair, key=lambda n: (n.startswith("CUDA"), SQUARE not in n))
        one, other = (_curve(measured, n) for n in (fast, slow))
        start = _ahead_from(one < other)
        if start is not None:
            share = percent(one.iloc[-1] / other.iloc[-1])
            end = length(one.index[-1])
            yield (
                f"{fast} is faster than {slow} at every n from {length(start)} on and takes "
                f"{share} of its time at n = {end}."
            )
    cuda = measured[measured["series"].str.startswith("CUDA")]
    yield f"No CUDA time is below {seconds(cuda['value'].min() * 1e-3)}, however short the array."


def _throughput_findings(published: pd.DataFrame) -> Iterator[str]:
    pcie, back = (_line(published, name) for name in (PCIE, DEVICE_TO_HOST))
    for name in published.loc[~published["reference"], "series"].unique():
        curve = _curve(published, name)
        half, above = _ahead_from(curve > pcie / 2), _ahead_from(curve > back)
        said = f"{name} reaches {gbs(curve.max())} at n = {length(curve.idxmax())}, "
        said += f"{percent(curve.max() / pcie)} of {PCIE}"
        if half is not None:
            said += f"; it stays above half of that line from n = {length(half)} on"
        if above is not None:
            said += f" and above the device-to-host line from n = {length(above)} on"
        yield f"{said}."
    yield "The line of host to device is from the document's text. Its plots do not have this line."


def _curve(rows: pd.DataFrame, name: str) -> pd.Series:
    return rows[rows["series"] == name].set_index("n")["value"].sort_index()


def _ahead_from(ahead: pd.Series) -> int | None:
    """The first n from which `ahead` (indexed by n, ascending) holds to the end."""
    behind = np.flatnonzero(~ahead.to_numpy())
    start = behind[-1] + 1 if len(behind) else 0
    return int(ahead.index[start]) if start < len(ahead) else None


def _our_findings(measured: pd.DataFrame, ours: pd.DataFrame, times: bool) -> Iterator[str]:
    """Each series of ours against the published ones that do the same to the same type.

    Times at the longest array that both have, throughputs each at its best.
    """
    for name in ours["series"].unique():
        curve = _curve(ours, name)
        rivals = _rivals(measured, str(name))
        shared = [n for n in curve.index if all(n in rival.index for rival in rivals.values())]
        n = max(shared or curve.index) if times else curve.idxmax()
        value = curve.loc[n]
        speed_words = f"takes {seconds(value * 1e-3)}" if times else f"reaches {gbs(value)}"
        text = f"{name} {speed_words} at n = {length(n)}"
        # Without a shared length there is nothing to compare times at.
        for rival, rival_curve in rivals.items() if shared or not times else ():
            speed = rival_curve.loc[n] / value if times else value / rival_curve.max()
            text += f", {significant(speed, 2)} times the {'speed' if times else 'best'} of {rival}"
        yield f"{text}."


def _rivals(measured: pd.DataFrame, name: str) -> dict[str, pd.Series]:
    """Return the published curves of the same type and product as `name`."""
    names = [s for s in measured["series"].unique() if _type(s) and _type(s) == _type(name)]
    same = [s for s in names if (SQUARE in s) == (SQUARE in name)]
    return {s: _curve(measured, s) for s in same}
