"""Read how long the threads of a process have waited for a core, as Linux counts it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path


def core_waits_s(pid: int) -> dict[str, float]:
    """Return how long each thread of a process has waited for a core so far.

    Parameters
    ----------
    pid
        Number of the process.

    Returns
    -------
    dict
        Seconds by thread number, empty without /proc.
    """
    waits_s = {}
    for task in Path(f"/proc/{pid}/task").glob("*"):
        with suppress(OSError, IndexError, ValueError):  # a thread may end meanwhile
            waits_s[task.name] = int((task / "schedstat").read_text().split()[1]) / 1e9
    return waits_s


def longest_wait_s(before_s: Mapping[str, float], after_s: Mapping[str, float]) -> float:
    """Return the longest wait of one thread between two results of `core_waits_s`, in seconds."""
    return max((after_s[t] - before_s[t] for t in before_s.keys() & after_s.keys()), default=0.0)


def all_waits_s(before_s: Mapping[str, float], after_s: Mapping[str, float]) -> float:
    """Return the sum of all threads' waits between two results of `core_waits_s`, in seconds."""
    return sum(after_s[t] - before_s[t] for t in before_s.keys() & after_s.keys())
