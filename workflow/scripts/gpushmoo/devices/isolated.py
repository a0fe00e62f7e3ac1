"""Runs tasks in processes of their own, so that one which crashes or hangs costs nothing else."""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Generic, TypeVar

from ..core.process import end_with_parent

K = TypeVar("K")
V = TypeVar("V")
# A task whose process ends without a word is tried so often: a signal may come from outside.
_TRIES = 3


@dataclass(frozen=True)
class TaskEnded:
    """A task ended its process, or did not end in time; `how` is a clause about it."""

    how: str


@dataclass
class _Child(Generic[K, V]):
    """A forked process, and the tasks that it has not told the result of, in their order."""

    process: BaseProcess
    connection: Connection[Any, Any]
    left: dict[K, Callable[[], V]]
    deadline: float


def run_isolated(
    tasks: Mapping[K, Callable[[], V]], processes: int, limit_s: float
) -> dict[K, V | TaskEnded]:
    """What each task returns, run in at most so many processes at once, `limit_s` seconds each.

    Processes are forked: no device's runtime may have been initialised in this one. A task's own
    exception is raised here, once all processes have been stopped.
    """
    results: dict[K, V | TaskEnded] = {}
    tries = dict.fromkeys(tasks, 0)
    names = list(tasks)
    shares = ({n: tasks[n] for n in names[i::processes]} for i in range(processes))
    children = [_fork(share, limit_s) for share in shares if share]
    try:
        while children:
            soonest = min(child.deadline for child in children)
            ready = wait([c.connection for c in children], max(0.0, soonest - time.monotonic()))
            for child in list(children):
                how = None
                if child.connection in ready:
                    how = _receive(child, results, limit_s)
                elif time.monotonic() >= child.deadline:
                    child.process.kill()
                    how = f"did not end within {limit_s:g} s"
                if how is not None:
                    culprit = next(iter(child.left))
                    tries[culprit] += 1
                    if tries[culprit] == _TRIES or "within" in how:
                        results[culprit] = TaskEnded(how)
                        del child.left[culprit]
                if how is not None or not child.left:
                    children.remove(child)
                    _reap(child)
                    if child.left:
                        children.append(_fork(child.left, limit_s))
    finally:
        for child in children:
            child.process.kill()
            _reap(child)
    return {name: results[name] for name in names}


def _fork(tasks: dict[K, Callable[[], V]], limit_s: float) -> _Child[K, V]:
    context = multiprocessing.get_context("fork")
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(target=_run, args=(tasks, sending))
    process.start()
    sending.close()
    return _Child(process, receiving, dict(tasks), time.monotonic() + limit_s)


def _run(tasks: dict[K, Callable[[], V]], sending: Connection[Any, Any]) -> None:
    end_with_parent()
    for name, task in tasks.items():
        try:
            sending.send((name, task(), None))
        except Exception as err:
            sending.send((name, None, err))


def _receive(child: _Child[K, V], results: dict[K, V | TaskEnded], limit_s: float) -> str | None:
    """Keep what the child tells; how its process ended, where it did before its tasks."""
    try:
        name, value, error = child.connection.recv()
    except EOFError:
        child.process.join()
        status = child.process.exitcode or 0
        if status >= 0:
            return f"ended its process with status {status}"
        return f"was ended by {signal.Signals(-status).name}"
    if error is not None:
        raise error
    results[name] = value
    del child.left[name]
    child.deadline = time.monotonic() + limit_s
    return None


def _reap(child: _Child[K, V]) -> None:
    child.connection.close()
    child.process.join()
