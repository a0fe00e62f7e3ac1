"""Read the progress of a run from its folder, and show it in a terminal or as plain text."""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.text import Text

from ...core.display import gbs, mode_words, seconds
from ...core.errors import DamagedFileError, WatchError
from ...core.paths import RESULTS
from ...core.run_plan import PLAN_FILE, RunPlan, SweepPlan
from ...core.schema import METADATA_KEY, PARAMS, is_axis
from ...core.space import TIMING_MODES, TYPICAL, in_order, most_values
from ...measuring.progress import LiveCell, duration, live_path, read_live
from ...storage.store import with_present_names
from ...storage.wholefile import read_json

# A shard whose file is older than this is not being measured: its job was killed, or the machine
# hangs. A job writes the file twice a second.
QUIET_S = 60.0
# From this share of all shards on, the speed of these predicts the time of the others.
_TELLING = 0.02
# Share of all shards at which a sweep's own speed counts as much as that of the others.
_FEW = 0.005
# Later repeats measure fewer cells: they are assumed to take this share of the first, until the
# second number of them has shown another. Both are from three recorded runs.
_LATER, _LATER_SHOWN = 0.5, 5.0
_COLUMNS = ("variant", "height", "width", "cache_state", "timing_mode", "status")


@dataclass
class SweepState:
    """One sweep and element type; cells are counted once for each repeat.

    `ended` of `planned` have ended. `done` is the finished work, in cells; cells that end at once,
    over a limit of the device, count no more than the others. `axes` are those with more than one
    value. `cells` are the cells of the first repeat that have ended, `begun` others that were
    launched. `latest` is the newest cell of an unfinished shard, or None.
    """

    sweep: str
    dtype: str
    axes: tuple[str, ...]
    planned: float = 0.0
    ended: int = 0
    done: float = 0.0
    cells: list[LiveCell] = field(default_factory=list)
    begun: list[LiveCell] = field(default_factory=list)
    latest: LiveCell | None = None

    def told(self) -> dict[str, Any]:
        """Return its cells, and the fastest one, for programs."""
        best = self.best
        return {
            "kernel": self.sweep,
            "dtype": self.dtype,
            "ended": self.ended,
            "planned": self.planned,
            "variant": best and best.variant,
            PARAMS: best and _launch(best),
            "median_s": best and best.seconds,
            "bandwidth_gbs": best and best.gbs,
        }

    @property
    def best(self) -> LiveCell | None:
        """The fastest cell of the largest size so far, of all variants."""
        timed = [(-c.height * c.width, c.seconds, c) for c in self.cells if c.seconds is not None]
        return min(timed, key=lambda each: each[:2], default=(0, 0.0, None))[-1]


@dataclass
class RunState:
    """State of a run at one moment.

    `labels` are the shards that are being measured, `shards` the numbers of finished and of all
    shards. The run was silent for `quiet_s`. Its first cell began at `begun_at`, which is None
    while kernels are compiled. `left_s` is None as long as the speed is unknown.
    """

    name: str
    quiet_s: float
    sweeps: list[SweepState] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    statuses: Counter[str] = field(default_factory=Counter)
    shards: list[int] = field(default_factory=lambda: [0, 0])
    left_s: float | None = None
    begun_at: float | None = None

    @property
    def done(self) -> float:
        """Return the finished work of the run, as a number of cells.

        A cell counts once in every repeat. A shard that is being measured counts with its finished
        share, so the number need not be whole.
        """
        return sum(sweep.done for sweep in self.sweeps)

    @property
    def ended(self) -> int:
        """Cells that have ended, of all repeats."""
        return sum(sweep.ended for sweep in self.sweeps)

    @property
    def planned(self) -> float:
        """Cells of all repeats, by the plan where no shard has counted them yet."""
        return sum(sweep.planned for sweep in self.sweeps)

    @property
    def finished(self) -> bool:
        """Whether every planned shard is there."""
        return self.shards[0] == self.shards[1]

    def told(self) -> dict[str, Any]:
        """Return the state for programs, by the names that the command line uses."""
        return {
            "rows": [sweep.told() for sweep in self.sweeps],
            "run": self.name,
            **{name: getattr(self, name) for name in ("finished", "ended", "planned", "statuses")},
            "shards": self.shards[0],
            "planned_shards": self.shards[1],
            "measuring": self.labels,
            "left_s": self.left_s,
            "quiet_s": self.quiet_s,
        }


