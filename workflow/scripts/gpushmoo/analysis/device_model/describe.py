"""From measured cells to what their launches ask of the device: the model's inputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ...core.code_path import CodePath
from ...core.dtypes import DTYPES
from ...core.schema import GROUP, Status
from ...core.space import LAUNCH_KINDS, Cell, Problem
from ...workloads.contract import Launch, Workload
from ...workloads.host_fed import HostFedWorkload
from .form import COLUMNS
from .traffic import WARP, BlockTraffic, Counted, access_bytes, block_traffic

# Kernel, type, name of the version, and function in it.
Codes = Mapping[tuple[str, str, str, str], CodePath]


@dataclass(frozen=True)
class DeviceFacts:
    """What the model must know of a device that no parameter tells."""

    units: int
    cache_bytes: int
    clock_hz: float


def code_paths(
    provenance: Iterable[Mapping[str, Any]],
) -> dict[tuple[str, str, str, str], CodePath]:
    """The ways through the kernels' machine code that the shards tell, by `Codes`' keys.

    Older shards tell none.
    """
    found = {}
    for shard in provenance:
        params = shard["params"]
        kernel = Path(params["folder"]).name
        versions = (shard["machine_code"] or {}).get("variants", {})
        for version, told in versions.items():
            for entry in told.get("entries") or ():
                if entry.get("path"):
                    path = CodePath.from_json(entry["path"])
                    found[kernel, params["dtype"], version, entry["entry"]] = path
    return found


def device_facts(provenance: Iterable[Mapping[str, Any]]) -> DeviceFacts:
    """Of the first shard's device; the shards of a data set are of devices of one name."""
    device = next(iter(provenance))["device"]
    return DeviceFacts(device["units"], device["cache"], device["core_clock_mhz"] * 1e6)


class Describer:
    """Describes cells of one device; what is the same for several of them is looked at once."""

    def __init__(
        self, workloads: Mapping[str, Workload], codes: Codes, device: DeviceFacts
    ) -> None:
        self.workloads, self.codes, self.device = workloads, codes, device
        self._traffic: dict[Cell, BlockTraffic | None] = {}
        self._counted: Counted = {}

    def table(self, cells: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, str]]:
        """A row for each verified cell that the model can say something of: the group's columns,
        ``cell_key``, ``measured_s`` and those of `form.Launches`. And by kernel why it cannot.

        It is a model of launches back to back; of other kinds it says nothing.
        """
        rows, why = [], {}
        wanted = (cells["status"] == Status.OK) & (cells["launch_kind"] == LAUNCH_KINDS[0])
        for row in cells[wanted].to_dict("records"):
            described = self._row(row)
            if isinstance(described, str):
                why[row["kernel"]] = described
            else:
                rows.append(described)
        columns = [*GROUP, "cell_key", "measured_s", *COLUMNS]
        return pd.DataFrame(rows, columns=columns), why

    def _row(self, row: Mapping[str, Any]) -> dict[str, Any] | str:
        workload = self.workloads.get(row["kernel"])
        if workload is None or isinstance(workload, HostFedWorkload) or not workload.device_code:
            return "nothing of it is timed on the device alone"
        if pd.isna(row["resident_per_unit"]):
            return "its device does not tell how many blocks a multiprocessor holds"
        axes = [(n, int(row[n])) for n in sorted(workload.axes)]
        problem = Problem(int(row["height"]), int(row["width"]))
        cell = Cell(
            row["kernel"], row["dtype"], row["variant"], problem, tuple(axes), row["cache_state"]
        )
        asked = self.launch(cell, int(row["resident_per_unit"]), int(row["launches_per_sample"]))
        if isinstance(asked, str):
            return asked
        told = {n: row[n] for n in (*GROUP, "cell_key")}
        return {**told, "measured_s": row["median_s"], **asked}

    def launch(self, cell: Cell, resident: int, in_a_sample: int) -> dict[str, float] | str:
        """The columns of `form.Launches` for one cell, or why there are none."""
        workload = self.workloads[cell.kernel]
        launch = workload.launch(cell)
        path = self.codes.get((cell.kernel, cell.dtype, workload.version(cell).name, launch.entry))
        if path is None:
            return "its machine code was not read"
        traffic = self.traffic(cell)
        if traffic is None:
            return "it does not tell which elements a thread takes"
        return _columns(workload, cell, launch, path, traffic) | {
            "units": self.device.units,
            "clock_hz": self.device.clock_hz,
            "cache_bytes": self.device.cache_bytes,
            "resident": resident,
            "in_a_sample": 1 if cell.cache_state == "flushed" else in_a_sample,
            "flushed": float(cell.cache_state == "flushed"),
        }

    def traffic(self, cell: Cell) -> BlockTraffic | None:
        """What a turn of the cell's blocks asks for; None where the kernel does not say."""
        known = Cell(cell.kernel, cell.dtype, cell.variant, cell.problem, cell.params)
        if known not in self._traffic:
            self._traffic[known] = block_traffic(self.workloads[cell.kernel], known, self._counted)
        return self._traffic[known]


