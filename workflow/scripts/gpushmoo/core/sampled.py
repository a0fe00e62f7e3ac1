"""How many samples a cell has in a repeat, and which cells have them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from .schema import Status

# Samples of a cell in one repeat by which it may be known as well as asked: fewer have no 95 %
# interval, and a cell that was fast four times in a row by luck stopped there and won.
FEWEST = 6
# From so many repeats on, these tell by themselves how far a cell's times lie apart, and
# FEWEST_OF_MANY samples in each suffice.
TELLING_REPEATS, FEWEST_OF_MANY = 3, 3


def least_samples(min_samples: int, repeats: int) -> int:
    """Samples that each of so many repeats takes of a cell at least, `min_samples` in all."""
    fewest = FEWEST_OF_MANY if repeats >= TELLING_REPEATS else FEWEST
    return max(fewest, math.ceil(min_samples / repeats))


def fully_sampled(table: pa.Table, measure: Mapping[str, Any]) -> pa.ChunkedArray:
    """Whether each cell is ``ok`` and has the samples of a whole cell, a column of booleans.

    `measure` are a measuring job's parameters of that name. A search gives slow cells fewer
    samples; no later repeat measures them.
    """
    least = min(FEWEST, least_samples(measure["min_samples"], measure["repeats"]))
    ok = pc.equal(table.column("status"), Status.OK)
    taken = pc.fill_null(pc.list_value_length(table.column("samples_s")), 0)
    return pc.and_(ok, pc.greater_equal(taken, least))
