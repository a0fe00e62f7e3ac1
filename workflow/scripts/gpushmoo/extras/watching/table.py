"""The rows that ``watch --json`` prints."""

from __future__ import annotations

from ...core.schema import Number, Table, Text, Whole


class SweepProgress(Table):
    """The cells of a sweep and element type, and the fastest of the largest size so far."""

    kernel: Text
    dtype: Text
    ended: Whole  # cells that have ended, of all repeats
    planned: Number  # cells of all repeats; by the plan, until they are counted
    variant: Text | None  # the fastest one's
    params: Text | None  # the fastest one's launch parameters, in one text
    median_s: Number | None
    bandwidth_gbs: Number | None
