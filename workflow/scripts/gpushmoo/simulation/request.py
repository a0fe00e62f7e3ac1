"""What a run asks of simulated devices, checked against their files before any job exists."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .machine import Machine, MachineError, load_machine
from .tiling import Tiling, residency

# Measured cells of these kernels can be compared with simulated ones.
COMPARED_KERNELS = frozenset({"block_eq_partition"})


class SimulationError(ValueError):
    """A simulated device cannot do what is asked; the message is one sentence."""


@dataclass(frozen=True)
class Simulation:
    """One simulated `machine` and what is asked of it.

    `levels` are how much of the memory is simulated. `sizes` (sides of square arrays, in elements)
    over the axis `num_partition` make a figure; where they are empty there is none. `measured`
    compares with measured cells of the device of the same name.
    """

    name: str
    device_file: Path
    machine: Machine
    levels: tuple[str, ...]
    sizes: tuple[int, ...]
    num_partition: Any
    measured: bool


def read_simulation(name: str, spec: Mapping[str, Any], root: Path) -> Simulation:
    """A device of `config/devices/` under `root`; SimulationError names what does not fit."""
    known = {p.stem: p for p in (root / "config/devices").glob("*.yaml")}
    if name not in known:
        names = ", ".join(sorted(known))
        raise SimulationError(f"simulate.{name}: there is no such simulated device; found: {names}")
    levels, sizes = tuple(spec["levels"]), tuple(spec.get("sizes") or ())
    num_partition = spec.get("num_partition")
    if bool(sizes) != (num_partition is not None):
        raise SimulationError(f"simulate.{name}: sizes and num_partition go together, give both")
    try:
        machine = load_machine(known[name])
        check_levels(machine, known[name], levels)
        for size in sizes:
            for itemsize in (4, 8):
                residency(machine, Tiling.partition_wide(machine, size, itemsize))
    except MachineError as err:
        raise SimulationError(f"simulate.{name}: {str(err).removesuffix('.')}") from err
    measured = bool(spec.get("measured"))
    return Simulation(name, known[name], machine, levels, sizes, num_partition, measured)


def check_levels(machine: Machine, file: Path, levels: Iterable[str]) -> None:
    """Raise MachineError where `file` does not describe the machine at one of the `levels`."""
    known = [level.value for level in machine.levels]
    for level in levels:
        if level not in known:
            raise MachineError(f"{file.name} has no {level}; its levels are {', '.join(known)}")
