"""Measure the shards of a call on all devices: each device has a thread and its own processes.

As in a run with ``device: all``, one device measures all cells of a shard, because these cells are
compared. Another device of the same name may measure another repeat of the shard.
"""

from __future__ import annotations

import io
import logging
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TextIO

import pyarrow.compute as pc

from ..core.backends import BACKENDS
from ..core.errors import ConfigError, DeviceError, HostError
from ..core.news import News
from ..core.run_plan import TELLING_REPEATS
from ..core.schema import Status
from ..devices.base import DeviceInfo, functions_of
from ..devices.select import DeviceChoice
from ..measuring.job import MeasuredShard
from ..measuring.process import Workers

log = logging.getLogger(__name__)

# The argument `device` for all of them.
ALL = "all"
# A device gets about this number of shards of a repeat, if there are as many groups. The last ones
# are small, so that devices end at about the same time.
_SHARDS_A_DEVICE = 8
# A shard is tried on two devices at most: it may be to blame for their failures.
_MAX_TRIES = 2


@dataclass(frozen=True)
class Lane:
    """An open device and its measuring processes."""

    choice: DeviceChoice
    info: DeviceInfo
    workers: Workers


@dataclass(frozen=True)
class Part:
    """A measuring job of a call.

    Attributes
    ----------
    dtype
        Name of the element type.
    index, count
        The job measures shard `index` (from 0) of `count` shards.
    repeat
        Number of the repeat, from 1.
    """

    dtype: str
    index: int
    count: int
    repeat: int


def indices_of(choice: DeviceChoice) -> list[int]:
    """Return the indices of the backend's devices that can measure at the same time, from 0."""
    backend = BACKENDS[choice.backend]
    return [*range(max(1, functions_of(backend).count_devices() if backend.claims_gpu else 1))]


def refuse_mixture(lanes: Sequence[Lane]) -> None:
    """Raise ConfigError if the names of the devices differ: they could not share one sweep."""
    named = {lane.info.name: lane.choice.index for lane in reversed(lanes)}
    if len(named) > 1:
        found = ", ".join(f"{index} is '{name}'" for name, index in reversed(named.items()))
        raise ConfigError(
            f"device: 'all' needs devices of one name, but device {found}; name one of them by its "
            f"index, such as device={lanes[0].choice.index}."
        )


