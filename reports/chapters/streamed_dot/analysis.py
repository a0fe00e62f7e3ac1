"""What the sweeps of dot products say: crossover, the best split, which parameters matter."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd
from gpushmoo.core.schema import Status

STREAMED, SQUARE, HOST = "dot_streamed", "dot_square", "dot_host"
RESIDENT, LIBRARY = "dot_resident", "dot_cublas"
DOTS = frozenset({STREAMED, SQUARE, HOST, RESIDENT, LIBRARY})
# Launch parameters of the streamed kernels, in the document's order; then those that it lacks.
AXES = ("streams", "min_per_stream", "blocks_per_stream", "threads", "chunk", "host_percent")


@dataclass(frozen=True)
class Crossover:
    """From which length on a way of streaming beats the host alone, or one way on the host.

    `against` is that way's variant, None for the fastest at each length. `n` is the shortest swept
    length from which on it is faster at all swept lengths, None if not at the longest. `ratio`
    is host time over streamed time where that is highest, at `at`.
    """

    dtype: str
    variant: str
    against: str | None
    n: int | None
    ratio: float
    at: int


@dataclass(frozen=True)
class Split:
    """How the longest swept dot product is best shared between host and device.

    `predicted` is the host's percentage that makes both finish together, from the rates of each
    alone; `swept` the fastest that was measured. `gain` is the time of the faster side alone over
    the time of the swept split, `reached` its speed over that of both rates together, and `loss`
    how much longer the swept split next to the prediction takes.
    """

    dtype: str
    variant: str
    n: int
    predicted: float
    swept: int
    gain: float
    reached: float
    loss: float


@dataclass(frozen=True)
class Effect:
    """What a parameter matters at a length: its best value, and what the worst one costs.

    `factor` is the time with the worst value over the time with the best, each with the best values
    of all other parameters, among those that were swept with all of these values. `typical` is the
    ratio of the slowest to the fastest value at one point of the others, in the median of these.
    """

    dtype: str
    variant: str
    n: int
    axis: str
    values: tuple[int, ...]
    best: int
    factor: float
    typical: float


def fastest(cells: pd.DataFrame, host_percent: int | None = None) -> pd.DataFrame:
    """The fastest verified cell of each kernel, dtype, variant and length.

    With `host_percent` only streamed cells with that share of the host are looked at.
    """
    ok = cells[(cells["status"] == Status.OK) & cells["kernel"].isin([STREAMED, SQUARE, HOST])]
    if host_percent is not None:
        ok = ok[(ok["kernel"] == HOST) | (ok["host_percent"] == host_percent)]
    ranked = ok.sort_values(["median_s", "cell_key"])
    return ranked.drop_duplicates(["kernel", "dtype", "variant", "width"])


def crossovers(cells: pd.DataFrame, against: str | None = None) -> list[Crossover]:
    """From which length on the device is faster than the host, for each dtype and variant.

    Only where all data go to the device and the host was measured, too.
    """
    best = fastest(cells, host_percent=0)
    host_cells = best[best["kernel"] == HOST]
    if against is not None:
        host_cells = host_cells[host_cells["variant"] == against]
    host = host_cells.groupby(["dtype", "width"])["median_s"].min()
    rows = []
    streamed = best[best["kernel"] == STREAMED]
    for (dtype, variant), group in streamed.groupby(["dtype", "variant"], observed=True):
        times = group.set_index("width")["median_s"].sort_index()
        if dtype not in host.index.get_level_values("dtype"):
            continue
        ratio = (host[dtype] / times).dropna()
        ratio = ratio[ratio.index > 0]
        if ratio.empty:
            continue
        slower = ratio.index[ratio <= 1.0]
        faster = ratio.index[ratio.index > (slower.max() if len(slower) else 0)]
        n = int(faster.min()) if len(faster) else None
        at = int(ratio.idxmax())
        rows.append(Crossover(str(dtype), str(variant), against, n, float(ratio[at]), at))
    return rows


def splits(cells: pd.DataFrame) -> list[Split]:
    """The best share of the host, for each dtype and variant that was swept over it.

    The sweep must have both ends, 0 and 100 %.
    """
    rows = []
    for (dtype, variant), group in _longest(cells):
        best = group.groupby("host_percent")["median_s"].min()
        if not {0, 100} < set(best.index):
            continue
        device, host = float(best[0]), float(best[100])
        predicted = 100 * device / (device + host)
        swept = int(best.idxmin())
        nearest = min(best.index, key=lambda percent: abs(percent - predicted))
        rows.append(
            Split(
                dtype,
                variant,
                int(group["width"].iloc[0]),
                predicted,
                swept,
                gain=min(device, host) / float(best[swept]),
                reached=1 / float(best[swept]) / (1 / device + 1 / host),
                loss=float(best[nearest]) / float(best[swept]) - 1,
            )
        )
    return rows


def effects(cells: pd.DataFrame) -> list[Effect]:
    """What each parameter that was swept over several values changes, for each dtype and variant.

    At the shortest and the longest of those lengths at which most parameters were swept. The host's
    share is not among them: `splits` tells of it.
    """
    ok = cells[(cells["kernel"] == STREAMED) & (cells["status"] == Status.OK)]
    compared = []
    for _, group in ok.groupby(["dtype", "variant"], observed=True):
        by_length = {n: _effects_at(rows) for n, rows in group.groupby("width")}
        most = max(len(effects) for effects in by_length.values())
        lengths = [n for n, effects in by_length.items() if len(effects) == most]
        for n in sorted({min(lengths), max(lengths)}):
            compared += by_length[n]
    return compared


def _effects_at(group: pd.DataFrame) -> list[Effect]:
    """The effects of all parameters in cells of one dtype, variant and length."""
    first, rows = group.iloc[0], []
    for axis in AXES[:-1]:
        times = _matched(group, axis)
        if len(times.columns) < 2:
            continue
        best = times.min()
        values = tuple(int(v) for v in best.index)
        factor = float(best.max() / best.min())
        typical = float((times.max(axis=1) / times.min(axis=1)).median())
        place = (str(first["dtype"]), str(first["variant"]), int(first["width"]))
        rows.append(Effect(*place, axis, values, int(best.idxmin()), factor, typical))
    return rows


def _matched(group: pd.DataFrame, axis: str) -> pd.DataFrame:
    """Times by value of `axis` (columns), at such points of the others (rows) as have them all.

    Several sweeps do not cross all their values. Where no point has every value, values are left
    out: first those without which most points have all others, then those with the fewest points.
    """
    others = [a for a in AXES if a != axis]
    times = group.pivot_table(index=others, columns=axis, values="median_s", aggfunc="min")
    while times.dropna().empty:
        left = {v: (len(times.drop(columns=v).dropna()), -times[v].count()) for v in times.columns}
        times = times.drop(columns=max(left, key=lambda value: left[value]))
    return times.dropna()


def _longest(cells: pd.DataFrame) -> list[tuple[tuple[str, str], pd.DataFrame]]:
    """Verified streamed cells by dtype and variant, each at its longest length."""
    ok = cells[(cells["kernel"] == STREAMED) & (cells["status"] == Status.OK)]
    groups = ok.groupby(["dtype", "variant"], observed=True)
    return [
        ((str(dtype), str(variant)), group[group["width"] == group["width"].max()])
        for (dtype, variant), group in groups
    ]


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
DRAWN = {"pinned-fresh": "ours, as published", "pinned-pooled": "ours, pooled"}
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
