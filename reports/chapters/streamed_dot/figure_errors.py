"""How far each way of computing a dot product is from the exact one, beside what theory allows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import numpy.typing as npt
import pandas as pd
from dot_products.summation import unit_roundoff
from dot_products.workloads import LANES
from gpushmoo.core.display import length, power, significant
from gpushmoo.core.dtypes import DTYPES
from gpushmoo.figures.style import OKABE_ITO, PAGE_WIDTH, apply_style, save
from gpushmoo.workloads.contract import ceil_div
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .numerics import ORDERS, TREE_THREADS, UNIFORM, order_bound

Array = npt.NDArray[Any]

# By mode: colour, marker, whether it is filled. Modes of one colour are akin.
LOOKS: dict[str, tuple[str, str, bool]] = {
    "streams": (OKABE_ITO[0], "o", True),
    "streams and host": (OKABE_ITO[0], "s", False),
    "squares, streams": (OKABE_ITO[5], "<", True),
    "resident": (OKABE_ITO[2], "D", True),
    "cuBLAS": (OKABE_ITO[3], "P", True),
    "BLAS, all cores": (OKABE_ITO[1], "^", True),
    "BLAS, one core": (OKABE_ITO[1], "v", False),
    "blocks, all cores": (OKABE_ITO[4], "D", False),
    "one loop": (OKABE_ITO[6], "X", True),
}
OTHER_LOOK = ("#777777", "*", True)
# Their results may be nearer to the exact one than any number of the operands' type.
TOTAL_IN_DOUBLE = ("streams", "streams and host", "squares, streams", "blocks, all cores")
SQUARE = "dot_square"
ORDER_COLOUR = "#555555"
ORDER_DASHES: dict[str, Any] = {"sequential": "-", "tree": (0, (5, 2)), "pairwise": (0, (1, 1.5))}
HOPELESS = "no digit is right"
HOPELESS_COLOUR = "#ebebeb"
# Part of a panel's height above an error of 1.
HOPELESS_SHARE = 0.1
MAX_TICKS = {"x": 9, "y": 7}


def errors(table: pd.DataFrame, svg: Path) -> None:
    """Relative errors over n for uniform data, and over the condition number at one n.

    `table` has the columns of `numerics.ERRORS_SCHEMA`; each of its dtypes has a row of panels. At
    least one exact sum must not be 0: rows where it is are left out. The caption names the modes
    that gave no number and those whose number rounding does not explain. The note's fact
    ``finding`` is on the longest uniform vectors.
    """
    apply_style()
    table = table[np.isfinite(table["condition"])]
    dtypes = [d for d in DTYPES if d in set(table["dtype"])]
    columns = _columns(table)
    size = (PAGE_WIDTH, 1.0 + 2.1 * len(dtypes))
    figure, axes = plt.subplots(
        len(dtypes), len(columns), figsize=size, squeeze=False, sharex="col", sharey="row"
    )
    for row, dtype in zip(axes, dtypes, strict=True):
        _y_axis(row[0], dtype, _lowest(table[table["dtype"] == dtype], dtype))
        for ax, (x, rows) in zip(row, columns.items(), strict=True):
            _panel(ax, rows, x, dtype)
    for ax, (x, rows) in zip(axes[-1], columns.items(), strict=True):
        _x_axis(ax, x, rows)
    _legend(figure)
    given = {x: rows[rows["relative_error"].notna()] for x, rows in columns.items()}
    finding = " ".join(_on_lengths(given["n"])) if "n" in given else ""
    title = "dot products: relative error against the exact result"
    parts = [finding, *_remarks(table, columns)]
    save(figure, svg, title, " ".join(filter(None, parts)), finding=finding)


def _columns(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return rows by the variable on the axis: ``n``, and ``condition`` at the n with several."""
    uniform = table["condition"] <= UNIFORM
    lengths = table.loc[~uniform, "n"]
    columns = {"n": table[uniform], "condition": table[table["n"] == lengths.max()]}
    return {x: rows for x, rows in columns.items() if len(rows)}


def _lowest(rows: pd.DataFrame, dtype: str) -> float:
    """The power of ten that is the panel's lower edge, where errors of 0 are drawn."""
    seen = rows["relative_error"][rows["relative_error"] > 0]
    least = min([unit_roundoff(DTYPES[dtype].scalar) / 10, *seen / 2])
    return float(10.0 ** np.floor(np.log10(least)))


def _y_axis(ax: Axes, dtype: str, low: float) -> None:
    ax.set_yscale("log")
    decades = round(-np.log10(low))
    ax.set_ylim(low, 10 ** (decades * HOPELESS_SHARE / (1 - HOPELESS_SHARE)))
    step = ceil_div(decades, MAX_TICKS["y"])
    ax.set_yticks([10.0**-e for e in range(0, decades + 1, step)])
    ax.minorticks_off()
    ax.set_ylabel(f"relative error, {dtype}")


