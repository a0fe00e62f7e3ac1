"""The live view of a run: a frame in a terminal or as plain text, again and again."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.text import Text

from ..core.display import kind_words, significant
from ..core.paths import RESULTS
from ..core.run_plan import PLAN_FILE
from ..core.space import TIMING_MODES
from ..measuring.progress import LiveCell, duration
from .state import QUIET_S, RunState, SweepState, Watched, WatchError

_EVERY_S = 2.0
# The view may run on the CPU that is measured: it takes only idle time.
_NICEST = 19

# From slow to fast, readable by those who do not see red or green: viridis.
_COLOURS = (
    *("#440154", "#482878", "#3e4a89", "#31688e", "#26828e"),
    *("#1f9e89", "#35b779", "#6ece58", "#b5de2b", "#fde725"),
)
# Of a map with more values of an axis, neighbours share a square, which shows the fastest.
_MOST_ROWS = 24
_LABEL, _SQUARE, _GAP = 8, 2, 2
# Lines besides the map and those of sweeps.
_OTHER_LINES = 16
_OPEN, _NOT_OK = "·", "×"


def watch(run: str | Path | None = None, once: bool = False) -> None:
    """Show the run in the folder `run`, or the one that was started last, until it is finished.

    An interrupt ends the view alone. With `once`, and where the output is no terminal, one frame is
    printed. Raises WatchError.
    """
    folder = Path(run or ".")
    if run is None:
        plans = sorted(RESULTS.glob(f"*/{PLAN_FILE}"), key=lambda path: path.stat().st_mtime)
        if not plans:
            raise WatchError(f"there is no run in '{RESULTS}'; start one, or name its folder.")
        folder = plans[-1].parent
    watched = Watched(folder)
    console = Console(file=sys.stdout, highlight=False)
    coloured = console.is_terminal and console.color_system is not None and not console.no_color

    def frame_of(state: RunState) -> RenderableType:
        height = console.height if console.is_terminal else None
        return frame(state, console.width, coloured, height)

    state = watched.state()
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
            state = watched.state()
            live.update(frame_of(state), refresh=True)


def frame(state: RunState, width: int, coloured: bool, height: int | None = None) -> RenderableType:
    """The run at one moment in so many columns and lines; without colours squares are digits."""
    shown = _shown(state)
    most_rows = _MOST_ROWS if height is None else max(6, min(_MOST_ROWS, height - _OTHER_LINES))
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
    text = f"{state.name}: {state.ended:,} of {round(state.planned):,} cells, "
    text += f"{state.shards[0]} of {state.shards[1]} shards, "
    text += f"{100 * state.done / max(1.0, state.planned):.0f} % of the work"
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
    """A line for each sweep and type; if there are more than `room`, those around the `shown`."""
    begin = 0 if shown is None else state.sweeps.index(shown) - room // 2
    begin = max(0, min(begin, len(state.sweeps) - room))
    rows = [("kernel", "type", "cells", "best", "with")]
    for sweep in state.sweeps[begin : begin + room]:
        cells, best = f"{sweep.ended:,} of {round(sweep.planned):,}", sweep.best
        rate = f"{significant(best.gbs or 0.0)} GB/s" if best else ""
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


def _launch(cell: LiveCell) -> str:
    return ", ".join(f"{axis}={value}" for axis, value in cell.params.items()) or "no parameter"


def _group_words(cell: LiveCell) -> str:
    kind = "" if cell.timing_mode == TIMING_MODES[0] else f", {kind_words(cell.timing_mode)}"
    return f"{cell.variant}, {cell.height} x {cell.width}, {cell.cache_state}{kind}"


def _shown(state: RunState) -> SweepState | None:
    """The sweep whose map is shown: one that is being measured, else the last with cells."""
    running = [sweep for sweep in state.sweeps if sweep.latest is not None]
    begun = [sweep for sweep in state.sweeps if sweep.cells and sweep.axes]
    return next(reversed(running or begun), None)


def _squares(name: str, cells: Sequence[LiveCell], most: int) -> list[list[int]]:
    """The values of an axis that share a square, for each square."""
    values = sorted({cell.params[name] for cell in cells if name in cell.params})
    each = max(1, -(-len(values) // most))
    return [values[i : i + each] for i in range(0, len(values), each)]


def _map(sweep: SweepState, width: int, coloured: bool, most_rows: int) -> list[Text]:
    """Bandwidth over the first two axes, in the group of the last cell or of the best."""
    at = sweep.latest or sweep.best or sweep.cells[-1]
    known = [*sweep.cells, *sweep.begun]
    group = [cell for cell in known if _group_words(cell) == _group_words(at)]
    x, *others = sweep.axes
    y = others[0] if others else None
    # All sizes and variants have the same values, of which the group may have few as yet.
    columns = _squares(x, known, max(1, (width - _LABEL) // _SQUARE))
    rows: list[list[int]] = _squares(y, known, most_rows) if y else [[]]
    top = max((cell.gbs or 0.0 for cell in group), default=0.0)
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
    text = f"{over}; {scale} is {significant(top)} GB/s{fastest}; {_NOT_OK} is not ok, "
    text += f"{_OPEN} not there yet; until a cell has ended, its first launch counts"
    return [*lines, Text(text, style="dim")]


def _square(cells: Sequence[LiveCell], top: float, coloured: bool) -> Text:
    if not cells:
        return Text(_OPEN.ljust(_SQUARE), style="dim")
    rates = [cell.gbs for cell in cells if cell.gbs is not None]
    if not rates:
        return Text(_NOT_OK.ljust(_SQUARE), style="dim")
    tenth = min(9, int(10 * max(rates) / top)) if top else 0
    if not coloured:
        return Text(str(tenth).ljust(_SQUARE))
    return Text("█" * _SQUARE, style=_COLOURS[tenth])
