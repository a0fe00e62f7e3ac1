"""The chapter's part in the plan of a run: what is asked of simulated devices, and the record."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

from gpushmoo.chapters import Chapter, ChapterPlan, ChapterRun
from gpushmoo.core.errors import ChapterError, ConfigError
from gpushmoo.core.paths import KERNELS, PACKAGE, ROOT
from gpushmoo.core.space import TYPICAL, most_values
from gpushmoo.planning.digest import file_digest
from gpushmoo.planning.sweeps import check_axis

from .figures import DRAWN_FROM
from .options import Options
from .simulation.machine import (
    Level,
    Machine,
    MachineError,
    Tiling,
    at_board_clock,
    load_machine,
    residency,
)

RECORD = ROOT / "reports" / "recorded"


def recorded_name(made: str, code: str, asked: Any) -> str:
    """Return the record's name of the file `made`, from digests of its code and question."""
    told = json.dumps([code, asked], sort_keys=True)
    path = Path(made)
    return f"{path.stem}-{hashlib.sha256(told.encode()).hexdigest()[:12]}{path.suffix}"


def found(constants: Mapping[str, str]) -> dict[str, str]:
    """Those of the files, by their place in the run's folder, that the record holds."""
    kept = {made: RECORD / name for made, name in constants.items()}
    return {made: os.path.relpath(file) for made, file in kept.items() if file.is_file()}


def replace_record(constants: Mapping[str, str]) -> None:
    """Have the record hold these files, which a run has made, and no others."""
    kept = {name: Path(made).read_bytes() for made, name in constants.items()}
    RECORD.mkdir(exist_ok=True)
    for old in RECORD.iterdir():
        if old.name not in kept:
            old.unlink()
    for name, content in kept.items():
        (RECORD / name).write_bytes(content)


HERE = Path(__file__).resolve().parent
DEVICES = HERE / "devices"


def _code(*patterns: str) -> tuple[Path, ...]:
    return tuple(sorted(file for pattern in patterns for file in HERE.glob(pattern)))


# The code that makes tables of simulated devices, and the code that draws and checks. Neither
# imports other code of the chapter, so a change of a page does not repeat the search, which takes
# minutes.
SIMULATING = _code("__init__.py", "memory.py", "search.py", "stages.py", "simulation/*.py")
DRAWING = (*SIMULATING, *_code("answers.py", "atlas.py", "charts.py", "checks.py", "figures/*.py"))
# The code of the library that recorded figures are drawn with.
STYLE = PACKAGE / "figures" / "style.py"
# The device that the document is about; others are simulated beside it.
DEVICE = "tesla-c1060"
# What is asked of the code that draws.
DRAWN = ("atlas", "checks")
# Tables that the page is made of.
ON_PAGE = ("tables", "search", "tiles", "measured")
# Measured cells of this kernel can be compared with simulated ones.
COMPARED_KERNEL = "block_eq_partition"
# Numbers of blocks of one simulated device.
MAX_SIMULATED = 65_536
# What the PDF of figures prints and is laid out by.
PRINTED = (
    KERNELS / "block_eq_partition" / "kernel.cu",
    HERE / "atlas.typ",
    HERE / "published" / "slips.json",
)


@dataclass(frozen=True)
class Simulation:
    """One simulated `machine`, and its tasks from `simulate` in the configuration.

    `levels` are the simulated parts of the memory. `sizes` (sides of square arrays, in elements)
    over the axis `num_partition` make a figure, unless they are empty. `measured` compares with
    measured cells of the device of the same name.
    """

    name: str
    file: Path
    machine: Machine
    levels: tuple[str, ...]
    sizes: tuple[int, ...]
    num_partition: Any
    measured: bool

    def asked(self, kind: str, **more: Any) -> dict[str, Any]:
        """Return the request of a job of this kind, as plain values, extended by `more`."""
        device = {"file": os.path.relpath(self.file, ROOT), "machine": repr(self.machine)}
        return {"kind": kind, "levels": list(self.levels), **device, **more}


