"""Joules per gigabyte of chosen cells.

What a device uses while it does nothing but one launch again and again, by its own counter of
energy, and how much it moves meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..core.errors import DeviceError
from ..core.median import MeanInterval, mean_interval
from ..core.paths import ROOT
from ..core.process import raises_signals
from ..core.schema import ENERGY_SCHEMA
from ..core.space import ChosenCell, from_plain
from ..devices.base import Device
from ..storage.wholefile import DamagedFileError, read_json
from ..workloads.loader import load_kernel
from .cells import Folders, cell_columns, device_facts, locked_device, write_study
from .energy_meter import EnergyMeter, EnergyPlan, Metered, MeteredCell, NoEnergyError, watched

NONE_MEASURED = "Energy was not measured"


@dataclass(frozen=True)
class EnergyTask:
    """The cells to be measured, by the kernels in `folders`, on the device of `device`, and how.

    `device` is what `locked_device` takes. Runtimes keep what they compile in `cache`.
    """

    chosen: Sequence[ChosenCell]
    folders: Folders
    device: Mapping[str, Any]
    cache: Path
    plan: EnergyPlan


@raises_signals()
def energy_of_run(
    spec: Mapping[str, Any], cells: Path, out: Path, say: Callable[[str], None], cache: str
) -> None:
    """`measure_energy` of the cells that a run has chosen.

    `spec` holds the ``device`` and, by kernel, the ``folders``, from the project's on.
    """
    chosen = read_cells(cells)
    names = {one.cell.kernel for one in chosen}
    folders = {n: load_kernel(ROOT / f) for n, f in spec["folders"].items() if n in names}
    plan = EnergyPlan(spec["device"]["seed"])
    measure_energy(EnergyTask(chosen, folders, spec["device"], Path(cache), plan), out, say)


def read_cells(path: Path) -> list[ChosenCell]:
    """The cells in a file. Raises ValueError, one sentence."""
    try:
        return from_plain(read_json(path))
    except DamagedFileError as err:
        raise ValueError(str(err)) from err


def measure_energy(task: EnergyTask, out: Path, say: Callable[[str], None]) -> None:
    """Measure what can be measured and write ENERGY_SCHEMA to `out`, after each round.

    Where nothing counts the device's energy the table is written all the same, without rows, and
    its metadata says under ``why`` what was in the way; so it is `say`-ed.
    """
    facts: dict[str, Any] = {}
    try:
        with locked_device(task.device, task.cache, say) as device:
            facts = device_facts(device)
            found = meter(device, task, say, lambda found: write_energy(out, task, facts, found))
            write_energy(out, task, facts, found)
    except (DeviceError, NoEnergyError) as err:
        why = f"{NONE_MEASURED}: {err}"
        say(why)
        write_energy(out, task, facts, Metered(), why)


def meter(
    device: Device,
    task: EnergyTask,
    say: Callable[[str], None],
    keep: Callable[[Metered], None],
) -> Metered:
    """`EnergyMeter.measure` on an open device. Raises NoEnergyError where it counts no energy."""
    if device.energy_mj() is None:
        name, backend = device.info.name, device.info.backend
        raise NoEnergyError(f"nothing counts that of {name} (backend {backend}).")
    clock = time.monotonic
    with watched(device.energy_mj, device.reading, clock) as steps:
        energy = EnergyMeter(device, task.folders, task.plan, steps, clock, time.sleep)
        return energy.measure(task.chosen, say, keep)


def write_energy(
    out: Path, task: EnergyTask, device: Mapping[str, Any], metered: Metered, why: str | None = None
) -> None:
    """Write the table of what was found; `device` are its facts, `why` what was in the way."""
    idle_w = [window.watts for window in metered.idle]
    write_study(
        "energy",
        [_row(cell, task, idle_w, device) for cell in metered.cells],
        ENERGY_SCHEMA,
        out,
        task.folders,
        task.device["backend"],
        why=why,
        device=device,
        plan=asdict(task.plan),
        idle=[{"seconds": w.seconds, "joules": w.joules} for w in metered.idle],
    )


def _row(
    metered: MeteredCell, task: EnergyTask, idle_w: Sequence[float], device: Mapping[str, Any]
) -> dict[str, Any]:
    head = cell_columns(metered.chosen.cell, task.folders)
    moved = head["bytes_read"] + head["bytes_written"]
    windows = metered.windows if metered.message is None else []
    gbs = [moved / w.seconds_per_launch / 1e9 for w in windows]
    states = [state for window in metered.windows for state in window.states]
    clocks = [state.sm_clock_mhz for state in states]
    return {
        **head,
        "role": metered.chosen.role,
        "message": metered.message,
        "rounds": len(windows),
        "launches_per_sample": metered.launches or None,
        "window_s": [w.seconds for w in windows],
        "window_j": [w.joules for w in windows],
        "window_gbs": gbs,
        **(_figures(metered, gbs, sum(idle_w) / len(idle_w)) if windows else {}),
        "sm_clock_mhz_low": min(clocks, default=None),
        "sm_clock_mhz_high": max(clocks, default=None),
        "temperature_c": max((state.temperature_c for state in states), default=None),
        "throttled": any(state.slowed for state in states),
        "device_uuid": device["uuid"],
        "device_name": device["name"],
    }


def _figures(metered: MeteredCell, gbs: Sequence[float], idle_w: float) -> dict[str, Any]:
    """The columns that follow from the windows: W, GB/s and J/GB, with and without the idle W."""
    windows = metered.windows
    busy_s = sum(w.samples * metered.launches * w.seconds_per_launch for w in windows)
    whole = [w.watts / g for w, g in zip(windows, gbs, strict=True)]
    net = [(w.watts - idle_w) / g for w, g in zip(windows, gbs, strict=True)]
    return {
        "power_w": sum(w.watts for w in windows) / len(windows),
        "idle_w": idle_w,
        "gbs": sum(gbs) / len(gbs),
        "busy_share": busy_s / sum(w.sampled_s for w in windows),
        **_named("joules_per_gb", mean_interval(whole)),
        **_named("net_joules_per_gb", mean_interval(net)),
    }


def _named(column: str, found: MeanInterval) -> dict[str, Any]:
    return {column: found.mean, f"{column}_low": found.low, f"{column}_high": found.high}
