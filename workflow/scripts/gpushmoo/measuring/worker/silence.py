"""How much of a process's silence counts: only the time in which both sides could run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

# Seconds that one look at the other side waits for a word of it.
SLICE_S = 0.25
# States of a process that a signal or a debugger has stopped (proc_pid_stat(5)).
_STOPPED = frozenset("Tt")


@dataclass(frozen=True)
class Standing:
    """What Linux tells of a process: whether it is stopped, and what its threads have had so far.

    `ran_s` are the seconds of all its threads on a core, `waited_s` those in which they were ready
    to run and had none.
    """

    stopped: bool
    ran_s: float
    waited_s: float


def standing(pid: int, proc: Path = Path("/proc")) -> Standing | None:
    """The standing of process `pid`; None where nothing tells (no Linux, or it has ended)."""
    folder = proc / str(pid)
    try:
        # The name, in brackets, may hold anything; the state is the first field behind it.
        state = (folder / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
        threads = [p.read_text(encoding="utf-8").split() for p in folder.glob("task/*/schedstat")]
    except (OSError, IndexError):
        return None
    ran_ns, waited_ns = (sum(int(t[i]) for t in threads if len(t) == 3) for i in (0, 1))
    return Standing(state in _STOPPED, ran_ns * 1e-9, waited_ns * 1e-9)


class Silence:
    """Adds up slices of waiting in vain until they are as long as the limit.

    A slice counts as SLICE_S at most: where more time went by, the waiting side itself did not run
    (stopped, suspended, preempted, or a clock jumped). It does not count at all while the other
    side is stopped, and not as far as that was ready to run, had no core and used none. Silence of
    a process that sleeps or computes counts in full.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._before: Standing | None = None
        self.counted_s = 0.0

    @property
    def too_long(self) -> bool:
        """Whether the silence that counts has reached the limit."""
        return self.counted_s >= self._limit_s

    def add(self, elapsed_s: float, now: Standing | None) -> None:
        """A slice of `elapsed_s` seconds has passed; the other side now stands so."""
        before, self._before = self._before, now
        if now is not None and now.stopped:
            return
        starved_s = 0.0
        if now is not None and before is not None:
            # Threads that have ended take their seconds along.
            ran_s = max(0.0, now.ran_s - before.ran_s)
            waited_s = max(0.0, now.waited_s - before.waited_s)
            starved_s = min(waited_s, max(0.0, elapsed_s - ran_s))
        self.counted_s += min(SLICE_S, max(0.0, elapsed_s - starved_s))
