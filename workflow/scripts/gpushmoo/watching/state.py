"""The progress of a run, read from its folder: the plan, finished shards, those on their way."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..core.backends import BACKENDS
from ..core.errors import UserError
from ..core.run_plan import PLAN_FILE, RunPlan, SweepPlan
from ..core.schema import METADATA_KEY, is_axis
from ..core.space import TYPICAL, most_values, space_of
from ..measuring.progress import LiveCell, live_path, read_live
from ..storage.wholefile import DamagedFileError, read_json

# A shard whose file is older is not being measured: its job was killed, or the machine stands
# still. A job writes the file twice a second.
QUIET_S = 60.0
# The share of all cells from which on their speed says how long the others will take.
_TELLING = 0.02
_COLUMNS = ("variant", "height", "width", "cache_state", "timing_mode", "status")


class WatchError(UserError):
    """There is no run to watch; one sentence."""


@dataclass
class SweepState:
    """One sweep and element type: cells, counted once for each repeat.

    `ended` of `planned` have ended. `done` is the work that was done, in cells: those that end
    at once, over a limit of the device, count no more than the others. `axes` are those with more
    than one value. `cells` are those of the first repeat that have ended, `begun` others that were
    launched; `latest` is the newest cell of a shard on its way, None where none is.
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

    @property
    def best(self) -> LiveCell | None:
        """The fastest cell so far, of all variants and sizes."""
        ok = [cell for cell in self.cells if cell.gbs is not None]
        return max(ok, key=lambda cell: cell.gbs or 0.0, default=None)


@dataclass
class RunState:
    """A run at one moment.

    `labels` are the shards that are being measured, `shards` the numbers of finished and of all
    shards; nothing was heard of the run for `quiet_s`. Its first cell was begun at `begun_at`;
    while that is None, kernels are compiled. `left_s` is None as long as nothing shows its speed.
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
        """The work that was done, in cells of all repeats."""
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


@dataclass(frozen=True)
class _Finished:
    """The contents of a shard's file: the job's parameters, its cells, when each was measured."""

    params: Any
    cells: list[LiveCell]
    measured_at: list[float]
    written_at: float


class Watched:
    """A run's folder that is read again and again; finished shards once."""

    def __init__(self, folder: Path) -> None:
        """Raises WatchError where there is no run."""
        self._folder, self._read = folder, dict[Path, tuple[tuple[int, int], _Finished]]()
        self._plan()

    def _plan(self) -> tuple[RunPlan, float]:
        """The plan and when the run was started. Raises WatchError."""
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
            for _, _, sweep in _sweeps(plan):
                space_of(sweep.shard_params(0, 1))
            return plan, path.stat().st_mtime
        except (DamagedFileError, OSError, AttributeError, LookupError, TypeError, ValueError):
            raise WatchError(
                f"'{path}' is no plan that this version of gpushmoo reads; start the run again."
            ) from None

    def state(self, now: float | None = None) -> RunState:
        """The run at this moment, `now` in seconds of the system's clock. Raises WatchError."""
        plan, started = self._plan()
        now = time.time() if now is None else now
        state = RunState(self._folder.name, now - started)
        fresh, begun_at = 0.0, list[float]()
        for name, dtype, sweep in _sweeps(plan):
            space = space_of(sweep.shard_params(0, 1))
            axes = (a for a, spec in space.axes.items() if most_values(spec, TYPICAL) > 1)
            here = SweepState(name, dtype, tuple(axes))
            state.sweeps.append(here)
            for file, repeat in sweep.shards():
                path = self._folder / "cells" / name / dtype / file
                state.shards[1] += 1
                finished, live = self._finished(path), read_live(live_path(self._folder, path))
                begun_at += [] if live is None else [live.begun_at]
                if finished is not None and finished.params == plan.shard_params(path):
                    state.shards[0] += 1
                    heard, planned, ended = finished.written_at, len(finished.cells), finished.cells
                    measured = [at for at in finished.measured_at if at >= started]
                    begun_at += measured
                    taken, work, done = 0, float(len(measured)), float(planned)
                elif live is not None and now - live.told_at < QUIET_S:
                    state.labels.append(live.label)
                    heard, planned = live.told_at, live.cells + live.taken
                    ended = [cell for cell in live.known if cell.status is not None]
                    taken, work = live.taken, live.share * live.cells
                    done = taken + work
                    here.latest = live.known[-1] if live.known else here.latest
                    here.begun += [cell for cell in live.known if cell.status is None]
                else:
                    here.planned += space.planned_cells / sweep.parts
                    continue
                here.planned += planned
                here.ended += taken + len(ended)
                here.done += done
                here.cells += ended if repeat == 1 else []
                fresh += work
                state.quiet_s = min(state.quiet_s, now - heard)
            state.statuses.update(str(cell.status) for cell in here.cells)
        state.begun_at = min(begun_at, default=None)
        state.left_s = _left_s(state, plan, fresh, now)
        return state

    def _finished(self, path: Path) -> _Finished | None:
        """The contents of a finished shard; None where it is not there, or cannot be read."""
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
    """Read a shard's file. Raises OSError, ArrowException, LookupError, ValueError."""
    schema = pq.read_schema(path)
    axes = [name for name in schema.names if is_axis(name)]
    params = json.loads((schema.metadata or {})[METADATA_KEY])["params"]
    names = [*_COLUMNS, "cell_key", "bandwidth_gbs", "measured_at", *axes]
    table = pq.read_table(path, columns=names, partitioning=None)
    moments = pc.cast(table.column("measured_at"), pa.int64()).to_pylist()
    cells = [
        LiveCell(
            key=row["cell_key"],
            params={axis: row[axis] for axis in axes},
            gbs=row["bandwidth_gbs"],
            **{name: row[name] for name in _COLUMNS},
        )
        for row in table.drop_columns(["measured_at"]).to_pylist()
    ]
    return _Finished(params, cells, [ms / 1e3 for ms in moments], written_at)


def _sweeps(plan: RunPlan) -> Iterator[tuple[str, str, SweepPlan]]:
    for name, dtypes in plan.sweeps.items():
        for dtype, sweep in dtypes.items():
            yield name, dtype, sweep


def _left_s(state: RunState, plan: RunPlan, fresh: float, now: float) -> float | None:
    """Seconds for the rest, by the speed since the first cell, before by the backend's usual."""
    left = state.planned - state.done
    telling = fresh > _TELLING * state.planned and state.quiet_s < QUIET_S
    if telling and state.begun_at is not None:
        return left * (now - state.begun_at) / fresh
    backend = next((str(sweep.params["backend"]) for _, _, sweep in _sweeps(plan)), "")
    if not state.labels or backend not in BACKENDS:
        return None
    return left * BACKENDS[backend].cell_s
