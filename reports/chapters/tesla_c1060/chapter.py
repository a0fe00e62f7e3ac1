"""The chapter's part in the plan of a run: what is asked of the simulated device."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from gpushmoo.chapters.contract import Chapter, ChapterError, ChapterPlan, ChapterRun
from gpushmoo.core.paths import KERNELS, ROOT
from gpushmoo.planning.digest import file_digest
from gpushmoo.planning.recorded import recorded_name
from gpushmoo.simulation.machine import Level, Machine, MachineError
from gpushmoo.simulation.request import Simulation, check_levels
from gpushmoo.simulation.tiling import Tiling, residency

from .clocks import at_board_clock

DEVICE = "tesla-c1060"
SCRIPTS = Path(__file__).resolve().parent / "scripts"
# What each script makes, in the run's folder.
MADE = {
    "simulate_tables": (f"simulated/{DEVICE}-tables.parquet",),
    "simulate_questions": tuple(
        f"simulated/{DEVICE}-{part}.parquet" for part in ("questions", "profile")
    ),
    "simulate_tile_widths": (f"simulated/{DEVICE}-tiles.parquet",),
    "check_published": (f"simulated/{DEVICE}-checks.json",),
    "atlas": (f"figures-{DEVICE}.pdf",),
}
# What the page is made of.
READ = frozenset({"tables", "questions", "tiles", "checks"})
# What the PDF of figures prints and is laid out by.
PRINTED = (
    KERNELS / "block_eq_partition" / "kernel.cu",
    SCRIPTS.with_name("atlas.typ"),
    SCRIPTS.with_name("published") / "slips.json",
)


@dataclass(frozen=True)
class DevicePlan(ChapterPlan):
    """What each script is asked of the simulated device; nothing where that is not simulated."""

    asked: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


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
        machine = simulation.machine
        try:
            _check(machine, simulation, tables, questions, latencies)
            _check_tiles(machine, tiles)
        except MachineError as err:
            raise ChapterError(f"chapters.tesla_c1060: {str(err).removesuffix('.')}") from err
        asks: dict[str, dict[str, Any]] = {}
        if tables is not None:
            asks["simulate_tables"] = {"tables": tables}
        if questions:
            asks["simulate_questions"] = {"questions": questions}
        if tiles is not None:
            asks["simulate_tile_widths"] = {"tiles": tiles}
        if options.get("figures"):
            asks["check_published"] = {"latency_cycles": latencies}
            asks["atlas"] = {"printed": file_digest(*PRINTED)}
        device = {
            "file": os.path.relpath(simulation.device_file, ROOT),
            "machine": repr(machine),
            "levels": list(simulation.levels),
        }
        asked = {script: device | ask for script, ask in asks.items()}
        made = {run.path(file): script for script in asked for file in MADE[script]}
        kinds = ("simulated",) * bool(simulation.sizes)
        kinds += ("questions", "float3") * bool(questions)
        return DevicePlan(
            figures=tuple(f"{kind}-{DEVICE}" for kind in kinds),
            products=tuple(file for file in made if file.endswith(".pdf")),
            reads=recorded
            | {
                kind: (file,)
                for file in made
                if (kind := Path(file).stem.removeprefix(f"{DEVICE}-")) in READ
            },
            params={
                "n_sm": machine.n_sm,
                "half_warp": machine.half_warp,
                "memory_clock_mhz": machine.memory_clock_mhz,
                "board_clock_mhz": machine.board_clock_mhz,
            },
            constants=_constants(run, made, asked),
            asked=asked,
        )


def _constants(
    run: ChapterRun, made: Mapping[str, str], asked: Mapping[str, Any]
) -> dict[str, str]:
    """The names in the record of what is `made`, and of the figures that are drawn from it."""
    names = {
        file: recorded_name(file, SCRIPTS / f"{script}.py", asked[script])
        for file, script in made.items()
    }
    drawn_from = names.get(run.path(*MADE["simulate_questions"][:1]))
    for kind in ("questions", "float3") if drawn_from else ():
        for end in ("svg", "json"):
            figure = run.path("figures", f"{kind}-{DEVICE}.{end}")
            names[figure] = recorded_name(figure, SCRIPTS / f"figure_{kind}.py", drawn_from)
    return names


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
