"""Has two versions measured alternately by a process that is replaced when a cell takes it down."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from ..core.errors import DeviceError
from ..core.schema import Status
from ..core.space import Cell
from . import pair_worker
from .events import Finished, Lost, MeasurePairs, PairBegan, PairEnded, PairJob, PairsOpened, Worked
from .locks import DeviceLock, lock_one
from .process import (
    IDLE_LIMIT_S,
    WorkerCrashedError,
    WorkerGoneError,
    WorkerKilledError,
    WorkerProcess,
    WorkerSilentError,
    opened_by,
)
from .progress import Progress
from .settings import TOGETHER
from .supervise import (
    FAULTS_OF_NOBODY,
    FAULTS_PER_VARIANT,
    LAUNCH_GRACE_S,
    STRIKES_ALONE,
    Worker,
)

log = logging.getLogger(__name__)

Start = Callable[[MeasurePairs], Worker]


@dataclass(frozen=True)
class MeasuredPairs:
    """What was opened, and how each of its pairs ended, in their order."""

    opened: PairsOpened
    ended: Sequence[PairEnded]


def measure_pairs(
    job: PairJob, label: str, terminal: TextIO, worker_log: Path | None = None
) -> MeasuredPairs:
    """Measure all cells that two versions of one element type have in common.

    `label` stands before what is said on `terminal`; processes print into `worker_log`. Raises
    DeviceError when there is no device, or a problem does not fit it.
    """
    held: list[tuple[int, DeviceLock]] = []

    def lock(devices: Sequence[tuple[int, str]]) -> tuple[int, DeviceLock]:
        held.extend([] if held else [lock_one(devices, say_waiting)])
        return held[0]

    def say_waiting() -> None:
        terminal.write(f"{label}: ready, waiting until a device is free\n")
        terminal.flush()

    def started() -> tuple[WorkerProcess, PairsOpened]:
        worker = WorkerProcess(job, worker_log, pair_worker)
        try:
            opened = opened_by(worker, lock)
            assert isinstance(opened, PairsOpened)
        except (WorkerGoneError, WorkerSilentError) as err:
            worker.stop()
            raise DeviceError(f"The device was not opened: {err}.") from err
        except BaseException:
            worker.stop()
            raise
        return worker, opened

    def start(do: MeasurePairs) -> WorkerProcess:
        worker, _ = started()
        worker.say(do)
        return worker

    try:
        first, opened = started()
        places = frozenset(range(len(opened.pairs)))
        first.say(MeasurePairs(places, TOGETHER))
        progress = Progress(label, len(places), terminal)
        progress.announce()
        timeout_s = job.params["measure"]["timeout_s"]
        pairs = PairSupervisor(opened.pairs, start, timeout_s, progress.update).measure(first)
        progress.finish(f"{sum(p.status is Status.OK for p in pairs)} pairs measured")
        return MeasuredPairs(opened, pairs)
    finally:
        for _, taken in held:
            taken.release()


@dataclass(frozen=True)
class PairFall:
    """How a process ended before its work, and the keys of the cells that ran."""

    keys: tuple[str, ...]
    status: Status
    text: str
    from_outside: bool = False


class PairSupervisor:
    """Collects what processes tell until every pair has its status.

    When one falls, the pairs that ran are suspects: the others are measured first, by a fresh
    process, then the suspects one after the other. Who ran alone in a fall is accused, and measured
    last, in a process of its own. What falls there is to blame.
    """

    def __init__(
        self,
        pairs: Sequence[tuple[Cell, Cell]],
        start: Start,
        cell_timeout_s: float,
        on_progress: Callable[[int, float], None],
    ) -> None:
        # A pair's cells have a key in common where the versions differ in what no key tells.
        self._places = {cell.key: i for i, pair in enumerate(pairs) for cell in pair}
        self._left = set(range(len(pairs)))
        self._start, self._on_progress = start, on_progress
        self._timeout_s = cell_timeout_s
        self._ended: dict[int, PairEnded] = {}
        self._suspects: set[int] = set()
        self._accused: set[int] = set()
        self._strikes: Counter[int] = Counter()
        self._faults = self._of_nobody = 0

    def measure(self, first: Worker) -> list[PairEnded]:
        """By `first`, which is at work on all pairs, and its successors; in the pairs' order."""
        worker, asked = first, frozenset(self._left)
        while True:
            try:
                fall = self._follow(worker)
            except WorkerCrashedError as err:
                worker.stop()
                self._give_up(Status.LAUNCH_FAILED, f"a program failed: {err}")
                break
            except BaseException:
                worker.stop()
                raise
            if fall is None:
                worker.done()
                self._end(asked & self._left, Status.LOST_DEVICE, "the process left it out")
            else:
                worker.stop()
                self._judge(asked, fall)
            if not self._left:
                break
            trusted = self._left - self._suspects
            asked = frozenset(trusted or self._left - self._accused or {min(self._left)})
            try:
                worker = self._start(MeasurePairs(asked, TOGETHER if trusted else 1))
            except DeviceError as err:
                self._give_up(Status.LOST_DEVICE, f"the device did not come back: {err}")
                break
        return [self._ended[place] for place in sorted(self._ended)]

    def _follow(self, worker: Worker) -> PairFall | None:
        """Collect until the end. How the process fell; None when it has done its work."""
        running: PairBegan | None = None
        while True:
            try:
                message = worker.hear(self._timeout_s + LAUNCH_GRACE_S if running else IDLE_LIMIT_S)
            except WorkerSilentError:
                text = f"a launch did not end within {self._timeout_s:g} s; its process was ended"
                return _fall(running, Status.TIMEOUT, text)
            except WorkerGoneError as err:
                struck = isinstance(err, WorkerKilledError)
                return _fall(running, Status.LAUNCH_FAILED, str(err), struck)
            if isinstance(message, Lost):
                return _fall(running, Status.LAUNCH_FAILED, message.message)
            if isinstance(message, Finished):
                return None
            if isinstance(message, Worked):
                self._on_progress(len(self._ended), message.fraction)
                continue
            running = message if isinstance(message, PairBegan) else None
            if isinstance(message, PairEnded):
                self._ended[message.place] = message
                self._left.discard(message.place)

    def _judge(self, asked: frozenset[int], fall: PairFall) -> None:
        """Give the pair that is to blame its status; what only may be comes alone, and last."""
        log.error("%s", fall.text)
        ran = {self._places[key] for key in fall.keys} & self._left
        if not ran:
            self._of_nobody += 1
            if self._of_nobody == FAULTS_OF_NOBODY:
                self._give_up(Status.LOST_DEVICE, fall.text)
        elif len(asked) > 1:
            self._suspects |= ran
            self._accused |= ran if len(ran) == 1 else set()
        elif fall.from_outside and self._strikes[min(ran)] < STRIKES_ALONE - 1:
            self._strikes[min(ran)] += 1
        else:
            self._end(ran, fall.status, fall.text)
            self._faults += 1
            if self._faults == FAULTS_PER_VARIANT:
                self._give_up(fall.status, f"not tried, {self._faults} before it fell: {fall.text}")

    def _give_up(self, status: Status, message: str) -> None:
        self._end(frozenset(self._left), status, message)

    def _end(self, places: Set[int], status: Status, message: str) -> None:
        for place in places:
            self._ended[place] = PairEnded(place, status, message)
        self._left -= places


def _fall(
    running: PairBegan | None, status: Status, text: str, from_outside: bool = False
) -> PairFall:
    if running is None:
        return PairFall((), status, f"{text}, while no cell ran", from_outside)
    return PairFall(running.keys, status, f"{running.who}: {text}", from_outside)