def _columns(
    workload: Workload, cell: Cell, launch: Launch, path: CodePath, traffic: BlockTraffic
) -> dict[str, float]:
    read, written = workload.bytes_moved(cell)
    itemsize = DTYPES[cell.dtype].itemsize
    turn = max(traffic.load.bytes, traffic.store.bytes)
    # Of persistent blocks the one with the most pieces of work lasts longest.
    persistent = workload.persistent_axis is not None
    passes = (
        float(-(-launch.tiles // launch.blocks))
        if persistent
        else max(1.0, max(read, written) / launch.blocks / max(1.0, _distinct(traffic)))
    )
    steps = _Steps.of(path, _instructions_a_pass(path, traffic, launch.threads), passes)
    load, store = traffic.load, traffic.store
    image = traffic.image_loads or traffic.image_stores
    pictured = store if traffic.image_stores else load
    return {
        "blocks": launch.blocks,
        "warps": -(-launch.threads // WARP),
        "persistent": float(persistent),
        "turns": steps.turns,
        "waits": steps.waits,
        "instructions": steps.instructions,
        "turn_instructions": path.turn.instructions,
        "loads_a_wait": steps.loads / max(1.0, steps.waits),
        "load_lines": load.lines * passes if read else 0.0,
        "store_lines": store.lines * passes if written else 0.0,
        "store_first_lines": store.first_lines * passes if written else 0.0,
        "part_bytes": _mean_of_used((load.part_bytes, read), (store.part_bytes, written)) * passes,
        "warp_sectors": (pictured.warp_sectors if image else 0.0) * passes,
        "block_sectors": (pictured.block_sectors if image else 0.0) * passes,
        "block_bytes": turn * passes,
        "texel_loads": float(traffic.image_loads),
        "texel_stores": float(traffic.image_stores),
        "access_bytes": float(access_bytes(itemsize)),
        "apart": launch.block[0] / WARP,
        "bytes_read": read,
        "bytes_written": written,
    }


def _distinct(traffic: BlockTraffic) -> float:
    """Bytes that a turn of a block takes of the problem, each counted once."""
    return max(
        traffic.store.distinct_bytes,
        traffic.load.distinct_bytes if not traffic.store.bytes else 0.0,
    )


def _mean_of_used(*sides: tuple[float, int]) -> float:
    """Mean over the sides of which bytes count."""
    used = [part for part, moved in sides if moved]
    return float(np.mean(used)) if used else 0.0


def _instructions_a_pass(path: CodePath, traffic: BlockTraffic, threads: int) -> float:
    """Access instructions with which a thread does one pass, by what its block takes in it."""
    busier = traffic.load if traffic.load.bytes >= traffic.store.bytes else traffic.store
    part = path.turn if path.turn.accesses else path.once
    width = part.load_width if busier is traffic.load else part.store_width
    return max(1.0, busier.bytes / threads / max(1, width))


@dataclass(frozen=True)
class _Steps:
    """What a thread runs in all its passes."""

    turns: float
    waits: float
    instructions: float
    loads: float

    @classmethod
    def of(cls, path: CodePath, accesses: float, passes: float) -> _Steps:
        """Of `passes`, with so many access instructions each.

        A loop that was unrolled does several passes a turn, and what is left over once.
        """
        once, turn = path.once, path.turn
        needed = max(1.0, round(accesses * passes))
        if not turn.accesses:
            return cls(0.0, float(once.waits), float(once.instructions), float(once.loads))
        a_turn = turn.loads or turn.stores
        outside = once.loads if turn.loads else once.stores
        turns = float(needed // a_turn)
        left = needed - turns * a_turn
        each = turn.instructions / a_turn
        waits = turns * turn.waits
        if left:
            waits += once.waits * left / outside if outside else turn.waits
        instructions = max(8.0, once.instructions - max(0.0, outside - left) * each)
        instructions += turns * turn.instructions + max(0.0, left - outside) * each
        return cls(turns, waits, instructions, needed if turn.loads else 0.0)
