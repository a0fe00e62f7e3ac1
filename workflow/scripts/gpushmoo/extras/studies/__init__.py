"""Hardware counters and energy of a few cells, and a section of the report on energy."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...registry import Extra, Section

if TYPE_CHECKING:
    from ...planning.flow import Flow


def energy_files(flow: Flow) -> list[str]:
    """Return the table of energy; for a recorded data set, that in ``<its folder>-studies``."""
    if flow.config.dataset is None:
        asked = "energy" in flow.config.settings.studies
        return [flow.path("studies", "energy.parquet")] if asked else []
    folder = flow.config.dataset
    recorded = folder.with_name(f"{folder.name}-studies") / "energy.parquet"
    return [os.path.relpath(recorded)] if recorded.is_file() else []


def _content(files: Sequence[Path]) -> dict[str, Any]:
    from .energy_table import read_energy
    from .page import energy_page

    return energy_page(read_energy(files[0]))


def _findings(files: Sequence[Path]) -> Sequence[tuple[str, float]]:
    from .energy_table import read_energy
    from .page import energy_findings

    return energy_findings(read_energy(files[0]))


EXTRA = Extra(
    section=Section(energy_files, "energy", _content, _findings, place=10), keys=["studies"]
)
