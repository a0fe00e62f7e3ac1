"""Define the rows that ``watch --json`` prints."""

from __future__ import annotations

from typing import Annotated

from ...core.schema import Float64, Int64, Meaning, String, Table


class SweepProgress(Table):
    """The cells of a sweep and element type, and the fastest of the largest size so far."""

    kernel: String
    dtype: String
    ended: Annotated[Int64, Meaning("cells that have ended, of all repeats")]
    planned: Annotated[
        Float64, Meaning("cells of all repeats; by the plan, until they are counted")
    ]
    variant: Annotated[String | None, Meaning("the fastest one's")]
    params: Annotated[String | None, Meaning("the fastest one's launch parameters, in one text")]
    median_s: Float64 | None
    bandwidth_gbs: Float64 | None
