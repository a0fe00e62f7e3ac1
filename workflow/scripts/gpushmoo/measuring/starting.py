"""Start the program of a measuring process.

This module imports almost nothing. A program may use it first, so that the process imports its
libraries while the program imports its own.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.paths import child_environment

if TYPE_CHECKING:
    from concurrent.futures import Executor

# The program of a measuring process. By its name, because to import it takes a tenth of a start.
PROGRAM = "gpushmoo.measuring.worker"
NOWHERE = Path(os.devnull)


@dataclass(frozen=True)
class StartedProgram:
    """A running program, this end of its socket, and its environment."""

    process: subprocess.Popen[bytes]
    connection: socket.socket
    environment: dict[str, str]


def start(module: str, log_file: Path | None) -> StartedProgram:
    """Start a Python module as a process that is connected by a socket.

    The system ends the process together with the thread that started it (`joblog.end_with_parent`).
    A thread that measures may end earlier, so a lasting thread starts the process for it.

    Parameters
    ----------
    module
        Name of the module.
    log_file
        File to which the process prints, or None for the output of this process.
    """
    if threading.current_thread() is threading.main_thread():
        return _started(module, log_file)
    return _lasting_thread(os.getpid()).submit(_started, module, log_file).result()


@cache
def _lasting_thread(process: int) -> Executor:
    """Return a thread that ends with this process. A fork has its own thread."""
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(1)


def _started(module: str, log_file: Path | None) -> StartedProgram:
    own, theirs = socket.socketpair()
    environment = child_environment()
    with theirs, open(log_file or NOWHERE, "ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", module, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=None if log_file is None else output,
            stderr=subprocess.STDOUT,
            env=environment,
        )
    return StartedProgram(process, own, environment)


_EARLY: list[StartedProgram] = []


def start_early(module: str) -> None:
    """Start a process that the next call of `early` returns."""
    _EARLY.append(start(module, NOWHERE))


def early(module: str) -> StartedProgram:
    """Return the process that was started early, or a new one.

    Parameters
    ----------
    module
        Name of the module that it runs.
    """
    return _EARLY.pop() if _EARLY else start(module, NOWHERE)
