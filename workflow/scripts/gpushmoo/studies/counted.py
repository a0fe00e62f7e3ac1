"""``python -m gpushmoo.studies.counted REQUEST.json``: makes the launches that a profiler watches.

A process of its own, which the profiler starts. Of each cell that it can launch it has the profiler
record exactly one launch, in the order of the request, and leaves word of all in the request's
`answer` file, JSON, so that whoever reads the profiler's output knows whose the launches were.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from ..core.backends import BACKENDS
from ..core.errors import DeviceError, DeviceLostError, TypedError
from ..core.paths import ROOT
from ..core.process import end_with_parent
from ..core.space import Cell, Problem
from ..devices.base import Device, functions_of
from ..devices.select import open_for_job
from ..measuring.buffers import Space, open_space
from ..measuring.builds import Builds, build_versions
from ..measuring.locks import DeviceLock, lock_one
from ..storage.wholefile import read_json, write_json
from ..workloads.loader import KernelFolder, load_kernel

log = logging.getLogger(__name__)

# Launches of a cell before the one that is recorded: what caches keep is then what they keep when
# launches follow each other.
WARMING = 2

Recorded = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True)
class Launched:
    """What became of a cell: the launch that was recorded, or a sentence on why there was none."""

    key: str
    message: str | None
    entry: str = ""
    grid: tuple[int, int, int] = (0, 0, 0)
    block: tuple[int, int, int] = (0, 0, 0)
    resident_per_unit: int | None = None
    registers: int | None = None


def to_plain(cell: Cell) -> dict[str, Any]:
    """The cell in values for JSON; `from_plain` reads it."""
    return {**asdict(cell), "params": dict(cell.params)}


def from_plain(values: Mapping[str, Any]) -> Cell:
    """The cell that `to_plain` gave."""
    params = tuple(sorted(values["params"].items()))
    return Cell(**{**values, "problem": Problem(**values["problem"]), "params": params})


def launch_cells(
    device: Device,
    folders: Mapping[str, KernelFolder],
    cells: Sequence[Cell],
    seed: int,
    recorded: Recorded,
) -> list[Launched]:
    """Verify each cell and launch it once within `recorded`. Raises DeviceLostError.

    Cells that follow each other and have their data in common share it.
    """
    done: list[Launched] = []

    def data_of(cell: Cell) -> tuple[str, str, Problem, str]:
        result = folders[cell.kernel].workload.result_of(cell.variant)
        return cell.kernel, cell.dtype, cell.problem, result

    for (kernel, dtype, problem, _), members in groupby(cells, data_of):
        some, folder = list(members), folders[kernel]
        versions = dict.fromkeys(folder.workload.version(cell) for cell in some)
        builds = build_versions(device, folder, dtype, list(versions))
        log.info("%s, %s, %s: %d cells", kernel, dtype, problem.label, len(some))
        try:
            space = open_space(device, folder.workload, problem, dtype, some[0].variant, seed)
        except DeviceLostError:
            raise
        except TypedError as err:
            done += [Launched(cell.key, str(err)) for cell in some]
            continue
        done += [_launched(folder, builds, space, cell, recorded) for cell in some]
    return done


def _launched(
    folder: KernelFolder, builds: Builds, space: Space, cell: Cell, recorded: Recorded
) -> Launched:
    name = folder.workload.version(cell).name
    try:
        if name in builds.failures:
            raise builds.failures[name]
        program, launch = builds.programs[name], folder.workload.launch(cell)
        bound = space.bind(program, cell)
        proof = space.bind_proof(program, cell) or bound
        space.poison()
        proof.run()
        fault = space.verdict(cell, proof).message
        if fault is not None:
            return Launched(cell.key, f"The result is wrong: {fault}.")
        resident = program.resident_per_unit(launch.entry, launch.threads, launch.shared_bytes)
        registers = program.registers(launch.entry)
        for _ in range(WARMING):
            bound.run()
        with recorded():
            bound.run()
    except DeviceLostError:
        raise
    except TypedError as err:
        return Launched(cell.key, str(err))
    return Launched(cell.key, None, launch.entry, launch.grid, launch.block, resident, registers)


def _answered(request: Mapping[str, Any]) -> dict[str, Any]:
    """The launches, and the device that they were made on. Raises DeviceError."""
    backend = BACKENDS[request["device"]["backend"]]
    held: list[DeviceLock] = []

    def lock(devices: Sequence[tuple[int, str]]) -> int:
        index, taken = lock_one(devices, lambda: log.info("waiting for the device"))
        held.append(taken)
        return index

    device = open_for_job(request["device"], Path(request["cache"]), lock)
    folders = {name: load_kernel(ROOT / path) for name, path in request["folders"].items()}
    cells = [from_plain(values) for values in request["cells"]]
    recorded = functions_of(backend).recorded
    launched = launch_cells(device, folders, cells, request["device"]["seed"], recorded)
    info = {**asdict(device.info), "extra": dict(device.info.extra)}
    return {"device": info, "launched": [asdict(one) for one in launched]}


def main(request_file: str) -> int:
    """Answer the request; 1 where no device could be used, of which the answer says why."""
    end_with_parent()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    request = read_json(Path(request_file))
    try:
        answer = _answered(request)
    except DeviceError as err:
        answer = {"why": str(err)}
    write_json(Path(request["answer"]), answer)
    return int("why" in answer)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
