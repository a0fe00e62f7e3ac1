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
from pathlib import Path
from typing import Any

from ..core.backends import BACKENDS
from ..core.errors import DeviceError, DeviceLostError, TypedError
from ..core.paths import ROOT
from ..core.process import end_with_parent
from ..core.space import ChosenCell, from_plain
from ..devices.base import Device, functions_of
from ..storage.wholefile import read_json, write_json
from ..workloads.loader import load_kernel
from .cells import Folders, ReadyCell, device_facts, locked_device, ready_cells

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


def launch_cells(
    device: Device,
    folders: Folders,
    chosen: Sequence[ChosenCell],
    seed: int,
    recorded: Recorded,
) -> list[Launched]:
    """Verify each cell and launch it once within `recorded`. Raises DeviceLostError."""
    return [
        Launched(one.cell.key, found)
        if isinstance(found, str)
        else _launched(folders, found, recorded)
        for one, found in ready_cells(device, folders, chosen, seed)
    ]


def _launched(folders: Folders, ready: ReadyCell, recorded: Recorded) -> Launched:
    cell = ready.chosen.cell
    launch = folders[cell.kernel].workload.launch(cell)
    held = launch.entry, launch.threads, launch.shared_bytes
    try:
        resident = ready.program.resident_per_unit(*held)
        registers = ready.program.registers(launch.entry)
        for _ in range(WARMING):
            ready.bound.run()
        with recorded():
            ready.bound.run()
    except DeviceLostError:
        raise
    except TypedError as err:
        return Launched(cell.key, str(err))
    return Launched(cell.key, None, launch.entry, launch.grid, launch.block, resident, registers)


def _answered(request: Mapping[str, Any]) -> dict[str, Any]:
    """The launches, and the device that they were made on. Raises DeviceError."""
    recorded = functions_of(BACKENDS[request["device"]["backend"]]).recorded
    folders = {name: load_kernel(ROOT / path) for name, path in request["folders"].items()}
    with locked_device(request["device"], Path(request["cache"]), log.info) as device:
        seed = request["device"]["seed"]
        launched = launch_cells(device, folders, from_plain(request), seed, recorded)
        return {"device": device_facts(device), "launched": [asdict(one) for one in launched]}


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
