"""What a run asks of simulated devices, checked against their files before any job exists."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .model.machine import Level, MachineError, load_machine
from .model.tiling import Tiling, residency
from .readable import UnreadableError, refuse_unreadable


class SimulationError(ValueError):
    """A simulated device cannot do what is asked; the message is one sentence."""


@dataclass(frozen=True)
class Tables:
    """The document's tables as predictions: square sizes and numbers of blocks."""

    sizes: tuple[int, ...]
    num_partition: tuple[int, ...]


@dataclass(frozen=True)
class SimulationConfig:
    """One simulated device and what is asked of it.

    `sizes` over the axis `num_partition` make a figure; `tables` are the document's; `questions` is
    the side at which its open questions are asked; `document` draws its figures; `measured`
    compares with measured cells of the device of the same name. What is empty, None or
    False is left out.
    """

    name: str
    device_file: Path
    levels: tuple[str, ...]
    sizes: tuple[int, ...]
    num_partition: Any
    tables: Tables | None
    questions: int | None
    document: bool
    measured: bool


def read_simulation(name: str, spec: Mapping[str, Any], root: Path) -> SimulationConfig:
    """A device of `config/devices/` under `root`; SimulationError names what does not fit."""
    known = {p.stem: p for p in (root / "config/devices").glob("*.yaml")}
    if name not in known:
        found = ", ".join(sorted(known))
        raise SimulationError(f"simulate.{name}: there is no such simulated device; found: {found}")
    tables = spec.get("tables")
    config = SimulationConfig(
        name=name,
        device_file=known[name],
        levels=tuple(spec["levels"]),
        sizes=tuple(spec.get("sizes") or ()),
        num_partition=spec.get("num_partition"),
        tables=tables and Tables(tuple(tables["sizes"]), tuple(tables["num_partition"])),
        questions=spec.get("questions"),
        document=bool(spec.get("document")),
        measured=bool(spec.get("measured")),
    )
    if bool(config.sizes) != (config.num_partition is not None):
        raise SimulationError(f"simulate.{name}: sizes and num_partition go together, give both")
    try:
        refuse_unreadable(config.device_file)
        _check(config)
    except (MachineError, UnreadableError) as err:
        raise SimulationError(f"simulate.{name}: {str(err).removesuffix('.')}") from err
    return config


def _check(config: SimulationConfig) -> None:
    """Every level is one of the machine, every size one that its tiles divide."""
    machine = load_machine(config.device_file)
    levels = [level.value for level in machine.levels]
    asked = [*config.levels, *([Level.BANKS.value] if config.questions else [])]
    for level in asked:
        if level not in levels:
            raise MachineError(
                f"{config.device_file.name} has no {level}; its levels are {', '.join(levels)}"
            )
    if config.questions and machine.board_clock_mhz is None:
        raise MachineError(
            f"{config.device_file.name} has no board_clock_mhz, which its questions compare with"
        )
    own = () if config.tables is None else config.tables.sizes
    coalesced = (*own, *([config.questions] if config.questions else []))
    for size in dict.fromkeys((*config.sizes, *coalesced)):
        for itemsize in (4, 8):
            residency(machine, Tiling.partition_wide(machine, size, itemsize))
    for size in coalesced:
        residency(machine, Tiling.square_tiles(size, 12))
