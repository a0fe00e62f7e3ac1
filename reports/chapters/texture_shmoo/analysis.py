"""What the second document asks of a device: how much a block's shape matters to images."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from gpushmoo.analysis.best import tied_best
from gpushmoo.analysis.ceiling import CeilingRow, CeilingShare, told_share
from gpushmoo.core.schema import Status

# The document's rule for surfaces: so many threads at least, and whole warps.
ENOUGH_THREADS, WARP = 128, 32


@dataclass(frozen=True)
class ThreadClass:
    """Shapes that the document's rule puts together, by their speed over that of the best shape."""

    words: str
    shapes: int
    worst: float
    median: float
    best: float


@dataclass(frozen=True)
class Shmoo:
    """One image swept over block shapes in the document's way.

    `best` is the fastest row of the dataset, `tied` the shapes (width, height) that cannot be told
    from it, the fastest first; `share` is that of the load or store peak, `worst` the slowest
    shape's speed over the best's.
    """

    what: str
    best: Mapping[str, Any]
    share: CeilingShare | None
    tied: tuple[tuple[int, int], ...]
    candidates: int
    worst: float
    classes: tuple[ThreadClass, ...]

    @property
    def threads(self) -> tuple[int, ...]:
        """Threads a block in the tied set, ascending."""
        return tuple(sorted({x * y for x, y in self.tied}))


@dataclass(frozen=True)
class WrittenSums:
    """Time with the sums stored over time without, over the shapes measured in both ways."""

    row: Mapping[str, Any]
    shapes: int
    low: float
    median: float
    high: float


def shmoos(
    cells: pd.DataFrame, wanted: Sequence[Mapping[str, str]], ceiling: Sequence[CeilingRow]
) -> list[Shmoo]:
    """One for each device, size and cache state of the `wanted` kernels, variants and dtypes."""
    rows = []
    for chosen in wanted:
        of_kernel = _of(cells, chosen["kernel"])
        of_kernel = of_kernel[
            (of_kernel["variant"] == chosen["variant"]) & (of_kernel["dtype"] == chosen["dtype"])
        ]
        keys = ["device_name", "height", "width", "cache_state"]
        for _, group in of_kernel.groupby(keys, sort=True, observed=True):
            rows.append(_shmoo(chosen["what"], group, ceiling))
    return rows


def _of(cells: pd.DataFrame, kernel: str) -> pd.DataFrame:
    ok = cells[(cells["kernel"] == kernel) & (cells["status"] == Status.OK)]
    return ok if {"block_x", "block_y"} <= set(ok.columns) else ok.iloc[:0]


def _shmoo(what: str, group: pd.DataFrame, ceiling: Sequence[CeilingRow]) -> Shmoo:
    tied = tied_best(group)
    best = tied.iloc[0].to_dict()
    speed = group["bandwidth_gbs"] / best["bandwidth_gbs"]
    return Shmoo(
        what=what,
        best=best,
        share=told_share(ceiling, best),
        tied=tuple((int(x), int(y)) for x, y in zip(tied["block_x"], tied["block_y"], strict=True)),
        candidates=len(group),
        worst=float(speed.min()),
        classes=tuple(_classes(group["threads_per_block"], speed)),
    )


def _classes(threads: pd.Series, speed: pd.Series) -> Iterator[ThreadClass]:
    enough, whole = threads >= ENOUGH_THREADS, threads % WARP == 0
    for words, chosen in (
        (f"at least {ENOUGH_THREADS} threads, whole warps", enough & whole),
        (f"at least {ENOUGH_THREADS} threads, last warp not full", enough & ~whole),
        (f"fewer than {ENOUGH_THREADS} threads", ~enough),
    ):
        part = speed[chosen]
        if len(part):
            yield ThreadClass(
                words, len(part), float(part.min()), float(part.median()), float(part.max())
            )


def written_sums(cells: pd.DataFrame, kernel: str, suffix: str) -> list[WrittenSums]:
    """The cost of storing sums: variants named with `suffix` against those named without."""
    mine = _of(cells, kernel)
    keys = ["device_name", "dtype", "variant", "height", "width", "cache_state"]
    costs = []
    for key, stored in mine[mine["variant"].str.endswith(suffix)].groupby(keys, sort=True):
        names = dict(zip(keys, key, strict=True))
        names["variant"] = names["variant"].removesuffix(suffix)
        plain = mine
        for name, value in names.items():
            plain = plain[plain[name] == value]
        shape = ["block_x", "block_y"]
        times = [rows[[*shape, "median_s"]] for rows in (stored, plain)]
        both = times[0].merge(times[1], on=shape, suffixes=("_stored", "_plain"))
        if both.empty:
            continue
        ratio = both["median_s_stored"] / both["median_s_plain"]
        low, median, high = (float(ratio.quantile(q)) for q in (0.05, 0.5, 0.95))
        costs.append(WrittenSums({"kernel": kernel, **names}, len(both), low, median, high))
    return costs
