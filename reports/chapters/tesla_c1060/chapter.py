"""The chapter's part in the plan of a run: what is asked of the simulated device."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from gpushmoo.chapters.contract import Chapter, ChapterError, ChapterPlan, ChapterRun
from gpushmoo.core.paths import KERNELS, ROOT
from gpushmoo.planning.digest import file_digest
from gpushmoo.simulation.machine import Level, Machine, MachineError, load_machine
from gpushmoo.simulation.request import Simulation, check_levels
from gpushmoo.simulation.tiling import Tiling, residency

from .clocks import at_board_clock

DEVICE = "tesla-c1060"


@dataclass(frozen=True)
class DevicePlan(ChapterPlan):
    """Parameters of the jobs that ask the simulated device; None where it is not simulated."""

    device: Mapping[str, Any] | None = None

    @property
    def listing_digest(self) -> str:
        """Digest of the kernel's source that the PDF of figures quotes."""
        return file_digest(KERNELS / "block_eq_partition/kernel.cu")


class TeslaC1060(Chapter):
    """Float against double on a Tesla C1060, which is simulated."""

    document = "performance deviation between “float” and “double”"
    kernels = frozenset(
        {"block_eq_partition", "block_tiles", "copy2d_coalesced", "copy2d_document"}
    )
    devices = frozenset({DEVICE})

    def plan(self, options: Mapping[str, Any], run: ChapterRun) -> DevicePlan:
        """Nothing but the page where the device is not simulated (`simulate`)."""
        simulation = run.simulations.get(DEVICE)
        recorded = _recorded_index(run)
        if simulation is None:
            return DevicePlan(reads=recorded)
        tables, questions = options.get("tables"), options.get("questions") or []
        latencies, tiles = options.get("latency_cycles") or [], options.get("tiles")
        try:
            machine = load_machine(simulation.device_file)
            _check(machine, simulation, tables, questions, latencies)
            _check_tiles(machine, tiles)
        except MachineError as err:
            raise ChapterError(f"chapters.tesla_c1060: {str(err).removesuffix('.')}") from err
        is_made = {
            "checks.json": bool(options.get("figures")),
            "tables.parquet": tables is not None,
            "questions.parquet": bool(questions),
            "tiles.parquet": tiles is not None,
        }
        kinds = ("simulated",) * bool(simulation.sizes)
        kinds += ("questions", "float3") * bool(questions)
        return DevicePlan(
            figures=tuple(f"{kind}-{DEVICE}" for kind in kinds),
            products=(run.path(f"figures-{DEVICE}.pdf"),) * is_made["checks.json"],
            reads=recorded
            | {
                Path(file).stem: (run.path("simulated", f"{DEVICE}-{file}"),)
                for file, is_read in is_made.items()
                if is_read
            },
            params={
                "n_sm": machine.n_sm,
                "half_warp": machine.half_warp,
                "memory_clock_mhz": machine.memory_clock_mhz,
                "board_clock_mhz": machine.board_clock_mhz,
            },
            device={
                "file": os.path.relpath(simulation.device_file, ROOT),
                "file_digest": file_digest(simulation.device_file),
                "levels": list(simulation.levels),
                "tables": tables,
                "questions": questions,
                "tiles": tiles,
                "latency_cycles": latencies,
            },
        )


def _check(
    machine: Machine,
    simulation: Simulation,
    tables: Mapping[str, Any] | None,
    questions: Sequence[int],
    latencies: Sequence[int],
) -> None:
    """Every size is one that the device's tiles divide, every level one of its file's."""
    for latency in latencies:
        replace(machine, latency_cycles=latency)
    if questions:
        check_levels(machine, simulation.device_file, [Level.BANKS.value])
        at_board_clock(machine)
    sizes = [*(tables["sizes"] if tables else ()), *questions]
    for size in dict.fromkeys(sizes):
        for itemsize in (4, 8):
            residency(machine, Tiling.partition_wide(machine, size, itemsize))
        residency(machine, Tiling.square_tiles(size, 12))


def _check_tiles(machine: Machine, tiles: Mapping[str, Any] | None) -> None:
    """Every tile that is asked for is one that the device can have."""
    if tiles is None:
        return
    for row_bytes, pad_bytes, itemsize in product(tiles["row_bytes"], tiles["pad_bytes"], (4, 8)):
        residency(machine, Tiling.of_rows(tiles["size"], itemsize, row_bytes, pad_bytes))


def _recorded_index(run: ChapterRun) -> dict[str, tuple[str, ...]]:
    """What measure_index.py wrote, where the recorded data set that is shown has it."""
    if run.dataset is None:
        return {}
    file = run.root / run.dataset / "benchmarks" / "index.json"
    return {"index": (str(run.dataset / "benchmarks" / "index.json"),)} if file.is_file() else {}


CHAPTER = TeslaC1060()
