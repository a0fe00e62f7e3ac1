"""Show the progress of a shard: lines on the terminal, and a file for other programs.

The job writes both. It removes the file when the shard is finished.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from ..core.errors import WorkloadError
from ..core.median import median_interval
from ..core.news import News
from ..core.schema import Status
from ..core.space import TIMING_MODES
from ..workloads.contract import Workload
from .events import CellRun

# In the run's folder, a file for each shard that is being measured.
FOLDER = "live"


# From this share of the work on, and after these seconds, its speed predicts the rest.
_TELLING, _TELLING_S = 0.1, 2.0


@dataclass
class Progress:
    """Shows lines like ``shard 2/7 …: 28 % of 142 cells, about 31 s left``.

    Attributes
    ----------
    label
        Beginning of each line.
    cells
        Number of cells to measure.
    stream
        The terminal.
    in_place
        Whether lines replace each other, because only this program writes to the terminal.
    brief
        Whether no line stays on the terminal unless the shard takes long.
    clock
        Returns the time in seconds.
    """

    label: str
    cells: int
    stream: TextIO
    in_place: bool = False
    brief: bool = False
    clock: Callable[[], float] = time.monotonic
    _began_s: float = field(init=False)
    # Moments, and the share of the work that was done.
    _seen: list[tuple[float, float]] = field(init=False)
    _news: News = field(init=False)

    def __post_init__(self) -> None:
        self._began_s = self.clock()
        self._seen = [(self._began_s, 0.0)]
        self._news = News(self.stream, self.in_place, self.clock)

    def announce(self) -> None:
        """Write the first line, unless lines replace each other."""
        if not (self._news.in_place or self.brief):
            self._news.write(f"{self.label}: {self.cells} cells to measure")

    def update(self, fraction: float) -> None:
        """Show the finished share of all work, a number from 0 to 1."""
        now = self.clock()
        self._seen.append((now, fraction))
        left_s = self._left_s(now, fraction)
        left = "" if left_s is None else f", about {duration(left_s)} left"
        self._news.show(f"{self.label}: {100 * fraction:.0f} % of {self.cells} cells{left}")

    def _left_s(self, now: float, fraction: float) -> float | None:
        """Estimate the seconds for the rest from the second half of the finished work.

        The first part of the work is verification, which takes longer than samples.
        """
        if not _TELLING <= fraction < 1.0 or now - self._began_s < _TELLING_S:
            return None
        half_s, half = next(at for at in reversed(self._seen) if at[1] <= fraction / 2.0)
        return (now - half_s) * (1.0 - fraction) / (fraction - half)

    def note(self, sentence: str) -> None:
        """Print a line about the cells that stays on the terminal."""
        self._news.write(f"{self.label}: {sentence}")

    def finish(self, summary: str) -> None:
        """Write the summary and how long the shard took. If `brief`, only if that was long."""
        self.close()
        line = f"{self.label}: {summary} in {duration(self.clock() - self._began_s)}"
        if not self.brief:
            self._news.write(line)
        elif not self._news.in_place:
            self._news.show(line)

    def close(self) -> None:
        """Remove the line of progress from the terminal."""
        self._news.clear()


def duration(seconds: float) -> str:
    """Return a time as ``45 s``, ``3 min 5 s`` or ``2 h 4 min``."""
    total = max(0, round(seconds))
    if total < 60:
        return f"{total} s"
    if total < 3600:
        return f"{total // 60} min {total % 60} s"
    return f"{total // 3600} h {total % 3600 // 60} min"


@dataclass(frozen=True)
class LiveCell:
    """A cell in the file of the progress, which was launched or has ended.

    Attributes
    ----------
    key, variant, height, width, cache_state, params, timing_mode
        Identity of the cell. `params` are the values of axes.
    status
        Status, or None if the cell has not ended.
    seconds
        Time of a launch: of the first one until the cell ends, then the median if the cell is ok.
    gbs
        Bandwidth of such a launch in GB/s, or None if the workload declares no bytes.
    """

    key: str
    variant: str
    height: int
    width: int
    cache_state: str
    params: dict[str, int]
    status: str | None
    seconds: float | None
    gbs: float | None
    timing_mode: str = TIMING_MODES[0]


@dataclass(frozen=True)
class LiveShard:
    """A shard that is being measured, as read from the file of its progress.

    Attributes
    ----------
    label
        Name of the shard on the terminal.
    cells, taken
        Number of cells to measure, and number of reused cells.
    share
        Finished share of the work, from 0 to 1.
    known
        Launched and ended cells, the latest last.
    told_at, begun_at
        Times of the last and the first writing, in seconds of the system's clock.
    """

    label: str
    cells: int
    taken: int
    share: float
    known: tuple[LiveCell, ...]
    told_at: float
    begun_at: float


def live_path(run: Path, out: Path) -> Path:
    """Return the path of the file in which the job writes the progress of a shard.

    Parameters
    ----------
    run
        The folder of the run.
    out
        The shard's result file, ``…/<sweep>/<dtype>/<shard>.parquet``. Its progress is in
        ``<run>/live/<sweep>@<dtype>@<shard>.jsonl``.
    """
    name = "@".join((*out.parts[-3:-1], out.stem))
    return run / FOLDER / f"{name}.jsonl"


class LiveFile:
    """Writes the file of a shard's progress. Errors of the disk are ignored.

    Parameters
    ----------
    path
        The file, or None for no file.
    workload
        The kernel, for the bytes of a cell.
    label
        Name of the shard on the terminal.
    cells, taken
        Number of cells to measure, and number of reused cells.
    """

    def __init__(
        self, path: Path | None, workload: Workload, label: str, cells: int, taken: int
    ) -> None:
        self._path, self._workload = path, workload
        # The written status of a cell, None of one that had not ended.
        self._written: dict[str, str | None] = {}
        self._add(label=label, cells=cells, taken=taken, begun_at=time.time())

    def _add(self, **values: Any) -> None:
        if self._path is not None:
            with suppress(OSError):
                self._path.parent.mkdir(parents=True, exist_ok=True)
                with self._path.open("a" if "share" in values else "w", encoding="utf-8") as file:
                    file.write(json.dumps(values) + "\n")

    def tell(self, runs: Mapping[str, CellRun], timed_s: Mapping[str, float], share: float) -> None:
        """Append cells that are new or have ended, and the finished share of the work.

        Each cell is written at most twice.

        Parameters
        ----------
        runs
            Cells by key.
        timed_s
            Time of the first launch by key, in seconds.
        share
            Finished share of the work, from 0 to 1.
        """
        if self._path is None:
            return
        new = []
        for key, run in runs.items():
            if run.status is None and key in timed_s and key not in self._written:
                new.append(self._cell(key, run, timed_s[key]))
            elif run.status is not None and self._written.get(key) is None:
                ok = run.status is Status.OK and run.samples_s
                seconds = median_interval(run.samples_s).median if ok else None
                new.append(self._cell(key, run, seconds))
        self._written.update((cell.key, cell.status) for cell in new)
        self._add(share=share, cells=[vars(cell) for cell in new])

    def _cell(self, key: str, run: CellRun, seconds: float | None) -> LiveCell:
        cell = run.cell
        gbs = None
        if seconds is not None:
            with suppress(WorkloadError):
                gbs = sum(self._workload.bytes_moved(cell)) * 1e-9 / seconds or None
        return LiveCell(
            key,
            cell.variant,
            int(cell.problem.height),
            int(cell.problem.width),
            cell.cache_state,
            {axis: int(value) for axis, value in cell.params},
            None if run.status is None else str(run.status),
            seconds,
            gbs,
            cell.timing_mode,
        )

    def close(self) -> None:
        """Remove the file if it exists."""
        if self._path is not None:
            with suppress(OSError):
                self._path.unlink(missing_ok=True)


def read_live(path: Path) -> LiveShard | None:
    """Return the content of a file of progress, or None if it is gone or still empty."""
    lines = []
    try:
        told_at = path.stat().st_mtime
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            with suppress(ValueError):  # the last one while it is being written
                lines.append(json.loads(line))
        head, *rest = lines
        known: dict[str, LiveCell] = {}
        for cell in (LiveCell(**told) for line in rest for told in line["cells"]):
            known.pop(cell.key, None)
            known[cell.key] = cell
        share = float(rest[-1]["share"]) if rest else 0.0
        return LiveShard(
            label=head["label"],
            cells=int(head["cells"]),
            taken=int(head["taken"]),
            share=share,
            known=tuple(known.values()),
            told_at=told_at,
            begun_at=float(head["begun_at"]),
        )
    except (OSError, LookupError, TypeError, ValueError):
        return None
