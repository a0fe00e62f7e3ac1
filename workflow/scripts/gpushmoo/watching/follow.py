"""Shows a run in the terminal, again and again until it is finished."""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from pathlib import Path

from rich.console import Console, RenderableType
from rich.live import Live

from ..core.paths import RESULTS
from ..core.run_plan import PLAN_FILE
from .frame import frame
from .state import RunState, Watched, WatchError

_EVERY_S = 2.0
# A CPU that is measured is also what the view runs on: it takes what is left over.
_NICEST = 19


def latest_run() -> Path:
    """The folder of the run that was started last. Raises WatchError where there is none."""
    plans = sorted(RESULTS.glob(f"*/{PLAN_FILE}"), key=lambda path: path.stat().st_mtime)
    if not plans:
        raise WatchError(f"there is no run in '{RESULTS}'; start one, or name its folder.")
    return plans[-1].parent


def watch(folder: Path | None, once: bool) -> None:
    """Show the run in `folder`, or the one that was started last, until it is finished.

    An interrupt ends the view alone. With `once`, and where the output is no terminal, one frame is
    printed. Raises WatchError.
    """
    watched = Watched(folder or latest_run())
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
