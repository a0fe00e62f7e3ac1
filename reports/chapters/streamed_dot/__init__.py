"""Chapter: a dot product of data that live on the host, by streams."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpushmoo.core.space import Cell, Problem

# Here, since what a study's job imports measures again when it changes, and the plan may change.
STUDIES = ("timeline", "errors", "rivals")
TIMELINE, ERRORS, RIVALS = STUDIES


def cell_of(spec: Mapping[str, Any]) -> Cell:
    """The cell that the configuration specifies by kernel, dtype, variant, size and axes."""
    params, problem = tuple(sorted(spec["axes"].items())), Problem(1, spec["size"])
    return Cell(spec["kernel"], spec["dtype"], spec["variant"], problem, params)