@dataclass(frozen=True)
class _Finished:
    """A shard's file: the job's parameters and seconds, its cells, when each was measured."""

    params: Any
    seconds: float
    cells: list[LiveCell]
    measured_at: list[float]
    written_at: float


class Watched:
    """A run's folder that is read repeatedly; finished shards are read once."""

    def __init__(self, folder: Path) -> None:
        """Find the run in `folder`; raise WatchError if it is missing."""
        self._folder = folder
        self._read = dict[Path, tuple[tuple[int, int], _Finished]]()
        self._plan()

    def _plan(self) -> tuple[RunPlan, float]:
        """Return the plan and the time at which the run was started; raise WatchError."""
        path = self._folder / PLAN_FILE
        if not self._folder.is_dir():
            runs = sorted(p.parent.name for p in self._folder.parent.glob(f"*/{PLAN_FILE}"))
            there = f"; there are: {', '.join(runs)}" if runs else ""
            raise WatchError(f"there is no run '{self._folder}'{there}.")
        if not path.exists():
            raise WatchError(
                f"'{self._folder}' has no {PLAN_FILE}: nothing is measured in it, or its first job "
                "has not begun."
            )
        try:
            plan = RunPlan.from_plain(read_json(path))
            return plan, path.stat().st_mtime
        except (DamagedFileError, OSError, AttributeError, LookupError, TypeError, ValueError):
            raise WatchError(
                f"'{path}' is not a plan that this version of gpushmoo can read; start the run "
                "again."
            ) from None

    def state(self, now: float | None = None) -> RunState:
        """Return the run at this moment; raise WatchError if it is gone.

        `now` is in seconds of the system's clock.
        """
        plan, started = self._plan()
        now = time.time() if now is None else now
        state = RunState(self._folder.name, now - started)
        works = list[npt.NDArray[np.float64]]()
        begun_at = list[float]()
        for name, dtype, sweep in _planned_sweeps(plan):
            space = sweep.job.space
            axes = (a for a, spec in space.axes.items() if most_values(spec, TYPICAL) > 1)
            here = SweepState(name, dtype, tuple(axes))
            state.sweeps.append(here)
            works.append(np.zeros((2, 3)))
            for file, repeat in sweep.shards():
                path = self._folder / "cells" / name / dtype / file
                state.shards[1] += 1
                finished = self._finished(path)
                live = read_live(live_path(self._folder, path))
                begun_at += [] if live is None else [live.begun_at]
                job = plan.job(path)
                if finished is not None and job is not None and finished.params == job.plain:
                    state.shards[0] += 1
                    heard = finished.written_at
                    planned = len(finished.cells)
                    ended = finished.cells
                    measured = [at for at in finished.measured_at if at >= started]
                    begun_at += measured
                    taken = 0
                    done = float(planned)
                    work = (1.0, finished.seconds, 0.0) if measured else (0.0, 0.0, 0.0)
                elif live is not None and now - live.told_at < QUIET_S:
                    state.labels.append(live.label)
                    heard = live.told_at
                    planned = live.cells + live.taken
                    ended = [cell for cell in live.known if cell.status is not None]
                    taken = live.taken
                    done = live.taken + live.share * live.cells
                    work = (live.share, live.told_at - live.begun_at, 1.0 - live.share)
                    here.latest = live.known[-1] if live.known else here.latest
                    here.begun += [cell for cell in live.known if cell.status is None]
                else:
                    here.planned += sweep.planned_cells
                    works[-1][min(repeat, 2) - 1] += (0.0, 0.0, 1.0)
                    continue
                works[-1][min(repeat, 2) - 1] += work
                here.planned += planned
                here.ended += taken + len(ended)
                here.done += done
                here.cells += ended if repeat == 1 else []
                state.quiet_s = min(state.quiet_s, now - heard)
            state.statuses.update(str(cell.status) for cell in here.cells)
        state.begun_at = min(begun_at, default=None)
        state.left_s = _left_s(state, np.array(works), now)
        return state

    def _finished(self, path: Path) -> _Finished | None:
        """Return the contents of a finished shard; None if it is missing or not readable."""
        try:
            stat = path.stat()
            known = self._read.get(path)
            if known is None or known[0] != (stat.st_mtime_ns, stat.st_size):
                known = (stat.st_mtime_ns, stat.st_size), _read_shard(path, stat.st_mtime)
                self._read[path] = known
            return known[1]
        except (OSError, pa.ArrowException, LookupError, ValueError):
            return None


