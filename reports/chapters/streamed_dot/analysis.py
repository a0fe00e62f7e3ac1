"""What the sweeps of dot products say: what the plots show, and dot products on the device."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd
from gpushmoo.core.schema import Status

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
    """The dot product of `n` elements that are on the device: the best launch, and the library.

    Rates in GB/s with the 95 % interval of the median; `library` is None where none was measured.
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


# What stands in the document's plots beside the published series: variant and name.
DRAWN = {"published": "ours, as published", "pinned-pooled": "ours, pooled"}
# As published is with the document's own number of streams alone.
PRINTED_STREAMS = 64
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


def copied_gbs(cells: pd.DataFrame) -> float | None:
    """The highest rate at which the runtime copied the inputs to the device, in GB/s.

    Beside the cells of the streamed kernels; None where no such copy was timed.
    """
    rates = cells.loc[cells["kernel"].isin([STREAMED, SQUARE]), "copy_gbs"].dropna()
    return float(rates.max()) if len(rates) else None
