"""``python -m gpushmoo.studies.energy --cells FILE --out FILE``: joules per gigabyte of cells.

What a device uses while it does nothing but one launch again and again, by its own counter of
energy, and how much it moves meanwhile. The file of cells is what `core.space` describes;
`--sweep` names cells on the command line.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from ..core.backends import AUTO, BACKENDS
from ..core.energy_schema import ENERGY_SCHEMA
from ..core.errors import DeviceError
from ..core.median import MeanInterval, mean_interval
from ..core.paths import KERNELS, ROOT
from ..core.process import raises_signals
from ..core.space import ChosenCell, cells_in, from_plain
from ..devices.base import Device
from ..devices.select import open_for_job
from ..measuring.locks import DeviceLock, lock_one
from ..storage.store import write_parquet
from ..storage.wholefile import DamagedFileError, read_json
from ..workloads.contract import Workload
from ..workloads.loader import KernelFolder, KernelFolderError, find_kernels, load_kernel
from .metered import EnergyMeter, EnergyPlan, Metered, MeteredCell
from .tables import cell_columns, params_words, study_facts
from .windows import NoEnergyError, watched

log = logging.getLogger(__name__)

__all__ = ["ENERGY_SCHEMA", "main", "measure_energy"]

NONE_MEASURED = "Energy was not measured"


@dataclass(frozen=True)
class EnergyTask:
    """The cells to be measured, by the kernels in `folders`, on the device of `device`, and how.

    `device` holds ``backend``, ``device``, ``opencl_runtime`` and ``seed``. Runtimes keep what they
    compile in `cache`.
    """

    chosen: Sequence[ChosenCell]
    folders: Mapping[str, KernelFolder]
    device: Mapping[str, Any]
    cache: Path
    plan: EnergyPlan


def measure_energy(task: EnergyTask, out: Path, say: Callable[[str], None]) -> None:
    """Measure what can be measured and write ENERGY_SCHEMA to `out`, after each round.

    Where nothing counts the device's energy the table is written all the same, without rows, and
    its metadata says under ``why`` what was in the way; so it is `say`-ed. Raises ValueError, one
    sentence, of a cell that its kernel does not have.
    """
    for one in task.chosen:
        check_cell(one, task.folders[one.cell.kernel].workload)
    held: list[DeviceLock] = []

    def lock(devices: Sequence[tuple[int, str]]) -> int:
        index, taken = lock_one(devices, lambda: say("waiting until the device is free"))
        held.append(taken)
        return index

    try:
        device = open_for_job(task.device, task.cache, lock)

        def keep(metered: Metered) -> None:
            _write(out, task, _facts(device), metered, None)

        try:
            keep(meter(device, task, say, keep))
        except NoEnergyError as err:
            say(str(err))
            _write(out, task, _facts(device), Metered((), ()), str(err))
        device.close()
    except DeviceError as err:
        why = f"{NONE_MEASURED}: {err}"
        say(why)
        _write(out, task, {}, Metered((), ()), why)
    finally:
        for taken in held:
            taken.release()


def meter(
    device: Device,
    task: EnergyTask,
    say: Callable[[str], None],
    keep: Callable[[Metered], None],
) -> Metered:
    """`EnergyMeter.measure` on an open device. Raises NoEnergyError where it counts no energy."""
    if device.energy_mj() is None:
        name, backend = device.info.name, device.info.backend
        raise NoEnergyError(f"{NONE_MEASURED}: nothing counts that of {name} (backend {backend}).")
    clock = time.monotonic
    with watched(device.energy_mj, device.reading, clock) as steps:
        try:
            energy = EnergyMeter(device, task.folders, task.plan, steps, clock, time.sleep)
            return energy.measure(task.chosen, say, keep)
        except NoEnergyError as err:
            raise NoEnergyError(f"{NONE_MEASURED}: {err}") from err


def check_cell(chosen: ChosenCell, workload: Workload) -> None:
    """Raise ValueError, one sentence, where the kernel has no such cell."""
    cell, named = chosen.cell, {name for name, _ in chosen.cell.params}
    for what, value, known in (
        ("type", cell.dtype, workload.dtypes),
        ("variant", cell.variant, workload.variants),
    ):
        if value not in known:
            raise ValueError(
                f"{cell.kernel} has no {what} '{value}'; it has: {', '.join(sorted(known))}."
            )
    if named != set(workload.axes):
        raise ValueError(
            f"a cell of {cell.kernel} has the axes {', '.join(sorted(workload.axes)) or 'none'}; "
            f"this one has {', '.join(sorted(named)) or 'none'}."
        )
    if (fault := workload.valid(cell)) is not None:
        raise ValueError(f"{cell.kernel} has no cell {params_words(cell)}: {fault}.")


def _facts(device: Device) -> dict[str, Any]:
    return {**asdict(device.info), "extra": dict(device.info.extra)}


def _write(
    out: Path, task: EnergyTask, device: Mapping[str, Any], metered: Metered, why: str | None
) -> None:
    idle_w = [window.watts for window in metered.idle]
    metadata = {
        **study_facts("energy", task.folders, task.device["backend"], why),
        "device": device,
        "plan": asdict(task.plan),
        "idle": [{"seconds": w.seconds, "joules": w.joules} for w in metered.idle],
    }
    rows = [_row(cell, task, idle_w, device) for cell in metered.cells]
    write_parquet(pa.Table.from_pylist(rows, ENERGY_SCHEMA), out, metadata)


def _row(
    metered: MeteredCell, task: EnergyTask, idle_w: Sequence[float], device: Mapping[str, Any]
) -> dict[str, Any]:
    head = cell_columns(metered.chosen.cell, task.folders)
    moved = head["bytes_read"] + head["bytes_written"]
    windows = metered.windows if metered.message is None else []
    gbs = [moved / w.seconds_per_launch / 1e9 for w in windows]
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
        **_states(metered),
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


def _states(metered: MeteredCell) -> dict[str, Any]:
    states = [state for window in metered.windows for state in window.states]
    clocks = [state.sm_clock_mhz for state in states]
    return {
        "sm_clock_mhz_low": min(clocks, default=None),
        "sm_clock_mhz_high": max(clocks, default=None),
        "temperature_c": max((state.temperature_c for state in states), default=None),
        "throttled": any(state.slowed for state in states),
    }


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


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure on this machine, without a run; 0 also where nothing counts energy."""
    backends = list(BACKENDS)
    parser = argparse.ArgumentParser(prog="gpushmoo.studies.energy", description=__doc__)
    ask = parser.add_argument
    ask("--cells", type=Path, help="a file of cells")
    ask("--sweep", action="append", default=[], metavar="'KERNEL DTYPE VARIANT SIZE axis=1,2 ...'")
    ask("--out", type=Path, required=True, help="the Parquet file to write")
    ask("--backend", choices=backends, default=backends[0])
    ask("--device", type=int, default=0, help="index of the device")
    ask("--rounds", type=int, default=EnergyPlan.rounds)
    ask("--window", type=float, default=EnergyPlan.window_s, help="seconds a window")
    ask("--warm", type=float, default=EnergyPlan.warm_s, help="seconds of launches before it")
    ask("--settle", type=float, default=EnergyPlan.settle_s, help="idle seconds before the idle W")
    ask("--seed", type=int, default=20091017, help="of the input data and of the order")
    ask("--cache", type=Path, help="keep compiled kernels here")
    asked = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    device = {"backend": asked.backend, "device": asked.device, "opencl_runtime": AUTO}
    plan = EnergyPlan(asked.seed, asked.rounds, asked.window, asked.warm, asked.settle)

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    try:
        chosen = [] if asked.cells is None else read_cells(asked.cells)
        chosen += [one for text in asked.sweep for one in cells_in(text)]
        if not chosen or asked.rounds < 1:
            parser.error("name cells by --cells or --sweep, and at least one round by --rounds.")
        folders = named_folders({one.cell.kernel for one in chosen})
        with tempfile.TemporaryDirectory(prefix="energy-") as own:
            cache = (asked.cache or Path(own)).resolve()
            seeded = {**device, "seed": asked.seed}
            measure_energy(EnergyTask(chosen, folders, seeded, cache, plan), asked.out, say)
    except (ValueError, KernelFolderError) as err:
        parser.error(str(err))
    return 0


def named_folders(kernels: set[str]) -> dict[str, KernelFolder]:
    """The project's own kernels of these names. Raises ValueError, one sentence."""
    paths = find_kernels([KERNELS])
    if unknown := sorted(kernels - set(paths)):
        raise ValueError(f"there is no kernel '{unknown[0]}'; there are: {', '.join(paths)}.")
    return {name: load_kernel(paths[name]) for name in sorted(kernels)}


if __name__ == "__main__":
    sys.exit(main())
