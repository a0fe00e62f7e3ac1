"""Share fonts, saving, and colors for color-blind readers and print between all figures."""

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
from ..core.display import mode_words
from ..storage.wholefile import write_atomic, write_json

# Okabe and Ito's palette, in the order in which types get it.
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
# Darker ones, for types that are rarely in one figure with these.
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
    """Return the legend's mark of each element type."""
    return [
        Line2D([], [], marker=DTYPE_MARKERS[d], ls="", c=DTYPE_COLOURS[d], ms=4, label=d)
        for d in dtypes
    ]


def apply_style() -> None:
    """Make this process, which is a job, draw SVG in the project's style."""
    matplotlib.use("svg")
    set_style()


def set_style() -> None:
    """Set Seaborn's ticks style, with settings that make the bytes of the SVG repeatable."""
    sns.set_theme(style="ticks", context="paper", font="DejaVu Sans", font_scale=0.9)
    plt.rcParams.update(
        {
            # Text stays text, which readers can search, read aloud and restyle.
            "svg.fonttype": "none",
            # Resolution of the parts of an SVG that are drawn as pixels.
            "savefig.dpi": 200,
            "svg.hashsalt": "gpushmoo",
            "axes.spines.top": False,
            "axes.spines.right": False,
            "legend.frameon": False,
            "figure.constrained_layout.use": True,
        }
    )


def cache_word(cells: pd.DataFrame) -> str:
    """Return the name of the last cache level; ``cache`` if the cells' backends differ in it."""
    names = {cache_name(backend) for backend in set(cells["backend"])}
    return names.pop() if len(names) == 1 else "cache"


def state_words(state: str, cache: str) -> str:
    """Describe a cache state for a reader; `cache` is the name of the last cache level."""
    return f"{cache} flushed" if state == "flushed" else state


def subject(cells: pd.DataFrame, named: Collection[str]) -> str:
    """Return the beginning of a title: kernel, size, and the conditions whose columns are `named`.

    For example, ``copy, 64 × 64 elements, warm`` with `named` = ``{"cache_state"}``.
    """
    cell = cells.iloc[0]
    met = {
        "cache_state": state_words(cell["cache_state"], cache_word(cells)),
        "timing_mode": mode_words(cell["timing_mode"]),
    }
    said = "".join(f", {words}" for column, words in met.items() if column in named)
    return f"{cell['kernel']}, {int(cell['height'])} × {int(cell['width'])} elements{said}"


def save(figure: Figure, svg: Path, title: str, caption: str, **facts: Any) -> None:
    """Write the SVG and, beside it, its title, caption and facts as JSON, both without a date."""
    drawn = io.BytesIO()
    figure.savefig(drawn, format="svg", metadata={"Date": None, "Creator": "gpushmoo"})
    plt.close(figure)
    write_atomic(svg, drawn.getvalue())
    write_json(svg.with_suffix(".json"), {"title": title, "caption": caption, **facts})


def save_words(svg: Path, title: str, caption: str, word: str = "", **facts: Any) -> None:
    """Save a figure that shows only a `word`, instead of one that cannot be drawn."""
    apply_style()
    figure, ax = plt.subplots(figsize=(PAGE_WIDTH, 0.6))
    ax.set_axis_off()
    ax.text(0.5, 0.5, word, ha="center", va="center", color=OKABE_ITO[1])
    save(figure, svg, title, caption, **facts)


def _seaborn() -> Any:
    """Import Seaborn without scipy, whose import takes longer than drawing a figure."""
    # None makes the import of that name fail with ImportError, and then seaborn works without it.
    withheld = {"scipy.stats", "scipy.cluster"} - sys.modules.keys()
    sys.modules.update(dict.fromkeys(withheld))  # type: ignore[arg-type]
    try:
        return import_module("seaborn")
    finally:
        for name in withheld:
            del sys.modules[name]


sns = _seaborn()
