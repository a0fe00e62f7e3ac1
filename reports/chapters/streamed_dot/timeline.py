"""When the copies and kernels of a host-fed cell run, what of it overlaps, and the table of it.

`tracing` sets a mark before and after each. The mark before is reached once the stream has come to
it. That is not yet the begin of a copy that a GPU makes by itself, out of pinned memory: those of
all streams wait for one engine, which takes them one after the other. So the begin of such a copy
is derived: its own mark, or the end of the copy that ended last before it, whichever is later. A
copy out of ordinary memory, or on a CPU, passes through the host's own hands and is shown as
marked. So is a kernel: it may wait for room beside others, and where the device is ahead of the
host its time holds what the host takes to launch it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Annotated

import pandas as pd
import pyarrow as pa
from gpushmoo.core.schema import Bool, Float64, Int32, Int64, Meaning, String, Table
from gpushmoo.core.space import Cell
from gpushmoo.devices.base import DeviceInfo
from gpushmoo.storage.store import read_table

# Begin and end in seconds.
Interval = tuple[float, float]

COPY, KERNEL = "copy", "kernel"


@dataclass(frozen=True)
class Span:
    """A copy of a piece of `array`, or the kernel on it. Seconds since the host began.

    At `ready_s` it was queued and all before it in its stream was done; `begin_s` is later where it
    waited for the engine. `nbytes` is what was copied, 0 for a kernel; `what` is COPY or KERNEL.
    """

    stream: int
    piece: int
    what: str
    array: str | None
    nbytes: int
    ready_s: float
    begin_s: float
    end_s: float


@dataclass(frozen=True)
class Trace:
    """One run of a cell, that of median length among several; spans are in the order of queueing.

    `total_s` is its time from the first copy to the number by the host's clock. `untraced_s` is the
    median of equally many runs without marks. With `one_engine`, begins of copies are derived.
    """

    spans: tuple[Span, ...]
    total_s: float
    untraced_s: float
    one_engine: bool


def after_each_other(spans: Sequence[Span]) -> tuple[Span, ...]:
    """`spans` with the begins of copies by one engine, which ends one before it begins the next.

    Were there two engines, one of two copies at once would come out faster than the link can be.
    """
    begins = {}
    free_s = -math.inf
    copies = [i for i, span in enumerate(spans) if span.what == COPY]
    for i in sorted(copies, key=lambda i: spans[i].end_s):
        begins[i] = max(spans[i].ready_s, free_s)
        free_s = spans[i].end_s
    return tuple(replace(s, begin_s=begins.get(i, s.begin_s)) for i, s in enumerate(spans))


# What overlaps


@dataclass(frozen=True)
class Overlap:
    """How long copies and kernels of a run of `total_s` seconds overlap.

    `copy_s` and `kernel_s` are the seconds in which any copy or any kernel runs, `hidden_s` those
    in which both do; `nbytes` are the bytes copied.
    """

    copy_s: float
    kernel_s: float
    hidden_s: float
    total_s: float
    nbytes: int

    @property
    def hidden_share(self) -> float:
        """Share of the kernels' time in which a copy runs, too; NaN without kernels."""
        return self.hidden_s / self.kernel_s if self.kernel_s else math.nan

    @property
    def busy_share(self) -> float:
        """Share of the total time in which a copy runs."""
        return self.copy_s / self.total_s

    @property
    def memcpy_gbs(self) -> float:
        """Bytes copied over the time in which a copy runs, in GB/s; NaN without such time."""
        return self.nbytes / self.copy_s * 1e-9 if self.copy_s else math.nan


