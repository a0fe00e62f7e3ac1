"""Shared by all figures: fonts, colours for colour-blind readers and print, saving."""

from __future__ import annotations

import io
import sys
from collections.abc import Collection, Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ..core.backends import cache_name
from ..core.display import kind_words
from ..storage.wholefile import write_json, write_whole

# Okabe and Ito's palette, in the order in which dtypes get it.
OKABE_ITO = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"]
DTYPE_COLOURS = {
    "float": OKABE_ITO[0],
    "double": OKABE_ITO[1],
    "float3": OKABE_ITO[2],
    "float4": OKABE_ITO[3],
    "float2": OKABE_ITO[4],
    "unorm8": OKABE_ITO[5],
    "unorm8x4": OKABE_ITO[6],
}
# Darker ones for the types that seldom are in one figure with these.
_OTHERS = {
    "int8": ("#5B2C6F", "<"),
    "uint8": ("#117864", ">"),
    "int16": ("#7E5109", "h"),
    "uint16": ("#1B4F72", "H"),
    "int32": ("#943126", "p"),
    "uint32": ("#196F3D", "*"),
    "int64": ("#424949", "d"),
    "uint64": ("#9A7D0A", "8"),
    "half": ("#6C3483", "1"),
    "bfloat16": ("#0E6655", "2"),
    "float8_e4m3": ("#784212", "3"),
    "float8_e5m2": ("#283747", "4"),
}
DTYPE_COLOURS |= {dtype: colour for dtype, (colour, _) in _OTHERS.items()}
DTYPE_MARKERS = {
    "float": "o",
    "double": "s",
    "float3": "^",
    "float4": "D",
    "float2": "v",
    "unorm8": "P",
    "unorm8x4": "X",
    **{dtype: marker for dtype, (_, marker) in _OTHERS.items()},
}

# Width of the text on the page, in inches.
PAGE_WIDTH = 6.7


def dtype_handles(dtypes: Iterable[str]) -> list[Line2D]:
    """For a legend: the mark of each element type."""
    return [
        Line2D([], [], marker=DTYPE_MARKERS[d], ls="", c=DTYPE_COLOURS[d], ms=4, label=d)
        for d in dtypes
    ]


def apply_style() -> None:
    """Make this process, which is a job, draw SVG in the project's style."""
    matplotlib.use("svg")
    set_style()


def set_style() -> None:
    """Seaborn's ticks style with settings that make the SVG's bytes repeat."""
    sns.set_theme(style="ticks", context="paper", font="DejaVu Sans", font_scale=0.9)
    plt.rcParams.update(
        {
            # Text stays text: it can be searched, read aloud and restyled.
            "svg.fonttype": "none",
            # Of what is drawn as pixels inside an SVG.
            "savefig.dpi": 200,
            "svg.hashsalt": "gpushmoo",
            "axes.spines.top": False,
            "axes.spines.right": False,
            "legend.frameon": False,
            "figure.constrained_layout.use": True,
        }
    )


def cache_word(cells: pd.DataFrame) -> str:
    """Name of the last cache level; ``cache`` where the cells' backends differ in it."""
    names = {cache_name(backend) for backend in set(cells["backend"])}
    return names.pop() if len(names) == 1 else "cache"


def state_words(state: str, cache: str) -> str:
    """A cache state as a reader calls it; `cache` is the name of the last cache level."""
    return f"{cache} flushed" if state == "flushed" else state


def subject(cells: pd.DataFrame, named: Collection[str]) -> str:
    """The begin of a title for cells of one kernel and problem, with the conditions in `named`."""
    cell = cells.iloc[0]
    met = {
        "cache_state": state_words(cell["cache_state"], cache_word(cells)),
        "timing_mode": kind_words(cell["timing_mode"]),
    }
    said = "".join(f", {words}" for column, words in met.items() if column in named)
    return f"{cell['kernel']}, {int(cell['height'])} × {int(cell['width'])} elements{said}"


def save(figure: Figure, svg: Path, title: str, caption: str, **facts: Any) -> None:
    """Write the SVG and, beside it, its title, caption and facts as JSON. No date in either."""
    drawn = io.BytesIO()
    figure.savefig(drawn, format="svg", metadata={"Date": None, "Creator": "gpushmoo"})
    plt.close(figure)
    write_whole(svg, drawn.getvalue())
    write_json(svg.with_suffix(".json"), {"title": title, "caption": caption, **facts})


def save_words(svg: Path, title: str, caption: str, word: str = "", **facts: Any) -> None:
    """Save a figure that shows only a `word`, instead of one that cannot be drawn."""
    apply_style()
    figure, ax = plt.subplots(figsize=(PAGE_WIDTH, 0.6))
    ax.set_axis_off()
    ax.text(0.5, 0.5, word, ha="center", va="center", color=OKABE_ITO[1])
    save(figure, svg, title, caption, **facts)


def _seaborn() -> Any:
    """Seaborn without scipy, whose import takes longer than a figure does."""
    # None makes an import of that name an ImportError, with which seaborn does without it.
    withheld = {"scipy.stats", "scipy.cluster"} - sys.modules.keys()
    sys.modules.update(dict.fromkeys(withheld))  # type: ignore[arg-type]
    try:
        return import_module("seaborn")
    finally:
        for name in withheld:
            del sys.modules[name]


sns = _seaborn()
