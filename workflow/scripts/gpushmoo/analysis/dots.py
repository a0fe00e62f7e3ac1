"""What the sweeps of dot products say: crossover, the best split, which parameters matter."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from ..schema import Status

STREAMED, HOST = "dot_streamed", "dot_host"
# Launch parameters of the streamed kernels, in the document's order; then those that it lacks.
AXES = ("streams", "min_per_stream", "blocks_per_stream", "threads", "chunk", "host_percent")


@dataclass(frozen=True)
class Crossover:
    """From which length on a way of streaming beats the host alone.

    `n` is the shortest swept length from which on it is faster at all swept lengths, None if it is
    not at the longest. `ratio` is host time over streamed time where that is highest, at `at`.
    """

    dtype: str
    variant: str
    n: int | None
    ratio: float
    at: int


@dataclass(frozen=True)
class Split:
    """How the longest swept dot product is best shared between host and device.

    `predicted` is the host's percentage that makes both finish together, from the rates of each
    alone; `swept` the fastest that was measured. `gain` is the time of the faster side alone over
    the time of the swept split.
    """

    dtype: str
    variant: str
    n: int
    predicted: float
    swept: int
    gain: float


@dataclass(frozen=True)
class Effect:
    """What a parameter matters at the longest length: its best value, and what the worst costs.

    `factor` is the time with the worst value over the time with the best, each with the best values
    of all other parameters.
    """

    dtype: str
    variant: str
    axis: str
    values: tuple[int, ...]
    best: int
    factor: float


def fastest(cells: pd.DataFrame, host_percent: int | None = None) -> pd.DataFrame:
    """The fastest verified cell of each kernel, dtype, variant and length.

    With `host_percent` only streamed cells with that share of the host are looked at.
    """
    ok = cells[(cells["status"] == Status.OK) & cells["kernel"].isin([STREAMED, HOST])]
    if host_percent is not None:
        ok = ok[(ok["kernel"] == HOST) | (ok["host_percent"] == host_percent)]
    ranked = ok.sort_values(["median_s", "cell_key"])
    return ranked.drop_duplicates(["kernel", "dtype", "variant", "width"])


def crossovers(cells: pd.DataFrame) -> list[Crossover]:
    """One for each dtype and variant whose data all go to the device, if the host was measured."""
    best = fastest(cells, host_percent=0)
    host = best[best["kernel"] == HOST].groupby(["dtype", "width"])["median_s"].min()
    found = []
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
        found.append(Crossover(str(dtype), str(variant), n, float(ratio[at]), at))
    return found


def splits(cells: pd.DataFrame) -> list[Split]:
    """One for each dtype and variant that was swept over the host's share, with both ends."""
    found = []
    for (dtype, variant), group in _longest(cells):
        best = group.groupby("host_percent")["median_s"].min()
        if not {0, 100} < set(best.index):
            continue
        device, host = float(best[0]), float(best[100])
        swept = int(best.idxmin())
        found.append(
            Split(
                dtype,
                variant,
                int(group["width"].iloc[0]),
                100 * device / (device + host),
                swept,
                min(device, host) / float(best[swept]),
            )
        )
    return found


def effects(cells: pd.DataFrame) -> list[Effect]:
    """One for each dtype, variant and parameter that was swept over more than one value."""
    found = []
    for (dtype, variant), group in _longest(cells):
        for axis in AXES:
            best = group.groupby(axis)["median_s"].min()
            if len(best) < 2:
                continue
            values = tuple(int(v) for v in best.index)
            top = int(best.idxmin())
            factor = float(best.max() / best.min())
            found.append(Effect(dtype, variant, axis, values, top, factor))
    return found


def _longest(cells: pd.DataFrame) -> list[tuple[tuple[str, str], pd.DataFrame]]:
    """Verified streamed cells of the longest length, by dtype and variant."""
    ok = cells[(cells["kernel"] == STREAMED) & (cells["status"] == Status.OK)]
    if ok.empty:
        return []
    groups = ok[ok["width"] == ok["width"].max()].groupby(["dtype", "variant"], observed=True)
    return [((str(dtype), str(variant)), group) for (dtype, variant), group in groups]


# What stands in the document's plots beside the published series: kernel, variant and name.
DRAWN = (
    (STREAMED, "pinned-fresh", "ours, as published"),
    (STREAMED, "pinned-pooled", "ours, pooled"),
    (HOST, "blas-all", "BLAS, all cores"),
)


def plot_series(cells: pd.DataFrame, unit: str) -> pd.DataFrame:
    """What `figures.dot` draws of ours: columns series, n and value, in ``ms`` or ``GB/s``.

    Of the streamed kernels those cells whose data all go to the device, each with its best
    parameters.
    """
    best = fastest(cells, host_percent=0)
    parts = []
    for kernel, variant, name in DRAWN:
        mine = best[(best["kernel"] == kernel) & (best["variant"] == variant) & (best["width"] > 0)]
        value = mine["median_s"] * 1e3 if unit == "ms" else mine["bandwidth_gbs"]
        series = [f"{name} ({dtype})" for dtype in mine["dtype"]]
        parts.append(pd.DataFrame({"series": series, "n": mine["width"], "value": value}))
    return pd.concat(parts, ignore_index=True).sort_values(["series", "n"], ignore_index=True)