def _read_shard(path: Path, written_at: float) -> _Finished:
    """Read a shard's file; raise OSError, ArrowException, LookupError or ValueError."""
    schema = pq.read_schema(path)
    axes = [name for name in schema.names if is_axis(name)]
    metadata = json.loads((schema.metadata or {})[METADATA_KEY])
    names = [*_COLUMNS, "cell_key", "bandwidth_gbs", "median_s", "measured_at", *axes]
    table = with_present_names(pq.read_table(path, columns=names, partitioning=None))
    moments = pc.cast(table.column("measured_at"), pa.int64()).to_pylist()
    cells = [
        LiveCell(
            key=row["cell_key"],
            params={axis: row[axis] for axis in axes},
            seconds=row["median_s"],
            gbs=row["bandwidth_gbs"],
            **{name: row[name] for name in _COLUMNS},
        )
        for row in table.drop_columns(["measured_at"]).to_pylist()
    ]
    measured_at = [ms / 1e3 for ms in moments]
    seconds = metadata["measuring"]["seconds"]
    return _Finished(metadata["params"], seconds, cells, measured_at, written_at)


def _planned_sweeps(plan: RunPlan) -> Iterator[tuple[str, str, SweepPlan]]:
    for name, dtypes in plan.sweeps.items():
        for dtype, sweep in dtypes.items():
            yield name, dtype, sweep


def _left_s(state: RunState, works: npt.NDArray[np.float64], now: float) -> float | None:
    """Return the seconds for the rest, from the durations of each sweep's shards, or None.

    `works` (sweeps, 2, 3) has for the first and for later repeats the number of shards that this
    start has finished, their seconds, and the number of remaining shards. The speed of a sweep with
    few finished shards is shrunk towards the mean of all. Seconds of shards are scaled to those of
    the run by the ratio so far.
    """
    done, spent, left = np.moveaxis(works, 2, 0)
    telling = done.sum() > _TELLING * (done + left).sum() and state.quiet_s < QUIET_S
    if telling and spent.sum() > 0 and state.begun_at is not None:
        known = slice(0, 1 if done[:, 0].sum() > 0 else 2)
        usual = spent[:, known].sum() / done[:, known].sum()
        few = _FEW * (done + left).sum()
        first = (spent[:, 0] + few * usual) / (done[:, 0] + few)
        shown = _LATER_SHOWN * usual
        share = (spent[:, 1].sum() + _LATER * shown) / (first @ done[:, 1] + shown)
        later = (spent[:, 1] + share * first) / (done[:, 1] + 1)
        left_s = first @ left[:, 0] + later @ left[:, 1]
        return float(left_s * (now - state.begun_at) / spent.sum())
    return None


_EVERY_S = 2.0
# The view may run on the CPU that is measured: it takes only idle time.
_NICEST = 19

# From slow to fast, readable without distinguishing red and green: viridis.
_COLOURS = (
    "#440154",
    "#482878",
    "#3e4a89",
    "#31688e",
    "#26828e",
    "#1f9e89",
    "#35b779",
    "#6ece58",
    "#b5de2b",
    "#fde725",
)
# If an axis has more values, neighbors share a square, which shows the fastest.
_MAX_ROWS = 24
_LABEL, _SQUARE, _GAP = 8, 2, 2
# Lines besides the map and those of sweeps.
_OTHER_LINES = 16
_OPEN, _NOT_OK = "·", "×"