def parts_of(dtypes: Sequence[str], groups: int, repeats: int, devices: int) -> list[Part]:
    """Return all measuring jobs of a call in the order in which they start.

    Parameters
    ----------
    dtypes
        Names of the element types.
    groups
        Number of sets of cells, for each element type, that are measured in the same rounds.
    repeats, devices
        Number of repeats, and number of devices.

    Returns
    -------
    list
        The jobs of the first repeat come first. In each repeat, large jobs come before small ones,
        so that all devices finish at about the same time.
    """
    count = max(1, min(groups, -(-_SHARDS_A_DEVICE * devices // len(dtypes))))
    return [
        Part(dtype, index, count, repeat)
        for repeat in range(1, repeats + 1)
        for index in range(count)
        for dtype in dtypes
    ]


class SharedTerminal(io.TextIOBase, TextIO):
    """Terminal to which several threads print lines, above one line of progress that is replaced.

    Parameters
    ----------
    stream
        The terminal.
    """

    def __init__(self, stream: TextIO) -> None:
        self._news = News(stream, in_place=True)
        self._writing = threading.Lock()

    def write(self, text: str) -> int:
        """Print each line of `text` above the line of progress, and return the length of `text`.

        A lock keeps the lines of different threads apart.
        """
        with self._writing:
            for line in text.splitlines():
                self._news.write(line)
        return len(text)

    def show(self, text: str) -> None:
        """Replace the line of progress by `text`, or print it now and then without a terminal."""
        with self._writing:
            self._news.show(text)

    def clear(self) -> None:
        """Remove the line of progress from the terminal."""
        with self._writing:
            self._news.clear()


class _Schedule:
    """Parts that wait, run and are done, for all threads."""

    def __init__(self, parts: Sequence[Part], lanes: int) -> None:
        self._waiting = list(parts)
        self._running = list[Part]()
        self._lanes = lanes
        self._tries = Counter[Part]()
        self.done: dict[Part, MeasuredShard] = {}
        self.error: BaseException | None = None
        self._changed = threading.Condition()

    def take(self) -> Part | None:
        """Return the next part, or None at the end. Later repeats wait for the first one."""
        with self._changed:
            while self.error is None and (self._waiting or self._running):
                for part in self._waiting:
                    first = Part(part.dtype, part.index, part.count, 1)
                    if part.repeat == 1 or first in self.done:
                        self._waiting.remove(part)
                        self._running.append(part)
                        return part
                self._changed.wait()
        return None

    def finish(self, part: Part, shard: MeasuredShard) -> None:
        """Record the result of a part, and wake threads that wait."""
        with self._changed:
            self._running.remove(part)
            self.done[part] = shard
            self._changed.notify_all()

    def give_back(self, part: Part) -> bool:
        """Return whether another device measures the failed part. If so, drop the failed device."""
        with self._changed:
            self._tries[part] += 1
            if self._lanes == 1 or self._tries[part] == _MAX_TRIES:
                return False
            self._lanes -= 1
            self._running.remove(part)
            self._waiting.insert(0, part)
            self._changed.notify_all()
            return True

    def fail(self, error: BaseException) -> None:
        """End the schedule with an error. Only the first error counts."""
        with self._changed:
            self.error = self.error or error
            self._changed.notify_all()

    def is_over(self, repeat: int) -> bool:
        """Return whether all parts of a repeat are done."""
        with self._changed:
            return all(part.repeat != repeat for part in (*self._waiting, *self._running))


def in_threads(
    workers: Sequence[Workers],
    tasks: Sequence[Callable[[], None]],
    meanwhile: Callable[[], None] = lambda: None,
) -> None:
    """Run each task in a thread, and another function in this thread at the same time.

    If this thread is interrupted, it stops the processes of all `workers`, which ends the tasks.

    Parameters
    ----------
    workers
        Measuring processes that the tasks use.
    tasks
        Functions that raise no error.
    meanwhile
        Function for this thread.
    """
    threads = [threading.Thread(target=task, daemon=True) for task in tasks]
    for thread in threads:
        thread.start()
    try:
        meanwhile()
        for thread in threads:
            thread.join()
    except BaseException:
        for one in workers:
            one.stop()
        for thread in threads:
            thread.join()
        for one in workers:
            one.restart()
        raise


@dataclass(frozen=True)
class _Crew:
    """The devices that process one schedule, each in its own thread."""

    schedule: _Schedule
    lanes: Sequence[Lane]
    measure: Callable[[Lane, Part], MeasuredShard]
    terminal: SharedTerminal
    n_parts: int

    def show(self) -> None:
        """Show how many shards are done in the line of progress."""
        done = len(self.schedule.done)
        self.terminal.show(f"{len(self.lanes)} devices: {done} of {self.n_parts} shards done")

    def work(self, lane: Lane) -> None:
        """Measure parts on a device until none is left or the device fails."""
        try:
            while (part := self.schedule.take()) is not None:
                self._end_repeats(lane, part)
                lost = self._do(lane, part)
                if lost is not None:
                    said = f"device {lane.choice.index} ({lane.info.uuid}) failed: {lost}"
                    log.error(said)
                    self.terminal.write(f"gpushmoo: {said} The other devices measure the rest.\n")
                    return
        except BaseException as err:
            self.schedule.fail(err)
            for one in self.lanes:
                one.workers.stop()

    def _end_repeats(self, lane: Lane, part: Part) -> None:
        """End the processes of earlier repeats that are over."""
        for repeat in range(TELLING_REPEATS + 1, part.repeat):
            if self.schedule.is_over(repeat):
                lane.workers.end_repeat(repeat)

    def _do(self, lane: Lane, part: Part) -> str | None:
        """Measure a part. If another device must measure it again, return the reason."""
        try:
            shard = self.measure(lane, part)
        except HostError:
            raise
        except DeviceError as err:
            if not self.schedule.give_back(part):
                raise
            return str(err)
        lost = _lost(shard)
        if lost is not None and self.schedule.give_back(part):
            return lost
        self.schedule.finish(part, shard)
        self.show()
        return None


def measure_parts(
    parts: Sequence[Part],
    lanes: Sequence[Lane],
    measure: Callable[[Lane, Part], MeasuredShard],
    terminal: SharedTerminal,
) -> dict[Part, MeasuredShard]:
    """Measure all parts on several devices. If a device fails, the others measure its part.

    Parameters
    ----------
    parts
        The parts, in the order in which they start.
    lanes
        The open devices.
    measure
        Function that measures a part on a device.
    terminal
        Terminal for lines of progress.

    Returns
    -------
    dict
        The shards of all parts. After Ctrl-C, only those of complete repeats.

    Raises
    ------
    DeviceError
        If no device could measure a part.
    KeyboardInterrupt
        After Ctrl-C, if no repeat is complete.
    """
    schedule = _Schedule(parts, len(lanes))
    workers = [lane.workers for lane in lanes]
    crew = _Crew(schedule, lanes, measure, terminal, len(parts))
    crew.show()
    try:
        in_threads(workers, [partial(crew.work, lane) for lane in lanes])
    except KeyboardInterrupt:
        return _complete(parts, schedule.done)
    finally:
        terminal.clear()
    if schedule.error is not None:
        for one in workers:
            one.restart()
        raise schedule.error
    for lane in lanes:
        for repeat in {part.repeat for part in parts if part.repeat > TELLING_REPEATS}:
            lane.workers.end_repeat(repeat)
    return schedule.done


def _lost(shard: MeasuredShard) -> str | None:
    """Return the reason why the device was lost before or in a shard, or None if it was not."""
    statuses, messages = (shard.table.column(name) for name in ("status", "message"))
    found = messages.filter(pc.equal(statuses, Status.DEVICE_LOST))
    return (found[0].as_py() or "it was lost.") if len(found) else None


def _complete(parts: Sequence[Part], done: dict[Part, MeasuredShard]) -> dict[Part, MeasuredShard]:
    """Return the shards of complete repeats, or raise KeyboardInterrupt without any."""
    missing = min((part.repeat for part in parts if part not in done), default=None)
    if missing == 1:
        raise KeyboardInterrupt
    return {part: s for part, s in done.items() if missing is None or part.repeat < missing}
