"""Persistent blocks: the cliff past the last resident block."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pandas as pd
from gpushmoo.analysis.contrasts import Ratio, ratio

from .record import Record
from .words import Claims, percent, rate

KERNEL = "block_eq_partition"
DTYPES = ("float", "double", "float3", "float4")
FAR = 8192


def values(record: Record, claims: Claims) -> dict[str, Any]:
    """Table and sentences of the cliff."""
    first = record.of(KERNEL).iloc[0]
    units = int(first["units"])
    capacity = units * int(first["resident_per_unit"])
    wanted = [units, 2 * units, capacity, capacity + 1, 2 * capacity, 2 * capacity + 1]
    cells = {
        (dtype, n): record.of(
            KERNEL, variant="exact", dtype=dtype, width=FAR, cache_state="warm", num_partition=n
        ).iloc[0]
        for dtype in DTYPES
        for n in wanted
    }
    lost = {d: ratio(cells[d, capacity + 1], cells[d, capacity]) for d in DTYPES}
    claims.hold(
        "One block too many costs every type bandwidth, wider types less.",
        all(a.value < b.value < 1 for a, b in pairwise(lost.values())),
        {d: r.value for d, r in lost.items()},
    )
    rows = [
        [
            _bold(n, n == capacity + 1),
            *(_bold(rate(cells[d, n]), n == capacity + 1) for d in DTYPES),
        ]
        for n in wanted
    ]
    rows.insert(4, ["lost", *(_lost(lost[d]) for d in DTYPES)])
    short = _short_of_doubling(record)
    claims.hold("The doubling law holds up to 8 blocks.", short < 0.05, short)
    return {
        "units": units,
        "capacity": capacity,
        "next": capacity + 1,
        "table": rows,
        "doubling": percent(short),
        "double_over_float": f"{_at(record, 'double', 1) / _at(record, 'float', 1):.2f}",
        "flush": percent(_flush_matters(record)),
    }


def _bold(text: object, bold: bool) -> str:
    return f"**{text}**" if bold else str(text)


def _lost(r: Ratio) -> str:
    return f"{100 * (1 - r.value):.1f} % ({100 * (1 - r.high):.1f} to {100 * (1 - r.low):.1f})"


def _series(record: Record, dtype: str, state: str = "warm") -> pd.Series:
    cells = record.of(KERNEL, variant="exact", dtype=dtype, width=FAR, cache_state=state)
    return cells.set_index("num_partition")["bandwidth_gbs"].sort_index()


def _at(record: Record, dtype: str, blocks: int) -> float:
    return float(_series(record, dtype)[blocks])


def _short_of_doubling(record: Record) -> float:
    """The largest share by which a doubling up to 8 blocks stays short of twice the bandwidth."""
    short = []
    for dtype in DTYPES:
        series = _series(record, dtype)
        short += [1 - series[2 * n] / (2 * series[n]) for n in (1, 2, 4)]
    return float(max(short))


def _flush_matters(record: Record) -> float:
    """The largest change of a point of the four series by flushing the cache."""
    return max(
        float((_series(record, d, "flushed") / _series(record, d) - 1).abs().max()) for d in DTYPES
    )
