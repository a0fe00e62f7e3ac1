"""Read hardware counters of the launches that a model explains, to test the model.

Times of these launches are not measurements, because the profiler, Nsight Compute, repeats each
launch and restores its output in between. The profiler watches the process
``python -m gpushmoo.extras.studies.counters REQUEST.json``. It launches the cells, records exactly
one launch of each cell if possible, and answers with the cells in the order of these launches.
"""

from __future__ import annotations

import csv
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa

from ...core.backends import BACKENDS, Backend
from ...core.display import MAX_SENTENCE, one_line
from ...core.errors import CounterError, DamagedFileError, DeviceError, NoDeviceError, TypedError
from ...core.paths import ROOT, child_environment
from ...core.schema import Int32, Int64, Meaning, String, StudiedCell
from ...core.space import ChosenCell, from_plain, to_plain
from ...core.study_job import JobDevice, StudyJob
from ...devices.base import Device, fitted
from ...storage.joblog import end_with_parent, raises_signals
from ...storage.wholefile import read_json, write_json
from ...studies.cells import (
    COLUMNS,
    FLUSHED,
    GROUPS,
    WARM,
    Folders,
    ReadyCell,
    cell_columns,
    cell_fault,
    explained_cells,
    locked_device,
    ready_cells,
    write_study,
)
from ...workloads.loader import KernelFolder, load_kernel

log = logging.getLogger(__name__)

# Seconds after which a run is given up.
LIMIT_S = 1800.0
# How often it is run again without the metrics that it does not know.
_RETRIES = 3

_RUN: dict[str, Any] = {"stdin": subprocess.DEVNULL, "encoding": "utf-8", "errors": "replace"}
_COMPLAINT = re.compile(r"^==(?:ERROR|WARNING)== *(.+)$", re.M)


@dataclass(frozen=True)
class CountedLaunch:
    """A launch in the profiler's report; `values` by the metric's name, None if not read."""

    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    values: Mapping[str, float | None]


def find_ncu(backend: Backend) -> str:
    """Return the backend's profiler, from the PATH or the newest one in its usual folders.

    Raises CounterError.
    """
    name, places = backend.profiler, backend.profiler_places
    if not name:
        having = ", ".join(b.name for b in BACKENDS.values() if b.profiler)
        raise CounterError(f"backend '{backend.name}' has no profiler; {having} has.")
    found = shutil.which(name)
    if found is None:
        spots = (Path("/").glob(f"{place[1:]}/{name}") for place in places)
        installed = sorted((str(file) for some in spots for file in some), key=_size)
        found = next((file for file in reversed(installed) if os.access(file, os.X_OK)), None)
    if found is None:
        raise CounterError(
            f"'{name}' (Nsight Compute) is neither on the PATH nor in {' or '.join(places)}."
        )
    return found