def read_simulation(name: str, spec: Mapping[str, Any], folder: Path) -> Simulation:
    """A device by the name of its file in `folder`; ChapterError names what does not fit."""
    key = f"chapters.tesla_c1060.simulate.{name}"
    files = {p.stem: p for p in folder.glob("*.yaml")}
    if name not in files:
        names = ", ".join(sorted(files))
        raise ChapterError(f"{key}: there is no such simulated device; found: {names}")
    levels, sizes = tuple(spec["levels"]), tuple(spec.get("sizes") or ())
    num_partition = spec.get("num_partition")
    if bool(sizes) != (num_partition is not None):
        raise ChapterError(f"{key}: sizes and num_partition go together, give both")
    if num_partition is not None:
        _check_blocks(f"{key}.num_partition", num_partition)
    try:
        machine = load_machine(files[name])
        check_levels(machine, files[name], levels)
        _check_sizes(machine, sizes)
    except MachineError as err:
        raise ChapterError(f"{key}: {str(err).removesuffix('.')}") from err
    measured = bool(spec.get("measured"))
    return Simulation(name, files[name], machine, levels, sizes, num_partition, measured)


def _check_blocks(key: str, axis: Any) -> None:
    try:
        check_axis(key, axis)
    except ConfigError as err:
        raise ChapterError(str(err).removesuffix(".")) from err
    n = most_values(axis, TYPICAL)
    if n > MAX_SIMULATED:
        raise ChapterError(f"{key}: {n} values; at most {MAX_SIMULATED} are simulated")


def check_levels(machine: Machine, file: Path, levels: Iterable[str]) -> None:
    """Raise MachineError where `file` does not describe the machine at one of the `levels`."""
    known = [level.value for level in machine.levels]
    for level in levels:
        if level not in known:
            raise MachineError(f"{file.name} has no {level}; its levels are {', '.join(known)}")


def _check_sizes(machine: Machine, sizes: Iterable[int]) -> None:
    """Raise MachineError for a size that the device's tiles do not divide."""
    for size, itemsize in product(sizes, (4, 8)):
        residency(machine, Tiling.partition_wide(machine, size, itemsize))


@dataclass(frozen=True)
class DevicePlan(ChapterPlan):
    """What is asked of simulated devices.

    `asked` says it of each file that is made, `constants` how those of them are called in the
    record that no measurement enters, and `recorded` which of these are there, and where.
    """

    # The files of the code that simulates, and of the code that draws.
    simulating: ClassVar[tuple[Path, ...]] = SIMULATING
    drawing: ClassVar[tuple[Path, ...]] = DRAWING

    results: Path = Path()
    asked: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    constants: Mapping[str, str] = field(default_factory=dict)
    recorded: Mapping[str, str] = field(default_factory=dict)

    def asked_for(self, file: str) -> Mapping[str, Any]:
        """What is asked for this file of the run."""
        return self.asked[str(self.results / file)]

    def drawn_from(self, wildcards: Any) -> list[str]:
        """The figure of this `machine` and `kind` in the record, else the tables behind it."""
        name = f"{wildcards.kind}-{wildcards.machine}"
        pair = [str(self.results / "figures" / f"{name}.{end}") for end in ("svg", "json")]
        if set(pair) <= set(self.recorded):
            return [self.recorded[file] for file in pair]
        tables = (f"{wildcards.machine}-{t}.parquet" for t in DRAWN_FROM[wildcards.kind])
        made = (str(self.results / "simulated" / table) for table in tables)
        return [self.recorded.get(file, file) for file in made]