def _panel(ax: Axes, rows: pd.DataFrame, x: str, dtype: str) -> None:
    low, high = ax.get_ylim()
    ax.axhspan(1, high, color=HOPELESS_COLOUR, lw=0)
    middle = (0.5, 1 - HOPELESS_SHARE / 2)
    ax.annotate(HOPELESS, middle, xycoords="axes fraction", ha="center", va="center", fontsize=6.5)
    for order, dashes in ORDER_DASHES.items():
        line = _bound_line(rows, x, order, dtype)
        ax.plot(*line, c=ORDER_COLOUR, ls=dashes, lw=0.9, label=f"bound, {order}")
    of_dtype = rows[(rows["dtype"] == dtype) & rows["relative_error"].notna()].sort_values(x)
    for mode in _in_order(of_dtype["mode"]):
        colour, marker, filled = LOOKS.get(mode, OTHER_LOOK)
        points = of_dtype[of_dtype["mode"] == mode]
        ax.plot(
            points[x],
            points["relative_error"].clip(low, 1),
            color=colour,
            lw=0.4,
            marker=marker,
            ms=3.5,
            # If modes agree, both remain visible.
            mfc=colour if filled else "none",
            mew=0.7,
            label=mode,
            # Markers on the lower edge are drawn whole.
            clip_on=False,
            zorder=3,
        )


def _bound_line(rows: pd.DataFrame, x: str, order: str, dtype: str) -> Array:
    """Places and bounds (2, points) of an order of summation, as far as the bounds are below 1."""
    n = int(rows["n"].iloc[0])
    points = []
    for place in np.geomspace(rows[x].min(), rows[x].max(), 200):
        where = (round(place), UNIFORM) if x == "n" else (n, place)
        points.append((place, order_bound(order, where[0], dtype, where[1])))
    return np.array([p for p in points if p[1] < 1]).reshape(-1, 2).T


def _x_axis(ax: Axes, x: str, rows: pd.DataFrame) -> None:
    base = 2 if x == "n" else 10
    ax.set_xscale("log", base=base)
    logs = np.log(rows[x]) / np.log(base)
    first, last = int(np.floor(logs.min())), int(np.ceil(logs.max() - 0.1))
    margin = 0.04 * (last - first) + 0.2
    ax.set_xlim(base ** (first - margin), base ** (last + margin))
    step = ceil_div(last - first + 1, MAX_TICKS["x"])
    ticks = [e for e in range(first, last + 1) if e % step == 0]
    ax.set_xticks([float(base) ** e for e in ticks], [power(base, e) for e in ticks])
    ax.minorticks_off()
    where = f"n = {length(rows['n'].iloc[0])}"
    ax.set_xlabel("length n (elements)" if x == "n" else f"condition number ({where})")


def _legend(figure: Figure) -> None:
    handles = {str(line.get_label()): line for ax in figure.axes for line in ax.lines}
    names = _in_order(pd.Series([name for name in handles if not name.startswith("_")]))
    shown = [handles[name] for name in names]
    figure.legend(handles=shown, loc="outside lower center", ncols=4, fontsize=7)


def _in_order(names: pd.Series) -> list[str]:
    """Each once: the known modes, other modes, bounds."""
    present = list(dict.fromkeys(names))
    bounds = [f"bound, {order}" for order in ORDERS]
    others = [name for name in present if name not in LOOKS and name not in bounds]
    return [name for name in [*LOOKS, *others, *bounds] if name in present]


def _number(value: float) -> str:
    """Two digits: ``0.33``, ``1.2·10⁻³``, ``10⁶``."""
    if value == 0 or 0.01 <= value < 100 or not np.isfinite(value):
        return significant(value, 2)
    digits, exponent = f"{value:.1e}".split("e")
    ten = power(10, int(exponent))
    return ten if digits == "1.0" else f"{digits}·{ten}"


def _bound(value: float) -> str:
    return _number(value) if value < 1 else "above 1"


def _on_lengths(uniform: pd.DataFrame) -> Iterator[str]:
    """The best and the worst at the greatest n, beside the bounds."""
    for dtype in (d for d in DTYPES if d in set(uniform["dtype"])):
        rows = uniform[uniform["dtype"] == dtype]
        n = int(rows["n"].max())
        at = rows[rows["n"] == n].sort_values("relative_error", kind="stable")
        ends = [f"{_number(r['relative_error'])} ({r['mode']})" for _, r in at.iterrows()]
        span = f"errors from {ends[0]} to {ends[-1]}" if len(ends) > 1 else f"error {ends[0]}"
        bounds = [f"{_bound(order_bound(o, n, dtype, UNIFORM))} ({o})" for o in ORDERS]
        yield f"{dtype}, n = {length(n)}, uniform data: {span}; bounds {', '.join(bounds)}."


def _remarks(table: pd.DataFrame, columns: Mapping[str, pd.DataFrame]) -> Iterator[str]:
    """What a reader needs to know of the points and lines."""
    seen = pd.concat(list(columns.values()))
    if (seen["relative_error"] == 0).any():
        yield "On the lower edge: the result is the double nearest to the exact one (error 0)."
    if (seen["relative_error"] > 1).any():
        yield "Errors above 1 are drawn at 1."
    if "float" in set(seen["dtype"]) and seen["mode"].isin(TOTAL_IN_DOUBLE).any():
        u = _number(unit_roundoff(DTYPES["float"].scalar))
        yield f"Streams and blocks end in double: errors may be below float's roundoff, {u}."
    if "condition" in columns and (seen["kernel"] == SQUARE).any():
        yield "A sum of squares has the condition number 2, whatever the data."
    yield (
        f"Tree: up to {TREE_THREADS} threads of {LANES} accumulators; "
        "pairwise: a tree over the single products."
    )
    for mode, rows in table[table["relative_error"].isna()].groupby("mode", sort=False):
        yield f"No number from {mode}: {rows['message'].iloc[0].rstrip('.')}."
    wrong = table[table["agrees"].eq(False)]
    for (mode, dtype), rows in wrong.groupby(["mode", "dtype"], sort=False):
        yield f"Rounding does not explain {len(rows)} of the results of {mode} ({dtype})."
