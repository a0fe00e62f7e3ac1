"""The document's dot-product plots as printed, and what the sweeps of dot products say."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import scipy
import yaml
from gpushmoo.core.dtypes import DTYPES
from gpushmoo.core.schema import Status
from gpushmoo.workloads.host_fed import count_cuts

from .rivals import PRINTED

PCIE = "PCI-Express 3.0 x16"
DEVICE_TO_HOST = "NVIDIA bandwidthtest.cu device-to-host"
REFERENCES = (PCIE, DEVICE_TO_HOST)
# What the document's text prints and its plots do not have, GB/s.
PRINTED_GBS: dict[str, float] = yaml.safe_load(
    (Path(__file__).parent / "published/numbers.yaml").read_text("utf-8")
)
HOST_TO_DEVICE_GBS = PRINTED_GBS["host to device"]


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
    return pd.DataFrame(
        {
            "series": table["series"],
            "n": table[axes.x].astype(int) // axes.x_per_n,
            "value": table[axes.value].map(float),
            "reference": table["series"].isin(REFERENCES),
        }
    )


STREAMED, SQUARE, HOST = "dot_streamed", "dot_square", "dot_host"
RESIDENT, LIBRARY = "dot_resident", "dot_cublas"
DOTS = frozenset({STREAMED, SQUARE, HOST, RESIDENT, LIBRARY})


def fastest(cells: pd.DataFrame, host_percent: int | None = None) -> pd.DataFrame:
    """The fastest verified cell of each kernel, dtype, variant and length.

    With `host_percent` only streamed cells with that share of the host are looked at; as published
    only those with the document's number of streams.
    """
    ok = cells[(cells["status"] == Status.OK) & cells["kernel"].isin([STREAMED, SQUARE, HOST])]
    if "streams" in ok:
        ok = ok[(ok["variant"] != "published") | (ok["streams"] == PRINTED_STREAMS)]
    if host_percent is not None:
        ok = ok[(ok["kernel"] == HOST) | (ok["host_percent"] == host_percent)]
    ranked = ok.sort_values(["median_s", "cell_key"])
    return ranked.drop_duplicates(["kernel", "dtype", "variant", "width"])


@dataclass(frozen=True)
class Resident:
    """Dot product of `n` elements that are on the device: the best launch, and the library.

    Rates are in GB/s with the 95 % interval of the median. `library` is None without a measurement.
    """

    dtype: str
    n: int
    threads: int
    grid: int
    unroll: int
    gbs: float
    low_gbs: float
    high_gbs: float
    library_gbs: float | None


def residents(cells: pd.DataFrame) -> list[Resident]:
    """The fastest dot product of data on the device, by dtype and then by length."""
    ok = cells[cells["status"] == Status.OK]
    library = ok[ok["kernel"] == LIBRARY].set_index(["dtype", "width"])["bandwidth_gbs"]
    ours = ok[ok["kernel"] == RESIDENT].sort_values(["median_s", "cell_key"])
    best = ours.drop_duplicates(["dtype", "width"]).sort_values(["dtype", "width"])
    return [
        Resident(
            str(row.dtype),
            int(row.width),
            int(row.threads),
            int(row.grid),
            int(row.unroll),
            row.bandwidth_gbs,
            row.bandwidth_low_gbs,
            row.bandwidth_high_gbs,
            float(library[row.dtype, row.width]) if (row.dtype, row.width) in library else None,
        )
        for row in best.itertuples()
    ]


# What is in the document's plots beside the published series: variant and name.
DRAWN = {"published": "ours, as published", "pinned-pooled": "ours, pooled"}
# As published is with the document's own number of streams alone.
PRINTED_STREAMS = PRINTED["streams"]
SHORTEST_DRAWN = 64
FASTEST_HOST = "the host's fastest way"


def plot_series(cells: pd.DataFrame, unit: str, square: bool = False) -> pd.DataFrame:
    """What `figures.dot` draws of ours: columns series, n and value, in ``ms`` or ``GB/s``.

    Of the streamed kernels those cells whose data all go to the device, each with its best
    parameters, with `square` those of x · x; beside the times of x · y the host's fastest way at
    each length. Arrays shorter than the published ones are left out.
    """
    best = fastest(cells, host_percent=0)
    best = best[best["width"] >= SHORTEST_DRAWN]
    streamed = best[best["kernel"] == (SQUARE if square else STREAMED)]
    mark = " (square)" if square else ""
    drawn = {f"{name}{mark}": streamed[streamed["variant"] == v] for v, name in DRAWN.items()}
    if unit == "ms" and not square:
        host = best[best["kernel"] == HOST].sort_values("median_s")
        drawn[FASTEST_HOST] = host.drop_duplicates(["dtype", "width"])
    parts = []
    for name, points in drawn.items():
        value = points["median_s"] * 1e3 if unit == "ms" else points["bandwidth_gbs"]
        series = [f"{name} ({dtype})" for dtype in points["dtype"]]
        parts.append(pd.DataFrame({"series": series, "n": points["width"], "value": value}))
    return pd.concat(parts, ignore_index=True).sort_values(["series", "n"], ignore_index=True)


ADDED, OVERLAPPED = "added", "overlapped"
# Lengths, powers of two, that a law is fitted to and judged on together.
MIN_LENGTHS = 8


@dataclass(frozen=True)
class Law:
    """What k streams and the link take, in one of two forms, for both types.

    With t seconds for a stream's bytes over the link: ADDED is constant + k · stream + k · t,
    OVERLAPPED constant + stream + t + (k − 1) · max(stream, t): a copy goes on while the host
    feeds the next stream. Fitted to every second length in logarithms; `median` and `worst` are
    absolute log errors at the other lengths.
    """

    kernel: str
    variant: str
    form: str
    stream_s: float
    link_gbs: float
    constant_s: float
    median: float = math.nan
    worst: float = math.nan

    def seconds(self, k: pd.Series, nbytes: pd.Series) -> pd.Series:
        """Return the predicted seconds for `k` streams and `nbytes` bytes in all."""
        stream = self.stream_s
        t = nbytes / k / (1e9 * self.link_gbs)
        added = k * (stream + t)
        longer = t.clip(lower=stream)
        return self.constant_s + (added if self.form == ADDED else stream + t + (k - 1) * longer)


def laws(cells: pd.DataFrame) -> list[Law]:
    """Fit the printed parameters with kept and with new streams, if there are enough lengths."""
    ok = cells[(cells["status"] == Status.OK) & cells["kernel"].isin([STREAMED, SQUARE])]
    n = ok["width"].astype(int)
    ok = ok[ok["variant"].isin(DRAWN) & (n >= SHORTEST_DRAWN) & (n & (n - 1) == 0)]
    for axis in set(PRINTED) - {"streams"}:
        ok = ok[ok[axis] == PRINTED[axis]]
    found = []
    for (kernel, variant), part in ok.groupby(["kernel", "variant"], observed=True):
        n = part["width"].astype(int)
        asked = zip(n, part["streams"].astype(int), strict=True)
        k = [count_cuts(length, s, PRINTED["min_per_stream"], 0) for length, s in asked]
        if n.nunique() >= MIN_LENGTHS and len(set(k)) > 1:
            itemsize = part["dtype"].map(lambda dtype: DTYPES[dtype].itemsize).astype(int)
            nbytes = (2 if kernel == STREAMED else 1) * n * itemsize
            known = part.assign(k=k, nbytes=nbytes, fitted=n.rank(method="dense") % 2 == 1)
            found += [_law(str(kernel), str(variant), f, known) for f in (ADDED, OVERLAPPED)]
    return found


def _law(kernel: str, variant: str, form: str, known: pd.DataFrame) -> Law:
    def law(logs: Iterable[float]) -> Law:
        return Law(kernel, variant, form, *map(math.exp, logs))

    def errors(logs: Iterable[float], rows: pd.DataFrame) -> pd.Series:
        return np.log(law(logs).seconds(rows["k"], rows["nbytes"]) / rows["median_s"])

    rates = known["nbytes"] / known["median_s"] * 1e-9
    start = np.log([known["median_s"].min(), rates.max(), known["median_s"].min()])
    fitted = known["fitted"]
    logs = scipy.optimize.least_squares(errors, start, args=(known[fitted],)).x
    held = errors(logs, known[~fitted]).abs()
    return replace(law(logs), median=float(held.median()), worst=float(held.max()))


def copied_gbs(cells: pd.DataFrame) -> float | None:
    """The highest rate at which the runtime copied the inputs to the device, in GB/s.

    Beside the cells of the streamed kernels; None where no such copy was timed.
    """
    rates = cells.loc[cells["kernel"].isin([STREAMED, SQUARE]), "memcpy_gbs"].dropna()
    return float(rates.max()) if len(rates) else None