def watched(run: str | Path | None = None) -> Watched:
    """Return the run in the folder `run`, or the one that was started last.

    Raises WatchError if it does not exist yet.
    """
    folder = Path(run or ".")
    if run is None:
        plans = sorted(RESULTS.glob(f"*/{PLAN_FILE}"), key=lambda path: path.stat().st_mtime)
        if not plans:
            raise WatchError(f"there is no run in '{RESULTS}'; start one, or name its folder.")
        folder = plans[-1].parent
    return Watched(folder)


def watch(run: str | Path | None = None, once: bool = False) -> None:
    """Show the run until it is finished; print one frame with `once`, or without a terminal."""
    shown = watched(run)
    console = Console(file=sys.stdout, highlight=False)
    coloured = console.is_terminal and console.color_system is not None and not console.no_color

    def frame_of(state: RunState) -> RenderableType:
        height = console.height if console.is_terminal else None
        return frame(state, console.width, coloured, height)

    state = shown.state()
    if once or not console.is_terminal or state.finished:
        console.print(frame_of(state))
        return
    os.nice(_NICEST)
    with (
        suppress(KeyboardInterrupt),
        Live(frame_of(state), console=console, auto_refresh=False, transient=False) as live,
    ):
        while not state.finished:
            time.sleep(_EVERY_S)
            state = shown.state()
            live.update(frame_of(state), refresh=True)


def frame(state: RunState, width: int, coloured: bool, height: int | None = None) -> RenderableType:
    """Return the run at one moment for `width` columns; without colors, squares are digits."""
    shown = _shown(state)
    most_rows = _MAX_ROWS if height is None else max(6, min(_MAX_ROWS, height - _OTHER_LINES))
    room = len(state.sweeps) if height is None else max(3, height - _OTHER_LINES - most_rows)
    parts: list[RenderableType] = [_headline(state)]
    parts += [ProgressBar(max(1.0, state.planned), state.done, width=width)]
    parts += [Text(), *_sweeps(state, shown, room, width)]
    if shown is not None and shown.axes:
        parts += [Text(), *_map(shown, width, coloured, most_rows)]
    ended = ", ".join(f"{n:,} {status}" for status, n in sorted(state.statuses.items()))
    parts += [Text(), Text(f"Cells that have ended: {ended or 'none yet'}.")]
    parts += [Text(f"Being measured: {label}.") for label in state.labels]
    return Group(*parts)


def _headline(state: RunState) -> Text:
    text = f"{state.name}: {100 * state.done / max(1.0, state.planned):.0f} % of the work, "
    text += f"{state.ended:,} of {round(state.planned):,} cells have ended, "
    text += f"{state.shards[0]} of {state.shards[1]} shards"
    if state.finished:
        return Text(f"{text}, all measured", style="bold")
    if state.left_s is not None:
        text += f", about {duration(state.left_s)} left"
    elif state.begun_at is None and not state.ended:
        text += ", no cell has begun yet"
    elif state.quiet_s > QUIET_S:
        text += f", nothing heard for {duration(state.quiet_s)}"
    return Text(text, style="bold")


def _sweeps(state: RunState, shown: SweepState | None, room: int, width: int) -> list[Text]:
    """Return a line for each sweep and type; if more than `room`, those around the `shown`."""
    begin = 0 if shown is None else state.sweeps.index(shown) - room // 2
    begin = max(0, min(begin, len(state.sweeps) - room))
    rows = [("kernel", "type", "cells", "best", "with")]
    for sweep in state.sweeps[begin : begin + room]:
        cells = f"{sweep.ended:,} of {round(sweep.planned):,}"
        best = sweep.best
        rate = _speed(best) if best else ""
        launch = f"{_launch(best)} ({_group_words(best)})" if best else ""
        rows.append((sweep.sweep, sweep.dtype, cells, rate, launch))
    *widths, _ = (max(map(len, column)) + _GAP for column in zip(*rows, strict=True))
    lines: list[Text] = []
    for kernel, dtype, cells, rate, launch in rows:
        line = f"{kernel:<{widths[0]}}{dtype:<{widths[1]}}{cells:>{widths[2] - _GAP}}"
        line += f"{rate:>{widths[3]}}{'':{_GAP}}{launch}"
        lines.append(Text(line, style="" if lines else "dim"))
        lines[-1].truncate(width, overflow="ellipsis")
    left_out = len(state.sweeps) - room
    return [*lines, *([Text(f"… and {left_out} more", style="dim")] if left_out > 0 else [])]


