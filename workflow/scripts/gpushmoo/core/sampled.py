"""Which cells of a shard are known as well as was asked for."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from .median import CONFIDENCE
from .schema import Status


def fully_sampled(table: pa.Table) -> pa.ChunkedArray:
    """Whether each cell is ``ok`` and has an interval of 95 %, a column of booleans.

    A search gives slow cells fewer samples than that takes; no later repeat measures them.
    """
    ok = pc.equal(table.column("status"), Status.OK)
    sure = pc.greater_equal(pc.fill_null(table.column("coverage"), 0.0), CONFIDENCE)
    return pc.and_(ok, sure)
