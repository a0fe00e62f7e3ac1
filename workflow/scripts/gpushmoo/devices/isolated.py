"""Run tasks in forked processes, so that one that crashes, hangs or is killed affects no other."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Generic, TypeVar

from ..storage.joblog import END_SIGNALS, STRIKES_FORGIVEN, end_with_parent

# Seconds between two looks at processes.
_LOOK_S = 0.25
# A task may take its limit times this by the clock on the wall: it may wait for a processor.
PATIENCE = 10.0
# Seconds after which `run_isolated` says that a task is under way.
SLOW_S = 10.0
# Last bytes that are kept of a process's output.
_TAIL = 10_000
# Reads of its output at each look, which a flood would not end.
_READS = 16
# Seconds that a process has for its end, once its task has ended it.
_GRACE_S = 10.0
_FROM_OUTSIDE = (*END_SIGNALS, signal.SIGKILL)

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True)
class TaskEnded:
    """Failure of a task that ended its process or took too long.

    Attributes
    ----------
    how
        Clause on how the process ended.
    is_struck
        Whether a signal ended it that no compiler sends to itself.
    is_late
        Whether the task took too long.
    printed
        End of the process's output.
    """

    how: str
    is_struck: bool = False
    is_late: bool = False
    printed: str = field(default="", compare=False)


def run_isolated(
    tasks: Mapping[K, Callable[[], V]],
    processes: int,
    limit_s: float,
    on_slow: Callable[[K], None] = lambda _: None,
    on_done: Callable[[int, int], None] = lambda done, total: None,
) -> dict[K, V | TaskEnded]:
    """Run tasks in several processes, and return their results.

    Processes are forked, so no device's runtime may be initialized in this process. They print to
    its stderr. If a task raises an error, all processes are stopped and the error is raised here.
    If a signal from outside ended a task, the system may have been short of memory. Then the task
    runs again alone, after all others, at most twice.

    Parameters
    ----------
    tasks
        Functions by name.
    processes
        Number of processes that run at the same time.
    limit_s
        Processor time after which a task is ended, in seconds. It is also ended after PATIENCE
        times this limit of wall-clock time.
    on_slow
        Called with the name of a task that takes SLOW_S seconds.
    on_done
        Called with the number of finished tasks and of all tasks.

    Returns
    -------
    dict
        Result or failure of each task, by name.
    """
    results: dict[K, V | TaskEnded] = {}
    strikes: Counter[K] = Counter()
    struck: dict[K, Callable[[], V]] = {}
    names = list(tasks)
    shares = ({n: tasks[n] for n in names[i::processes]} for i in range(processes))
    children = [_Child(share, limit_s, on_slow) for share in shares if share]
    try:
        while children or struck:
            if not children:
                children = [_Child(struck, limit_s, on_slow)]
                struck = {}
            wait([watched for child in children for watched in child.watched], _LOOK_S)
            for child in list(children):
                if child.look(results):
                    continue
                children.remove(child)
                ended = child.end()
                left = child.left
                if left:
                    culprit = next(iter(left))
                    task = left.pop(culprit)
                    if ended.is_struck and strikes[culprit] < STRIKES_FORGIVEN:
                        strikes[culprit] += 1
                        struck[culprit] = task
                    else:
                        results[culprit] = ended
                if left:
                    children.append(_Child(left, limit_s, on_slow))
            on_done(len(results), len(tasks))
    finally:
        for child in children:
            child.kill()
    return {name: results[name] for name in names}


class _Child(Generic[K, V]):
    """A forked process and the tasks that are `left` for it. It works on the first one."""

    def __init__(
        self, tasks: Mapping[K, Callable[[], V]], limit_s: float, on_slow: Callable[[K], None]
    ) -> None:
        self.left = dict(tasks)
        self._limit_s, self._on_slow = limit_s, on_slow
        context = multiprocessing.get_context("fork")
        self._connection, sending = context.Pipe(duplex=False)
        self._reading, writing = os.pipe()
        os.set_blocking(self._reading, False)
        self._process = context.Process(target=_run, args=(self.left, sending, writing))
        self._process.start()
        sending.close()
        os.close(writing)
        # Programs that a compiler starts end with it. The process does the same: one is first.
        with suppress(OSError):
            os.setpgid(self._pid, self._pid)
        self._printed = b""
        self._is_mute = False
        self._is_late = False
        self._processor_s = 0.0
        self._waited_s = 0.0
        self._is_slow = False
        self._looked = time.monotonic()

    @property
    def watched(self) -> list[Any]:
        """Objects that become ready as soon as the process has sent or printed something."""
        return [self._connection, *([] if self._is_mute else [self._reading])]

    @property
    def _pid(self) -> int:
        return self._process.pid or 0

    def look(self, results: dict[K, V | TaskEnded]) -> bool:
        """Collect results that the process has sent, and return whether it continues."""
        now = time.monotonic()
        # A longer look means that this process was stopped, or the machine suspended.
        self._waited_s += min(now - self._looked, 2 * _LOOK_S)
        self._looked = now
        self._pass_on()
        while self.left and self._connection.poll():
            try:
                name, value, error, processor_s = self._connection.recv()
            except (EOFError, OSError):  # OSError: it was ended in the middle of a message
                return False
            if error is not None:
                raise error
            results[name] = value
            del self.left[name]
            self._begin(processor_s)
        if not self.left:
            return False
        if self._waited_s >= SLOW_S and not self._is_slow:
            self._is_slow = True
            self._on_slow(next(iter(self.left)))
        self._is_late = self._has_taken_too_long()
        return not self._is_late

    def end(self) -> TaskEnded:
        """Wait for the end of the process, or kill it if it is late, and return how it ended."""
        if self._is_late:
            self.kill()
            return TaskEnded(f"did not end within {self._limit_s:g} s", is_late=True)
        self._process.join(_GRACE_S if self.left else None)
        status = self._process.exitcode
        self._pass_on()
        self.kill()
        printed = self._printed.decode(errors="replace")
        if status is None:
            return TaskEnded("did not say how it ended", printed=printed)
        if status >= 0:
            return TaskEnded(f"ended its process with status {status}", printed=printed)
        how = f"was ended by {_signal_name(-status)}"
        return TaskEnded(how, -status in _FROM_OUTSIDE, printed=printed)

    def kill(self) -> None:
        """Kill the process and all processes that it has started."""
        with suppress(OSError):
            os.killpg(self._pid, signal.SIGKILL)
        if self._process.exitcode is None:
            self._process.kill()
        self._process.join()
        self._connection.close()
        with suppress(OSError):
            os.close(self._reading)

    def _begin(self, processor_s: float) -> None:
        """Start to measure the time of the next task, given the processor time used so far."""
        self._processor_s = processor_s
        self._waited_s = 0.0
        self._is_slow = False
        self._looked = time.monotonic()

    def _has_taken_too_long(self) -> bool:
        if self._waited_s < self._limit_s:
            return False
        if self._waited_s >= PATIENCE * self._limit_s:
            return True
        taken_s = _processor_s(self._pid)
        return taken_s is None or taken_s - self._processor_s >= self._limit_s

    def _pass_on(self) -> None:
        """Copy the process's output to this one's stderr, and keep the end of it."""
        for _ in range(_READS):
            try:
                data = os.read(self._reading, 2**16)
            except OSError:  # nothing for now
                return
            if not data:
                self._is_mute = True
                return
            self._printed = (self._printed + data)[-_TAIL:]
            with suppress(OSError):  # a full disk
                os.write(2, data)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


def _processor_s(group: int) -> float | None:
    """Return the processor time of a process group in seconds, or None without /proc.

    The group matters, because a compiler may start another program and wait for it.
    """
    ticks = 0
    found = False
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text(encoding="utf-8", errors="replace")
        except OSError:  # it has ended
            continue
        # The name before them, in brackets, may hold anything.
        fields = text.rpartition(")")[2].split()
        if int(fields[2]) == group:
            found = True
            ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK") if found else None


def _run(tasks: Mapping[K, Callable[[], V]], sending: Connection[Any, Any], printing: int) -> None:
    with suppress(OSError):
        os.setpgid(0, 0)
    end_with_parent()
    # The job's own handlers would end this process like an error of the task.
    for number in END_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    for descriptor in (1, 2):
        os.dup2(printing, descriptor)
    os.close(printing)
    for name, task in tasks.items():
        try:
            made = task()
            error = None
        except Exception as err:
            made = None
            error = err
        sending.send((name, made, error, sum(os.times()[:4])))