def version_of(ncu: str) -> str:
    """Return the last line of the profiler's version text; "" if it prints none."""
    command = [ncu, "--version"]
    try:
        done = subprocess.run(command, **_RUN, capture_output=True, timeout=120, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return one_line((done.stdout.strip().splitlines() or [""])[-1])


def count_launches(
    ncu: str,
    command: Sequence[str],
    options: Sequence[str],
    metrics: Sequence[str],
    report: Path,
    env: Mapping[str, str],
) -> list[CountedLaunch]:
    """Run `command` under the profiler; return the recorded launches in their order.

    The profiler writes to the file `report`; the command prints where this process prints. Unknown
    metrics are left out of the launches' values. Raises CounterError.
    """
    wanted = list(metrics)
    for _ in range(1 + _RETRIES):
        arguments = [*options, "--metrics", ",".join(wanted), *command]
        text = _report_of(ncu, arguments, report, env)
        rows = parse_report(text)
        if rows:
            return rows
        complaints = " ".join(_COMPLAINT.findall(text))
        unknown = [m for m in wanted if re.search(rf"{re.escape(m)}(?!\w)", complaints)]
        if not unknown or len(unknown) == len(wanted):
            break
        log.warning("%s does not know: %s", ncu, ", ".join(unknown))
        wanted = [metric for metric in wanted if metric not in unknown]
    raise CounterError(reason_in(text))


def _report_of(ncu: str, arguments: Sequence[str], report: Path, env: Mapping[str, str]) -> str:
    report.unlink(missing_ok=True)
    options = ["--profile-from-start", "off", "--clock-control", "none"]
    options += ["--csv", "--page", "raw", "--print-units", "base", "--log-file", str(report)]
    run = [ncu, *options, *arguments]
    try:
        done = subprocess.run(run, **_RUN, env=dict(env), timeout=LIMIT_S, check=False)
    except OSError as err:
        raise CounterError(f"'{ncu}' does not start ({err.strerror}).") from err
    except subprocess.TimeoutExpired as err:
        raise CounterError(f"the profiler took longer than {LIMIT_S:.0f} s.") from err
    if not report.is_file():
        return f"==ERROR== it ended with status {done.returncode} and wrote nothing"
    return report.read_text(encoding="utf-8", errors="replace")


def parse_report(text: str) -> list[CountedLaunch]:
    """Return the launches from the profiler's CSV, page ``raw``; rows of units are skipped."""
    lines = [line for line in text.splitlines() if line.startswith('"')]
    return [
        CountedLaunch(
            row["Kernel Name"].split("(")[0],
            _size(row["Grid Size"]),
            _size(row["Block Size"]),
            {name: _number(value) for name, value in row.items() if name and "__" in name},
        )
        for row in csv.DictReader(lines)
        if (row.get("ID") or "").isdigit()
    ]


def _size(text: str) -> tuple[int, ...]:
    """Return ``(256, 1, 1)`` as numbers; for a path, those of its version."""
    return tuple(int(digits) for digits in re.findall(r"\d+", text))


def _number(text: str | None) -> float | None:
    """Return a counter from Nsight Compute's CSV; None for ``n/a``, if the device lacks it."""
    with suppress(ValueError):
        value = float((text or "").replace(",", ""))
        return value if value == value else None
    return None


def reason_in(text: str) -> str:
    """Return the profiler's reason for missing counters: the end of a sentence."""
    if "ERR_NVGPUCTRPERM" in text:
        return (
            "the driver lets only the administrator read them (ERR_NVGPUCTRPERM); run as root, or "
            "load the driver with NVreg_RestrictProfilingToAdminUsers=0."
        )
    errors = re.findall(r"^==ERROR== *(.+)$", text, re.M)
    complaints = errors or _COMPLAINT.findall(text) or text.split("\n")[:1]
    complaints = [c for c in complaints if c] or ["the profiler did not say why"]
    return f"{one_line(complaints[0], MAX_SENTENCE // 2).rstrip('.')}."


WARP = 32
# Between the passes of a launch, the profiler restores its output, which removes the launch's data
# from L2. For cells whose data may stay in a cache, it repeats the whole program instead.
KEPT_BYTES = 128 * 2**20
KEPT = "kept in the cache"
REPLAY = {
    FLUSHED: ("--cache-control", "all", "--replay-mode", "kernel"),
    WARM: ("--cache-control", "none", "--replay-mode", "kernel"),
    KEPT: ("--cache-control", "none", "--replay-mode", "application"),
}
# Launches of a cell before the one that is recorded: what caches keep is then what they keep when
# launches follow each other.
WARMING = 2
Say = Callable[[str], None]


class CountedCell(StudiedCell):
    """A cell that was launched under the profiler; its counters follow in further columns."""

    asks: Annotated[String, Meaning("question that the cell's counters answer")]
    message: Annotated[String | None, Meaning("why it was not launched")]
    bytes_read: Int64
    bytes_written: Int64
    entry: Annotated[String | None, Meaning("name of the kernel's function")]
    blocks: Int64 | None
    threads_per_block: Int64 | None
    multiprocessors: Int32 | None
    resident_blocks: Int32 | None
    registers: Int32 | None
    device_uuid: String | None
    device_name: String | None


# A counter that the profiler does not know, or did not read, is null.
COUNTERS_SCHEMA = pa.schema(
    [*CountedCell.fields(), *(pa.field(name, pa.float64()) for name in COLUMNS)]
)


@dataclass
class CounterStudy:
    """The cells of `sample`, by the kernels in `folders`, and their counters by key.

    `cache` is the folder for compiled code of runtimes, and `work` that for files between the
    processes. `launched` has the answers of `launch_cells`, `values` the counters by column, `info`
    describes the device, and `whys` are the reasons of failed runs of the profiler.
    """

    sample: Sequence[ChosenCell]
    folders: Folders
    device: JobDevice
    cache: Path
    work: Path
    launched: dict[str, dict[str, Any]] = field(default_factory=dict)
    values: dict[str, dict[str, float | None]] = field(default_factory=dict)
    info: dict[str, Any] = field(default_factory=dict)
    whys: list[str] = field(default_factory=list)
    profiler: str | None = None

    def count(self, out: Path, say: Say) -> None:
        """Write COUNTERS_SCHEMA to `out` with all counters that could be read, or the reason."""
        try:
            if not self.sample:
                raise CounterError("no model of the device explains a launch.")
            ncu = find_ncu(BACKENDS[self.device.backend])
            self.profiler = version_of(ncu)
            for (alike, cells), group in product(self._alike().items(), GROUPS):
                say(f"reading the counters '{group}' of {len(cells)} cells, {alike}")
                self._count_group(ncu, alike, cells, group)
                self._write(out)
        except CounterError as err:
            self.whys.append(str(err))
        for why in self.whys:
            say(why)
        self._write(out)

    def _alike(self) -> dict[str, list[ChosenCell]]:
        """Return the cells that are profiled in the same way, by the names of REPLAY."""
        alike: dict[str, list[ChosenCell]] = {}
        for one in self.sample:
            moved = sum(self.folders[one.cell.kernel].workload.bytes_moved(one.cell))
            kept = one.cell.cache_state == WARM and moved <= KEPT_BYTES
            alike.setdefault(KEPT if kept else one.cell.cache_state, []).append(one)
        return alike

    def _count_group(self, ncu: str, alike: str, cells: Sequence[ChosenCell], group: str) -> None:
        """Run the profiler once; append its failure to `whys`, or raise it if all runs failed."""
        metrics = GROUPS[group]
        request, answer, report = (
            self.work / f"{alike}-{group}{end}" for end in (".json", "-answer.json", ".csv")
        )
        answer.unlink(missing_ok=True)
        content = {
            "device": self.device.plain,
            "cache": str(self.cache),
            "folders": {name: str(folder.path) for name, folder in self.folders.items()},
            "answer": str(answer),
            **to_plain(cells),
        }
        write_json(request, content)
        command = [sys.executable, "-m", "gpushmoo.extras.studies.counters", str(request)]
        read = [*metrics.values()]
        try:
            rows = count_launches(ncu, command, REPLAY[alike], read, report, child_environment())
            answered = _read(answer)
            joined = join(rows, answered["launched"], metrics)
        except CounterError as err:
            # Without a device, the profiler only saw that the process ended.
            why = _read(answer).get("why") if answer.is_file() else None
            failed = CounterError(why) if why else err
            if not self.values:
                raise failed from err
            self.whys.append(str(failed))
            return
        self.info = answered["device"]
        self.launched.update({launched["key"]: launched for launched in answered["launched"]})
        for key, values in joined.items():
            self.values.setdefault(key, {}).update(values)

    def _write(self, out: Path) -> None:
        rows = [self._row(one) for one in self.sample if one.cell.key in self.launched]
        write_study(
            "counters",
            rows,
            COUNTERS_SCHEMA,
            out,
            self.folders,
            self.device.backend,
            **({} if self.profiler is None else {"profiler": self.profiler}),
            why=" ".join(self.whys) or None,
            device=self.info,
            metrics={c: m for group in GROUPS.values() for c, m in group.items()},
        )
        busy = {row["cell_key"]: _busy(row) for row in rows}
        content = {"device": self.info.get("name"), "cells": {k: b for k, b in busy.items() if b}}
        write_json(out.with_suffix(".json"), content)

    def _row(self, one: ChosenCell) -> dict[str, Any]:
        launched = self.launched[one.cell.key]
        made = launched["message"] is None
        x, y, z = launched["block"]
        across, down, deep = launched["grid"]
        return {
            **cell_columns(one.cell, self.folders),
            "asks": one.role,
            "message": launched["message"],
            "entry": launched["entry"] or None,
            "blocks": across * down * deep if made else None,
            "threads_per_block": x * y * z if made else None,
            "multiprocessors": self.info["multiprocessors"],
            "resident_blocks": launched["resident_blocks"],
            "registers": launched["registers"],
            "device_uuid": self.info["uuid"],
            "device_name": self.info["name"],
            **self.values.get(one.cell.key, {}),
        }


def _read(answer: Path) -> dict[str, Any]:
    try:
        return read_json(answer)
    except DamagedFileError as err:
        raise CounterError(
            "the process that launches the cells ended before it was through."
        ) from err


def join(
    rows: Sequence[CountedLaunch], launched: Iterable[Mapping[str, Any]], metrics: Mapping[str, str]
) -> dict[str, dict[str, float | None]]:
    """Assign counters to cells; return them by the key of the cell and by column.

    The profiler knows no cells: launches are matched by order; kernel, grid and block must agree.
    Raises CounterError where they do not.
    """
    made = [one for one in launched if one["message"] is None]
    if len(rows) != len(made):
        raise CounterError(f"the profiler recorded {len(rows)} launches, {len(made)} were made.")
    for row, one in zip(rows, made, strict=True):
        seen = (row.kernel, row.grid, row.block)
        due = (one["entry"], one["grid"], one["block"])
        if seen != (due[0], tuple(due[1]), tuple(due[2])):
            raise CounterError(f"{due} was launched, and the profiler saw {seen}.")
    return {
        one["key"]: {column: row.values.get(metric) for column, metric in metrics.items()}
        for row, one in zip(rows, made, strict=True)
    }


def _busy(row: Mapping[str, Any]) -> dict[str, float] | None:
    """Return the utilization of each unit in percent, and the warps; None if a counter lacks."""
    wanted = {f"{unit}_percent": unit for unit in ("dram", "l2", "l1", "sm")}
    wanted["active_warps"] = "active_warps"
    found = {name: row[n] for n, name in wanted.items() if row.get(n) is not None}
    if len(found) < len(wanted) or not row["resident_blocks"]:
        return None
    warps = -(-row["threads_per_block"] // WARP)
    held = min(row["resident_blocks"], -(-row["blocks"] // row["multiprocessors"]))
    return {**found, "room_for_warps": float(warps * held)}


@raises_signals()
def count_of_run(job: StudyJob, out: Path, say: Say, cache: str, explained: Sequence[Path]) -> None:
    """Count the launches that models explain in the files `explained`."""
    chosen = explained_cells(explained)
    kept = Path(cache).resolve()
    names = {one.cell.kernel for one in chosen}
    folders = {n: load_kernel(ROOT / f) for n, f in job.folders.items() if n in names}
    with tempfile.TemporaryDirectory(prefix="counters-") as work:
        CounterStudy(chosen, folders, job.device, kept, Path(work)).count(out, say)


# The process under the profiler


def launch_cells(
    device: Device,
    folders: Folders,
    chosen: Sequence[ChosenCell],
    seed: int,
    recorded: Callable[[], AbstractContextManager[None]],
) -> list[dict[str, Any]]:
    """Verify each cell and launch it once within `recorded`; return launches or ``message``s."""
    return [
        _answer(one, found)
        if isinstance(found, str)
        else _launched(folders[one.cell.kernel], device, found, recorded)
        for one, found in ready_cells(device, folders, chosen, seed)
    ]


def _answer(one: ChosenCell, message: str | None, **launch: Any) -> dict[str, Any]:
    none = {"entry": "", "grid": (0, 0, 0), "block": (0, 0, 0)}
    unknown = dict.fromkeys(("resident_blocks", "registers"))
    return {"key": one.cell.key, "message": message, **none, **unknown, **launch}


def _launched(
    folder: KernelFolder,
    device: Device,
    ready: ReadyCell,
    recorded: Callable[[], AbstractContextManager[None]],
) -> dict[str, Any]:
    program = ready.program
    try:
        launch = fitted(folder.workload.launch(ready.chosen.cell), program, device.info)
        made = {
            "entry": launch.entry,
            "grid": launch.grid,
            "block": launch.block,
            "resident_blocks": program.resident_blocks(launch),
            "registers": program.registers(launch.entry),
        }
        for _ in range(WARMING):
            ready.bound.run()
        with recorded():
            ready.bound.run()
    except TypedError as err:
        return _answer(ready.chosen, cell_fault(err))
    return _answer(ready.chosen, None, **made)


def main(request_file: str) -> int:
    """Answer the request; return 1 if no device was usable, with the reason as the answer."""
    end_with_parent()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    request = read_json(Path(request_file))
    chosen = JobDevice(**request["device"])
    try:
        folders = {name: load_kernel(Path(path)) for name, path in request["folders"].items()}
        with locked_device(chosen, Path(request["cache"]), log.info) as device:
            counters = device.counters
            if counters is None:
                raise NoDeviceError(f"No profiler reads counters of {device.info.name}.")
            cells = from_plain(request)
            launched = launch_cells(device, folders, cells, chosen.seed, counters.recorded)
            answer: dict[str, Any] = {"device": asdict(device.info), "launched": launched}
    except DeviceError as err:
        answer = {"why": str(err)}
    write_json(Path(request["answer"]), answer)
    return int("why" in answer)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