class TeslaC1060(Chapter):
    """Float against double on a Tesla C1060, which is simulated."""

    document = "performance deviation between “float” and “double”"
    options = Options
    kernels = frozenset(
        {"block_eq_partition", "block_tiles", "copy2d_coalesced", "copy2d_document"}
    )

    def plan(self, options: Mapping[str, Any], run: ChapterRun) -> DevicePlan:
        """Simulated devices, and of that of the document all that its options ask.

        Nothing but the page where it is not simulated.
        """
        simulations = [
            read_simulation(name, spec, DEVICES)
            for name, spec in sorted((options.get("simulate") or {}).items())
            if spec is not None
        ]
        asked: dict[str, Mapping[str, Any]] = {}
        for s in simulations:
            if s.sizes:
                more = {"sizes": list(s.sizes), "num_partition": s.num_partition}
                asked[f"simulated/{s.name}-blocks.parquet"] = s.asked("blocks", **more)
            if s.measured and COMPARED_KERNEL in run.kernels:
                asked[f"simulated/{s.name}-measured.parquet"] = s.asked("measured")
        params: dict[str, Any] = {}
        for s in (s for s in simulations if s.name == DEVICE):
            try:
                asked |= _asked_of_the_document(s, options)
            except MachineError as err:
                raise ChapterError(f"chapters.tesla_c1060: {str(err).removesuffix('.')}") from err
            names = ("n_sm", "half_warp", "memory_clock_mhz", "board_clock_mhz")
            params = {name: getattr(s.machine, name) for name in names}
        tables = {(spec["kind"], Path(file).stem) for file, spec in asked.items()}
        figures = [
            f"{figure}-{stem.removesuffix(f'-{kind}')}"
            for figure, (kind, *_) in DRAWN_FROM.items()
            for made, stem in sorted(tables)
            if made == kind
        ]
        constants = {run.path(file): name for file, name in _record_names(asked, figures).items()}
        anew = options.get("rerun_simulation")
        recorded = {} if anew else found(constants)
        why = "asked for" if anew else "recorded with other code or options"
        reads: dict[str, tuple[str, ...]] = _recorded_index(run)
        for file, spec in asked.items():
            if spec["kind"] in (*ON_PAGE, "checks"):
                made = run.path(file)
                reads[spec["kind"]] = (*reads.get(spec["kind"], ()), recorded.get(made, made))
        return DevicePlan(
            figures=tuple(figures),
            products=tuple(run.path(file) for file in asked if file.endswith(".pdf")),
            reads=reads,
            params=params,
            results=run.results,
            asked={run.path(file): spec for file, spec in asked.items()},
            constants=constants,
            recorded=recorded,
            noted={file: why for file in constants if file not in recorded},
        )


def _asked_of_the_document(s: Simulation, options: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the requests for the document's device, by file; MachineError if it lacks one."""
    tables, search, tiles = (options.get(key) for key in ("tables", "search", "tiles"))
    asked: dict[str, dict[str, Any]] = {}

    def ask(kind: str, **more: Any) -> None:
        asked[f"simulated/{s.name}-{kind}.parquet"] = s.asked(kind, **more)

    if tables is not None:
        ask("tables", **tables)
        if Level.BANKS.value in s.levels:
            ask("profile", side=min(tables["sizes"]))
    if search is not None:
        check_levels(s.machine, s.file, [Level.BANKS.value])
        at_board_clock(s.machine)
        for latency in search["latency_cycles"]:
            replace(s.machine, latency_cycles=latency)
        ask("search", **search)
    sizes = [size for part in (tables, search) if part for size in part["sizes"]]
    _check_sizes(s.machine, sizes)
    for size in sizes:
        residency(s.machine, Tiling.square_tiles(size, 12))
    if tiles is not None:
        for row, pad, itemsize in product(tiles["row_bytes"], tiles["pad_bytes"], (4, 8)):
            residency(s.machine, Tiling.of_rows(tiles["size"], itemsize, row, pad))
        ask("tiles", **tiles)
    if options.get("figures"):
        numbers = file_digest(HERE / "published" / "numbers.yaml")
        asked[f"simulated/{s.name}-checks.json"] = s.asked("checks", numbers=numbers)
        asked[f"figures-{s.name}.pdf"] = s.asked("atlas", printed=file_digest(*PRINTED))
    return asked


def _record_names(asked: Mapping[str, Mapping[str, Any]], figures: Iterable[str]) -> dict[str, str]:
    """Return the record's names of results without a measurement, and of their figures."""
    simulating, drawing = file_digest(*SIMULATING), file_digest(*DRAWING, STYLE)
    names = {
        file: recorded_name(file, drawing if spec["kind"] in DRAWN else simulating, spec)
        for file, spec in asked.items()
        if spec["kind"] != "measured"
    }
    for figure in figures:
        kind, _, device = figure.partition("-")
        tables = [f"simulated/{device}-{table}.parquet" for table in DRAWN_FROM[kind]]
        if set(tables) <= set(names):
            for end in ("svg", "json"):
                file = f"figures/{figure}.{end}"
                names[file] = recorded_name(file, drawing, [names[table] for table in tables])
    return names


def _recorded_index(run: ChapterRun) -> dict[str, tuple[str, ...]]:
    """What measure_index.py wrote, where the recorded data set that is shown has it."""
    if run.dataset is None:
        return {}
    file = run.root / run.dataset / "benchmarks" / "index.json"
    return {"index": (str(run.dataset / "benchmarks" / "index.json"),)} if file.is_file() else {}


CHAPTER = TeslaC1060()
