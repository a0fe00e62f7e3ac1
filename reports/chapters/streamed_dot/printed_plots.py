"""The document's dot-product plots: running times and throughputs, as printed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

PCIE = "PCI-Express 3.0 x16"
DEVICE_TO_HOST = "NVIDIA bandwidthtest.cu device-to-host"
REFERENCES = (PCIE, DEVICE_TO_HOST)
# Measured as the line above. It stands in the document's text and in none of its plots.
HOST_TO_DEVICE_GBS = 12.6


@dataclass(frozen=True)
class DotPlot:
    """One plot: its printed title, the columns of its CSV and the unit of its values.

    `x_per_n` is the printed x for each element of one array. For a throughput this is also the
    number of elements whose bytes are counted for each n.
    """

    title: str
    x: str
    x_per_n: int
    value: str
    unit: str


PLOTS = {
    "running_time": DotPlot("Running Time CUDA vs. AVX", "n", 1, "time_ms", "ms"),
    "throughput": DotPlot("Throughput CUDA", "two_n", 2, "throughput_gbs", "GB/s"),
    "running_time_square": DotPlot("Running Time CUDA Sum of Squares", "n", 1, "time_ms", "ms"),
    "throughput_square": DotPlot("Throughput CUDA (square)", "n", 1, "throughput_gbs", "GB/s"),
}


def read_dot(folder: Path, plot: str) -> pd.DataFrame:
    """The points of one of `PLOTS` from `folder`, in the order in which they are printed.

    Columns: ``series`` (the printed name), ``n`` (elements of one array, whatever the printed x
    counts), ``value`` (in the plot's unit, with every printed digit) and ``reference`` (whether the
    series is a line to compare with and no measurement of the dot product).
    """
    axes = PLOTS[plot]
    # As text: the fast parsers of some pandas versions are off by a unit in the last place.
    table = pd.read_csv(folder / f"{plot}.csv", dtype=str)
    if list(table.columns) != ["series", axes.x, axes.value]:
        raise ValueError(f"{plot}.csv has the columns {', '.join(table.columns)}")
    return pd.DataFrame(
        {
            "series": table["series"],
            "n": table[axes.x].astype(int) // axes.x_per_n,
            "value": table[axes.value].map(float),
            "reference": table["series"].isin(REFERENCES),
        }
    )
