"""The document's one surviving measurement, and the memory latency that would explain it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from gpushmoo.simulation.cases import BLOCK_EQ, Case, run_case
from gpushmoo.simulation.machine import Level, Machine
from gpushmoo.simulation.reference import (
    CORRECTED_ASSUMPTIONS,
    FIRST_ASSUMPTIONS,
    Assumptions,
    Chart,
    TileCopy,
    simulate,
)

SIDE, FLOAT = 256, 4  # elements; bytes of one
# GB/s of one block of float, to so many decimals as the document prints.
MEASURED_GBS, DECIMALS = 3.1, 1


@dataclass(frozen=True)
class OneBlock:
    """GB/s of one block that copies 256² floats, at one memory latency in core cycles.

    `first` and `corrected` are the document's slotted charts under its assumptions, `exact` those
    of the cycle-exact simulation by level of detail.
    """

    latency_cycles: int
    first: float
    corrected: float
    exact: dict[str, float]


def latency_sweep(
    machine: Machine, levels: Sequence[str], latencies: Sequence[int]
) -> list[dict[str, Any]]:
    """One block of float at each of the `latencies`, as rows of `OneBlock`."""
    return [
        asdict(
            OneBlock(
                latency,
                _slotted(machine, replace(FIRST_ASSUMPTIONS, latency_cycles=latency)),
                _slotted(machine, replace(CORRECTED_ASSUMPTIONS, latency_cycles=latency)),
                {level: _exact(machine, level, latency) for level in levels},
            )
        )
        for latency in latencies
    ]


def _slotted(machine: Machine, assumptions: Assumptions) -> float:
    load = TileCopy.square(machine, SIDE, FLOAT)
    chart = Chart(writes=True, slotted=True)
    return simulate(machine, load, 1, chart=chart, assumptions=assumptions).bandwidth_gbs


def _exact(machine: Machine, level: str, latency: int) -> float:
    case = Case(BLOCK_EQ, "float", SIDE, 1, Level(level))
    return run_case(replace(machine, latency_cycles=latency), case).drained_bandwidth_gbs


def explains(gbs: float) -> bool:
    """Whether a bandwidth, rounded as printed, is the measured one."""
    return round(gbs, DECIMALS) == MEASURED_GBS
