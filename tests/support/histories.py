"""Runs that make a history."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from cells import Machine
from gpushmoo import CompareError
from gpushmoo.comparing.runs import RunCells


def made(
    slower: float = 0.0, drift: float = 0.0, copied: float = 1.0, since: int = 5, n: int = 8
) -> list[RunCells]:
    """Runs of which those from number `since` on have a slower variant v0 and a machine adrift."""
    machine = Machine(3, groups=3, cells=6, own=0.0005, noise=0.0005, copied=copied)
    return [
        machine.run(
            f"r{day}",
            {"v0": slower if day >= since else 0.0},
            drift=drift if day >= since else 0.0,
            day=day,
            kernel_digest="new" if day >= since else "old",
        )
        for day in range(1, n + 1)
    ]


def standing_for(monkeypatch: pytest.MonkeyPatch, runs: Mapping[str, RunCells]) -> None:
    """Have folders of these names read as runs; others cannot be."""

    def read(place: object) -> RunCells:
        name = Path(str(place)).name
        if name not in runs:
            raise CompareError(f"'{place}' does not exist; name a run's folder.")
        return runs[name]

    monkeypatch.setattr("gpushmoo.comparing.run_history.read_run", read)