def _speed(cell: LiveCell) -> str:
    return gbs(cell.gbs) if cell.gbs else seconds(cell.seconds or 0.0)


def _launch(cell: LiveCell) -> str:
    named = (f"{axis}={cell.params[axis]}" for axis in in_order(cell.params))
    return ", ".join(named) or "no parameter"


def _group_words(cell: LiveCell) -> str:
    kind = "" if cell.timing_mode == TIMING_MODES[0] else f", {mode_words(cell.timing_mode)}"
    return f"{cell.variant}, {cell.height} x {cell.width}, {cell.cache_state}{kind}"


def _shown(state: RunState) -> SweepState | None:
    """Return the sweep whose map is shown: one that is being measured, or the last with cells."""
    running = [sweep for sweep in state.sweeps if sweep.latest is not None]
    begun = [sweep for sweep in state.sweeps if sweep.cells and sweep.axes]
    return next(reversed(running or begun), None)


def _squares(name: str, cells: Sequence[LiveCell], most: int) -> list[list[int]]:
    """Return the values of an axis that share a square, for each square."""
    values = sorted({cell.params[name] for cell in cells if name in cell.params})
    each = max(1, -(-len(values) // most))
    return [values[i : i + each] for i in range(0, len(values), each)]


def _map(sweep: SweepState, width: int, coloured: bool, most_rows: int) -> list[Text]:
    """Draw the speed over the first two axes, in the group of the last cell or of the best."""
    at = sweep.latest or sweep.best or sweep.cells[-1]
    known = [*sweep.cells, *sweep.begun]
    group = [cell for cell in known if _group_words(cell) == _group_words(at)]
    x, *others = sweep.axes
    y = others[0] if others else None
    # All sizes and variants have the same values. The group may have few of them as yet.
    columns = _squares(x, known, max(1, (width - _LABEL) // _SQUARE))
    rows: list[list[int]] = _squares(y, known, most_rows) if y else [[]]
    timed = [cell for cell in group if cell.seconds is not None]
    top = min(timed, key=lambda cell: cell.seconds or 0.0, default=None)
    lines = [Text(f"{sweep.sweep}, {sweep.dtype}, {_group_words(at)}", style="bold")]
    placed: dict[tuple[int | None, int], list[LiveCell]] = {}
    for cell in group:
        placed.setdefault((cell.params[y] if y else None, cell.params[x]), []).append(cell)
    for row in rows:
        line = Text(f"{row[0] if row else '':>{_LABEL - 1}} ")
        for column in columns:
            points = product(row or (None,), column)
            here = [cell for point in points for cell in placed.get(point, ())]
            line.append_text(_square(here, top, coloured))
        lines.append(line)
    ticks = ""
    for place, values in enumerate(columns):
        if place * _SQUARE >= len(ticks) + bool(ticks):
            ticks = ticks.ljust(place * _SQUARE) + str(values[0])
    lines.append(Text(" " * _LABEL + ticks))
    over = f"{x} to the right" + (f", {y} down" if y else "")
    scale = "bright" if coloured else "9"
    fastest = ", the fastest of all other parameters" if len(sweep.axes) > 2 else ""
    what = _speed(top) if top else "the fastest"
    text = f"{over}; {scale} is {what}{fastest}; {_NOT_OK} is not ok, "
    text += f"{_OPEN} not there yet; until a cell has ended, its first launch counts"
    return [*lines, Text(text, style="dim")]


def _square(cells: Sequence[LiveCell], top: LiveCell | None, coloured: bool) -> Text:
    if not cells:
        return Text(_OPEN.ljust(_SQUARE), style="dim")
    times = [cell.seconds for cell in cells if cell.seconds is not None]
    if not times or top is None:
        return Text(_NOT_OK.ljust(_SQUARE), style="dim")
    tenth = min(9, int(10 * (top.seconds or 0.0) / min(times)))
    if not coloured:
        return Text(str(tenth).ljust(_SQUARE))
    return Text("█" * _SQUARE, style=_COLOURS[tenth])
