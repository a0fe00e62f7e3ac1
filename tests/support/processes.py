"""Processes found by a mark in their environment, orphans included."""

import contextlib
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

# Whoever is started with this variable hands it on to all that it starts.
MARK = "GPUSHMOO_CHAOS"


@dataclass(frozen=True)
class Process:
    """A process that was alive a moment ago; `started` tells it from a later one of its id."""

    pid: int
    parent: int
    started: int
    command: str

    @property
    def is_orphan(self) -> bool:
        """Whether who started it is gone."""
        return self.parent == 1

    def alive(self) -> bool:
        """Whether it still runs (or is stopped); a zombie does not."""
        found = _stat(self.pid)
        return found is not None and found[1] == self.started

    def send(self, number: signal.Signals) -> bool:
        """Send a signal to this process, and to no other of its id; whether it was there."""
        if not self.alive():
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)
            return True
        return False


def marked(mark: str, variable: str = MARK) -> list[Process]:
    """All processes in whose environment `variable` is `mark`, oldest first."""
    wanted = f"{variable}={mark}".encode()
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            environment = (folder / "environ").read_bytes()
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if wanted not in environment.split(b"\0"):
            continue
        stat = _stat(int(folder.name))
        if stat is not None:
            found.append(Process(int(folder.name), *stat, command.strip()))
    return sorted(found, key=lambda p: p.started)


def _stat(pid: int) -> tuple[int, int] | None:
    """Parent and start time (clock ticks since the system's start), None if it has ended."""
    try:
        # The name in brackets may hold anything.
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace").rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return None
    return None if text[0] in "ZX" else (int(text[1]), int(text[19]))


def gone(mark: str, within_s: float) -> list[Process]:
    """Wait until all marked processes have ended; those that have not `within_s` seconds later."""
    deadline = time.monotonic() + within_s
    while left := marked(mark):
        if time.monotonic() > deadline:
            return left
        time.sleep(0.1)
    return []


def end_all(mark: str) -> None:
    """End every marked process, stopped ones too."""
    for process in marked(mark):
        process.send(signal.SIGKILL)
    gone(mark, 10)
