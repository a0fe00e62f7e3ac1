"""The memory clocks of the study: that of the document's text, and the board's own."""

from __future__ import annotations

from dataclasses import replace

from gpushmoo.simulation.machine import Machine, MachineError


def at_board_clock(machine: Machine) -> Machine:
    """The machine with its memory at `board_clock_mhz`; MachineError where it has none."""
    if machine.board_clock_mhz is None:
        raise MachineError(
            f"{machine.name} has no board_clock_mhz, which the document's clock is compared with."
        )
    faster = machine.board_clock_mhz / machine.memory_clock_mhz
    return replace(
        machine,
        memory_clock_mhz=machine.board_clock_mhz,
        memory_data_rate_mhz=faster * machine.memory_data_rate_mhz,
    )


def clocks(machine: Machine) -> dict[str, Machine]:
    """The machine as described and, where the board's clock is another, at that; by ``400 MHz``."""
    found = [machine] if machine.board_clock_mhz is None else [machine, at_board_clock(machine)]
    return {f"{m.memory_clock_mhz:g} MHz": m for m in found}
