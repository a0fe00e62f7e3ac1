"""The simulated device: what its YAML file may say, and the few durations that follow from it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from fractions import Fraction
from pathlib import Path
from typing import Any

import yaml


class MachineError(ValueError):
    """A device file describes a machine that cannot exist; the message names the key."""


@dataclass(frozen=True)
class Machine:
    """A simulated device of the Tesla class.

    Clocks carry their unit in the name. `index_cycles` and `latency_cycles` are core cycles,
    `t_ras_cycles` and `t_rp_cycles` are cycles of `memory_clock_mhz`. `bus_bytes` cross the
    memory bus in one period of `memory_data_rate_mhz`.
    """

    name: str
    n_sm: int
    core_clock_ghz: float
    max_threads_per_sm: int
    index_cycles: int
    latency_cycles: int
    partitions: int
    partition_bytes: int
    memory_clock_mhz: float
    memory_data_rate_mhz: float
    t_ras_cycles: int
    t_rp_cycles: int
    half_warp: int = 16
    bus_bytes: int = 64

    def __post_init__(self) -> None:
        """Refuse values that no device can have."""
        _check_types(self)
        if self.max_threads_per_sm < self.half_warp:
            raise MachineError(
                f"max_threads_per_sm must be at least one half-warp ({self.half_warp} threads), "
                f"not {self.max_threads_per_sm}."
            )
        if self.memory_data_rate_mhz < self.memory_clock_mhz:
            raise MachineError(
                f"memory_data_rate_mhz must be at least memory_clock_mhz "
                f"({self.memory_clock_mhz:g}), not {self.memory_data_rate_mhz:g}."
            )
        if self.latency_cycles < self.beat_cycles:
            raise MachineError(
                f"latency_cycles must be at least one bus transfer "
                f"({float(self.beat_cycles):g} core cycles), not {self.latency_cycles}."
            )

    @property
    def beat_cycles(self) -> Fraction:
        """Core cycles in which `bus_bytes` cross the bus: core clock / memory data rate."""
        return exact(self.core_clock_ghz) * 1000 / exact(self.memory_data_rate_mhz)


def exact(value: float) -> Fraction:
    """The decimal number a person wrote: 1.3 becomes 13/10, not the nearest binary fraction.

    Clock ratios stay exact this way, so that simulated times repeat to the last bit.
    """
    return Fraction(str(value))


def load_machine(path: Path | str) -> Machine:
    """Read a device file; MachineError says in one sentence which key is wrong and why."""
    try:
        data = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise MachineError(f"{path} is not valid YAML: {' '.join(str(error).split())}.") from error
    if not isinstance(data, Mapping):
        raise MachineError(f"{path} must be a mapping of keys to values.")
    known = {f.name: f for f in fields(Machine)}
    for key in data:
        if key not in known:
            raise MachineError(f"{path}: unknown key {key!r}; allowed are {', '.join(known)}.")
    for key, field in known.items():
        if key not in data and field.default is MISSING:
            raise MachineError(f"{path}: the key {key} is missing.")
    try:
        return Machine(**data)
    except MachineError as error:
        raise MachineError(f"{path}: {error}") from None


def _check_types(machine: Machine) -> None:
    """Every field has its declared type, and every number is finite and above zero."""
    for field in fields(machine):
        value: Any = getattr(machine, field.name)
        # The annotations of this module are strings, see `from __future__ import annotations`.
        if field.type == "str":
            if not isinstance(value, str) or not value.strip():
                raise MachineError(f"{field.name} must be a non-empty text, not {value!r}.")
        elif field.type == "int":
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise MachineError(
                    f"{field.name} must be a whole number of at least 1, not {value!r}."
                )
        elif (
            not isinstance(value, int | float)
            or isinstance(value, bool)
            or not math.isfinite(value)
            or value <= 0
        ):
            raise MachineError(f"{field.name} must be a number above 0, not {value!r}.")
