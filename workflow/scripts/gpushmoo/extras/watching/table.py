"""Define the rows that ``watch --json`` prints."""

from __future__ import annotations

from typing import Annotated

from ...core.schema import Meaning, Number, Table, Text, Whole


class SweepProgress(Table):
    """The cells of a sweep and element type, and the fastest of the largest size so far."""

    kernel: Text
    dtype: Text
    ended: Annotated[Whole, Meaning("cells that have ended, of all repeats")]
    planned: Annotated[Number, Meaning("cells of all repeats; by the plan, until they are counted")]
    variant: Annotated[Text | None, Meaning("the fastest one's")]
    params: Annotated[Text | None, Meaning("the fastest one's launch parameters, in one text")]
    median_s: Number | None
    bandwidth_gbs: Number | None