def overlap(spans: Sequence[Span], total_s: float) -> Overlap:
    """What overlaps in a run that took `total_s`."""
    copies, kernels = (
        union((s.begin_s, s.end_s) for s in spans if s.what == what) for what in (COPY, KERNEL)
    )
    nbytes = sum(s.nbytes for s in spans)
    return Overlap(_length(copies), _length(kernels), common(copies, kernels), total_s, nbytes)


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Merge intervals that overlap or touch, in ascending order."""
    merged: list[Interval] = []
    for begin, end in sorted(intervals):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((begin, end))
    return merged


def common(a: Sequence[Interval], b: Sequence[Interval]) -> float:
    """Return the length of the intersection of two unions of intervals."""
    i, j, length = 0, 0, 0.0
    while i < len(a) and j < len(b):
        length += max(0.0, min(a[i][1], b[j][1]) - max(a[i][0], b[j][0]))
        # What ends first meets nothing further on.
        if a[i][1] < b[j][1]:
            i += 1
        else:
            j += 1
    return length


def _length(merged: Sequence[Interval]) -> float:
    return sum(end - begin for begin, end in merged)


# The table

# Units and meaning as in `Span`, `Trace` and `Cell`; `n` are the elements of one array, and `array`
# is null for a kernel.


class TracedSpan(Table):
    """A copy of a piece, or the kernel on it."""

    case: Annotated[String, Meaning("name of the traced case")]
    cell_key: String
    kernel: String
    dtype: String
    variant: String
    n: Int64
    device_name: String
    backend: String
    one_engine: Annotated[
        Bool, Meaning("whether begins of copies are derived, since one engine makes them all")
    ]
    total_s: Annotated[
        Float64, Meaning("from the first copy to the number, by the host's clock", "s")
    ]
    untraced_s: Annotated[
        Float64, Meaning("the median of the same number of runs without marks", "s")
    ]
    stream: Annotated[Int32, Meaning("which stream, from zero")]
    piece: Annotated[Int32, Meaning("which piece of the arrays, from zero")]
    what: Annotated[String, Meaning("copy or kernel")]
    array: Annotated[String | None, Meaning("which array is copied; null for a kernel")]
    nbytes: Annotated[Int64, Meaning("what was copied; zero for a kernel", "bytes")]
    ready_s: Annotated[Float64, Meaning("queued, and all before it in its stream done", "s")]
    begin_s: Annotated[
        Float64, Meaning("it begins; later than ready where it waits for the engine", "s")
    ]
    end_s: Annotated[Float64, Meaning("it ends", "s")]


TIMELINE_SCHEMA = TracedSpan.schema()


def timeline_table(traces: Mapping[str, tuple[Cell, Trace]], info: DeviceInfo) -> pa.Table:
    """One row a span, in the order of queueing; the keys name the cases."""
    rows = [
        {
            "case": case,
            "cell_key": cell.key,
            "kernel": cell.kernel,
            "dtype": cell.dtype,
            "variant": cell.variant,
            "n": cell.problem.height * cell.problem.width,
            "device_name": info.name,
            "backend": info.backend,
            **{name: getattr(trace, name) for name in _OF_TRACE},
            **asdict(span),
        }
        for case, (cell, trace) in traces.items()
        for span in trace.spans
    ]
    return pa.Table.from_pylist(rows, schema=TIMELINE_SCHEMA)


def read_timeline(path: Path) -> pd.DataFrame:
    """The table of a file. Raises BadParquetError naming the file and the fault."""
    return read_table(path, TIMELINE_SCHEMA).to_pandas()


def traces_of(rows: pd.DataFrame) -> dict[str, Trace]:
    """The traces of a table by case, in its order."""
    traces = {}
    for case, part in rows.groupby("case", sort=False):
        # What pandas makes of a null depends on its version.
        part = part.assign(array=part["array"].astype(object).where(part["array"].notna(), None))
        spans = tuple(Span(**row) for row in part[_OF_SPAN].to_dict("records"))
        traces[str(case)] = Trace(spans, **part.iloc[0][_OF_TRACE].to_dict())
    return traces


_OF_SPAN = [f.name for f in fields(Span)]
_OF_TRACE = [f.name for f in fields(Trace) if f.name != "spans"]
