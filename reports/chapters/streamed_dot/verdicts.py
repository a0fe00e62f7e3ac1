"""What rounds of ways say: who is faster from where on, what a parameter and a share are worth.

`rows` are those of `rivals.RIVALS_SCHEMA`. Two ways are compared by the ratios of their times
within each round; told are the ratios' median and its 95 % interval, so that a way is called
faster only where the whole interval says so.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from dot_products.host_ways import WAYS
from gpushmoo.core.dtypes import DTYPES
from gpushmoo.core.median import MedianInterval, median_interval

from .rivals import BETWEEN, COPY, DEVICE_WAYS, KEPT_STREAMS, LENGTH, PARAMETER, SHARE

FASTEST, KEPT_WAY = "the fastest way", "pooled"
# Ways on the host that the device is compared with.
AGAINST = ("naive", "blas-one", FASTEST)


@dataclass(frozen=True)
class Rivalry:
    """A rival's time over that of a way on the device: `ratios` by n, ascending.

    The way pays from `n` on: at that and all longer lengths the whole interval is over 1. None
    where that is so at no length's end.
    """

    operation: str
    dtype: str
    way: str
    against: str
    ratios: dict[int, MedianInterval]

    @property
    def n(self) -> int | None:
        """The shortest length from which on the way is significantly faster."""
        found = None
        for n in sorted(self.ratios, reverse=True):
            if self.ratios[n].low <= 1.0:
                break
            found = n
        return found

    @property
    def at(self) -> int:
        """The length at which the median ratio is highest."""
        return max(self.ratios, key=lambda n: self.ratios[n].median)


@dataclass(frozen=True)
class Sharing:
    """Computing shared with the host: the best share in the first half of the rounds.

    Judged in the other half: `gain` is the time of the faster side alone over its time, `reached`
    its speed over the two sides' speeds added. `predicted` is the host's percentage at which both
    would finish together, by the rates of each alone.
    """

    operation: str
    dtype: str
    n: int
    predicted: float
    share: int
    gain: MedianInterval
    reached: MedianInterval


@dataclass(frozen=True)
class Change:
    """One of the document's parameters changed alone: its time over that of the printed ones."""

    operation: str
    dtype: str
    n: int
    way: str
    change: str
    cost: MedianInterval


@dataclass(frozen=True)
class Between:
    """Throughput at `n` elements over that at the `power` of two below, by the printed split.

    `host` is the share of the elements that the host has, `kept` whether the streams are kept.
    """

    operation: str
    dtype: str
    kept: bool
    power: int
    n: int
    host: float
    gain: MedianInterval


def _times(rows: pd.DataFrame, comparison: str) -> list[tuple[str, str, int, pd.DataFrame]]:
    """Operation, type, n, and seconds with a row a round and a column a way."""
    of = rows[rows["comparison"] == comparison]
    groups = of.groupby(["operation", "dtype", "n"], sort=True)
    return [
        (
            str(operation),
            str(dtype),
            int(n),
            group.pivot(index="round", columns="way", values="seconds"),
        )
        for (operation, dtype, n), group in groups
    ]


def _ratio(of: pd.Series, over: pd.Series) -> MedianInterval:
    return median_interval(list((of / over).dropna()))


def rivalries(rows: pd.DataFrame) -> list[Rivalry]:
    """Every way on the device against those on the host, their fastest, and the pooled way."""
    found: dict[tuple[str, str, str, str], dict[int, MedianInterval]] = {}
    for operation, dtype, n, times in _times(rows, LENGTH):
        host = times[[way for way in WAYS if way in times]]
        if host.empty:
            continue
        rivals = {**{w: host[w] for w in AGAINST if w in host}, FASTEST: host.min(axis=1)}
        rivals |= {KEPT_WAY: times[KEPT_WAY]} if KEPT_WAY in times else {}
        # The list may include programs of others.
        for way in (w for w in dict.fromkeys((*DEVICE_WAYS, *times)) if w in {*times} - {*WAYS}):
            for against, rival in rivals.items():
                ratios = found.setdefault((operation, dtype, way, against), {})
                ratios[n] = _ratio(rival, times[way])
    return [Rivalry(*place, dict(sorted(ratios.items()))) for place, ratios in found.items()]


def sharings(rows: pd.DataFrame) -> list[Sharing]:
    """The best share where both ends, 0 and 100 %, were measured and something between."""
    found = []
    for operation, dtype, n, times in _times(rows, SHARE):
        shares = times.rename(columns=int)
        if not {0, 100} < set(shares.columns):
            continue
        half = len(shares) // 2
        choosing, judging = shares.iloc[:half], shares.iloc[half:]
        best = int(choosing.drop(columns=[0, 100]).median().idxmin())
        device, host = judging[0], judging[100]
        medians = choosing.median()
        both = 1 / (1 / device + 1 / host)
        found.append(
            Sharing(
                operation,
                dtype,
                n,
                100 * medians[0] / (medians[0] + medians[100]),
                best,
                _ratio(np.minimum(device, host), judging[best]),
                _ratio(both, judging[best]),
            )
        )
    return found


def changes(rows: pd.DataFrame) -> list[Change]:
    """What each parameter costs, changed alone."""
    return [
        Change(
            operation,
            dtype,
            n,
            base,
            way.removeprefix(f"{base}, "),
            _ratio(times[way], times[base]),
        )
        for operation, dtype, n, times in _times(rows, PARAMETER)
        for base in (w for w in ("as published", "pooled") if w in times)
        for way in times
        if way.startswith(f"{base}, ")
    ]


def betweens(rows: pd.DataFrame) -> list[Between]:
    """Lengths between powers of two; the host has what is over the lower one, as printed."""
    found = []
    for operation, dtype, power, times in _times(rows, BETWEEN):
        for kept in (False, True):
            mine = times.loc[:, times.columns.str.endswith(KEPT_STREAMS) == kept]
            mine = mine.rename(columns=lambda way: int(way.removesuffix(KEPT_STREAMS)))
            for n in sorted(n for n in mine if n != power):
                gain = _ratio(mine[power] / power, mine[n] / n)
                host = 0.0 if n == 2 * power else (n - power) / n
                found.append(Between(operation, dtype, kept, power, n, host, gain))
    return found


def copied(rows: pd.DataFrame) -> dict[str, MedianInterval]:
    """GB/s of a copy out of and into pinned memory, by direction."""
    return {
        str(way): median_interval(list(n * DTYPES[dtype].itemsize / times[way] * 1e-9))
        for _, dtype, n, times in _times(rows, COPY)
        for way in times
    }
