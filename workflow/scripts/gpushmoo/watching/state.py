"""How far a run is, from the files in its folder: the plan, finished shards, those on their way."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod
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

# A shard of which nothing was heard for so long is not being measured; its job was killed, or the
# machine stands still. The watching process of a shard says something twice a second.
QUIET_S = 60.0
# The share of all cells from which on their speed says how long the others will take.
_TELLING = 0.02
_COLUMNS = ("variant", "height", "width", "cache_state", "launch_kind", "status")


class WatchError(UserError):
    """There is no run to watch; one sentence."""


@dataclass
class SweepState:
    """One sweep and element type: cells, counted once for each repeat.

    `ended` of `planned` have ended. `done` is the work that was done, in cells: those that end
    at once, over a limit of the device, count no more than the others.
    `axes` are those with more than one value. `cells` are those of the first repeat that have
    ended, `begun` others that were launched; `latest` is the last that a shard on its way has told
    of, None where none is.
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
    """A run at one moment. `left_s` is None as long as nothing tells how fast it goes.

    `labels` are shards that are being measured, `shards` how many are finished and how many there
    are to be; `quiet_s` is how long nothing was heard of it. Its first cell was begun at
    `begun_at`; while that is None, kernels are compiled.
    """

    name: str
    sweeps: list[SweepState]
    labels: list[str]
    statuses: Counter[str]
    shards: list[int]
    quiet_s: float
    left_s: float | None
    begun_at: float | None = None

    def note_begin(self, at: float | None) -> None:
        """A cell was begun at that moment, or none was."""
        if at is not None:
            self.begun_at = min(at, self.begun_at or at)

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
        """Cells that there will be: those of the plan, as far as shards do not tell them."""
        return sum(sweep.planned for sweep in self.sweeps)

    @property
    def finished(self) -> bool:
        """Whether every planned shard is there."""
        return self.shards[0] == self.shards[1]


@dataclass(frozen=True)
class _Finished:
    """A shard's file as it was read: its cells, when each was measured, what its job was told."""

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
            beside = self._folder.parent
            runs = sorted(p.parent.name for p in beside.glob(f"*/{PLAN_FILE}"))
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
                _most_cells(sweep)
            return plan, path.stat().st_mtime
        except (DamagedFileError, OSError, AttributeError, LookupError, TypeError, ValueError):
            raise WatchError(
                f"'{path}' is no plan that this version of gpushmoo reads; start the run again."
            ) from None

    def state(self, now: float | None = None) -> RunState:
        """The run at this moment, `now` in seconds of the system's clock. Raises WatchError."""
        plan, started = self._plan()
        now = time.time() if now is None else now
        state = RunState(self._folder.name, [], [], Counter(), [0, 0], now - started, None)
        fresh = 0.0
        for name, dtype, sweep in _sweeps(plan):
            here = SweepState(name, dtype, tuple(a for a, n in _lengths(sweep).items() if n > 1))
            guess = _most_cells(sweep) / sweep.parts
            for file, repeat in sweep.shards():
                path = self._folder / "cells" / name / dtype / file
                fresh += self._add(state, here, plan, path, repeat, guess, started, now)
            state.sweeps.append(here)
            state.statuses.update(str(cell.status) for cell in here.cells)
        state.left_s = _left_s(state, plan, fresh, now)
        return state

    def _add(
        self,
        state: RunState,
        sweep: SweepState,
        plan: RunPlan,
        path: Path,
        repeat: int,
        guess: float,
        started: float,
        now: float,
    ) -> float:
        """Add the shard of `path`; how many of its cells were measured since the run's start."""
        finished, live = self._finished(path), read_live(live_path(self._folder, path))
        state.shards[1] += 1
        if finished is not None and finished.params == plan.shard_params(path):
            state.shards[0] += 1
            heard, planned, ended = finished.written_at, len(finished.cells), finished.cells
            measured = [at for at in finished.measured_at if at >= started]
            fresh, begun = float(len(measured)), min(measured, default=None)
            done, taken = float(planned), 0
        elif live is not None and now - live.told_at < QUIET_S:
            state.labels.append(live.label)
            heard, planned = live.told_at, live.cells + live.taken
            ended = [cell for cell in live.known if cell.status is not None]
            fresh, begun = live.share * live.cells, live.begun_at
            done, taken = live.taken + fresh, live.taken
            sweep.latest = live.known[-1] if live.known else sweep.latest
            sweep.begun += [cell for cell in live.known if cell.status is None]
        else:
            sweep.planned += guess
            state.note_begin(None if live is None else live.begun_at)
            return 0.0
        sweep.planned += planned
        sweep.done += done
        sweep.ended += taken + len(ended)
        sweep.cells += ended if repeat == 1 else []
        state.quiet_s = min(state.quiet_s, now - heard)
        state.note_begin(begun)
        return fresh

    def _finished(self, path: Path) -> _Finished | None:
        """What a finished shard holds; None where it is not there, or cannot be read."""
        try:
            stat = path.stat()
            known = self._read.get(path)
            if known is None or known[0] != (stat.st_mtime_ns, stat.st_size):
                known = (stat.st_mtime_ns, stat.st_size), _cells_of(path, stat.st_mtime)
                self._read[path] = known
            return known[1]
        except (OSError, pa.ArrowException, LookupError, ValueError):
            return None


def _cells_of(path: Path, written_at: float) -> _Finished:
    """The cells of a shard's file. Raises OSError, ArrowException, LookupError, ValueError."""
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


def _lengths(sweep: SweepPlan) -> dict[str, int]:
    """How many values each axis has, about where the device decides."""
    return {axis: most_values(spec, TYPICAL) for axis, spec in sweep.params["axes"].items()}


def _most_cells(sweep: SweepPlan) -> int:
    space = space_of(sweep.shard_params(0, 1))
    others = (space.problems, space.variants, space.cache_states, space.launch_kinds)
    return prod(_lengths(sweep).values()) * prod(map(len, others))


def _left_s(state: RunState, plan: RunPlan, fresh: float, now: float) -> float | None:
    """Seconds for what is left, by what was measured since the first cell; before by a guess.

    None where nothing is being measured.
    """
    left = state.planned - state.done
    telling = fresh > _TELLING * state.planned and state.quiet_s < QUIET_S
    if telling and state.begun_at is not None:
        return left * (now - state.begun_at) / fresh
    backend = next((str(sweep.params["backend"]) for _, _, sweep in _sweeps(plan)), "")
    if not state.labels or backend not in BACKENDS:
        return None
    return left * BACKENDS[backend].cell_s
