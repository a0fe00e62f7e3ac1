"""The measuring server: a run's measuring jobs, one after the other, in one process.

``python -m gpushmoo.measuring.server FD`` serves the clients (`client`) of the listening socket FD
until its parent ends. It keeps the measuring process with its open device from one job of a repeat
to the next, since a start costs more than most shards take. Without FD it does the one job on its
standard input.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from ..core.errors import UserError
from ..core.process import JobSignalledError, end_with_parent, raises_signals
from ..storage.joblog import job_log
from .client import LENGTH
from .job import ShardTask, run_shard
from .process import Workers
from .progress import live_path
from .shard_file import Earlier


def measure(job: Mapping[str, Any], workers: Workers, end: Callable[[int], NoReturn]) -> None:
    """Do a measuring job. A failure is reported, and `end` called with the exit status."""
    with job_log(job["log"], (UserError, JobSignalledError), end) as terminal:
        out = Path(job["out"])
        earlier = Earlier(out, job["spec"], job["code"])
        earlier.read(job["remeasure"])
        task = ShardTask(
            job["spec"],
            (job["place"][0], job["place"][1]),
            Path(job["cache"]),
            Path(job["first"]) if job["first"] else None,
            Path(job["build"]) if job["build"] else None,
            job["log"],
            earlier,
            worker_log=Path(job["log"]),
            live=live_path(Path(job["plan"]).parent, out),
            workers=workers,
            seconds=job["seconds"],
        )
        run_shard(task, out, terminal)


def serve(listening: socket.socket) -> None:
    """Do the jobs of all clients forever."""
    workers = Workers(keep=True)
    while True:
        client, _ = listening.accept()
        with client:
            _serve(client, workers)


def _serve(client: socket.socket, workers: Workers) -> None:
    try:
        length, output, _, _ = socket.recv_fds(client, LENGTH, 2)
        request = received(client, int.from_bytes(length, "big"))
    except OSError:
        return
    if request is None:
        return
    status = 0
    with _as_output(output):
        try:
            with raises_signals(), _signals_of(client):
                measure(json.loads(request), workers, sys.exit)
        except SystemExit as end:
            status = int(end.code or 0)
        except JobSignalledError:  # while it had no log
            status = 1
    try:
        client.sendall(bytes([status]))
    except OSError:
        return


def received(client: socket.socket, length: int) -> bytes | None:
    """The next `length` bytes; None if the client ends before. A signal's byte may follow."""
    request = b""
    while len(request) < length:
        if not (more := client.recv(min(2**16, length - len(request)))):
            return None
        request += more
    return request


@contextmanager
def _as_output(descriptors: list[int]) -> Iterator[None]:
    """Replace file descriptors 1 and 2 by these, which are closed."""
    own = [os.dup(1), os.dup(2)]
    try:
        for number, descriptor in enumerate(descriptors, 1):
            os.dup2(descriptor, number)
            os.close(descriptor)
        yield
    finally:
        for number, descriptor in enumerate(own, 1):
            os.dup2(descriptor, number)
            os.close(descriptor)


@contextmanager
def _signals_of(client: socket.socket) -> Iterator[None]:
    """Send this process the signals that the client gets, and SIGTERM when the client ends."""
    lock = threading.Lock()
    over = False

    def listen() -> None:
        try:
            number = client.recv(1)
        except OSError:
            number = b""
        with lock:
            if not over:
                os.kill(os.getpid(), number[0] if number else signal.SIGTERM)

    threading.Thread(target=listen, daemon=True).start()
    try:
        yield
    finally:
        with lock:
            over = True


if __name__ == "__main__":
    end_with_parent()
    if len(sys.argv) > 1:
        serve(socket.socket(fileno=int(sys.argv[1])))
    else:
        with raises_signals():
            measure(json.load(sys.stdin), Workers(keep=False), os._exit)
