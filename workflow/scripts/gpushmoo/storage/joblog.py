"""End a job, and write its output to a log file, except for progress on the terminal."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import NoReturn, TextIO

from ..core.display import MAX_SENTENCE, one_line
from ..core.errors import JobSignalledError, UnusableFilesError, UserError
from .wholefile import set_aside

_PR_SET_PDEATHSIG = 1
# Signals by which people, schedulers and closed terminals end a job.
END_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
# Number of ends by an outside signal after which a measuring process or a compiler becomes suspect.
# Until then its work is repeated, because people and a system short of memory send such signals,
# too.
STRIKES_FORGIVEN = 2


def end_with_parent(parent: int | None = None) -> None:
    """Have the kernel kill this process when the one that started it ends (Linux only).

    If that was `parent` and it has already ended, this process ends now.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent is not None and os.getppid() != parent:
        sys.exit()


@contextmanager
def raises_signals() -> Iterator[None]:
    """Raise JobSignalledError in the block at the first signal; a second one ends the process.

    So the job cleans up: it ends its measuring process and removes a partly written file. A signal
    that the process was started to ignore (``nohup``) stays ignored.
    """
    before = {s: signal.getsignal(s) for s in END_SIGNALS}
    taken = [s for s in END_SIGNALS if before[s] is not signal.SIG_IGN]

    def end(number: int, frame: FrameType | None) -> None:
        for s in taken:
            signal.signal(s, signal.SIG_DFL)
        raise JobSignalledError(
            f"This job was ended by {signal.Signals(number).name} before its file was written; "
            "start the run again: finished shards are kept, only this one is measured again."
        )

    for s in taken:
        signal.signal(s, end)
    try:
        yield
    finally:
        for s in taken:
            signal.signal(s, before[s])


# Largest size of a log in bytes; the middle of a larger one is dropped.
MAX_BYTES = 10**7
# Seconds between two checks of its size.
_LOOK_S = 0.2
# Tries to read the end without output in between. A flood of output never pauses.
_TRIES = 5
_CUT = (
    b"\n[gpushmoo: what was printed here is left out. What prints so much is most likely a kernel "
    b"or workload.py, and what is timed includes it.]\n"
)

log = logging.getLogger(__name__)


@contextmanager
def job_log(path: str | Path, end: Callable[[int], NoReturn] = os._exit) -> Iterator[TextIO]:
    """Send file descriptors 1 and 2 to `path`; yield the terminal's stderr for progress lines.

    The log keeps the beginning and the end, about MAX_BYTES together. An exception ends the job
    with one line on the terminal. For a UserError or a signal, the line is its text. For damaged
    files, it adds where they were moved to. For any other exception, it is the type's name, and the
    log has the traceback.

    Parameters
    ----------
    path
        Log file.
    end
        Function that ends the process with a status.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    _flush()
    with os.fdopen(os.dup(2), "w", encoding="utf-8", errors="backslashreplace") as terminal:
        said = None
        was_cut = threading.Event()
        try:
            with _bounded(path, was_cut):
                # If the disk is full, the handler drops a line. Printing the error would end the
                # job.
                logging.basicConfig(
                    level=logging.INFO,
                    stream=sys.stderr,
                    format="%(asctime)s %(levelname)s %(message)s",
                    force=True,
                )
                yield terminal
        except (UserError, JobSignalledError) as err:
            log.error("%s", err)
            said = str(err)
        except UnusableFilesError as err:
            log.error("%s", err)
            said = f"{err}{_aside(err.files, path)}"
        except Exception as err:
            log.exception("The job failed.")
            sentence = one_line(f"{type(err).__name__}: {err}", MAX_SENTENCE)
            said = f"{sentence} (details: {path})"
        if said is not None:
            terminal.write(f"gpushmoo: {said}\n")
        if _shortened(1) or was_cut.is_set():
            terminal.write(
                f"gpushmoo: '{path}' would be over {MAX_BYTES / 1e6:g} MB and contains only "
                "the beginning and the end; if a kernel or workload.py prints, times include it.\n"
            )
        terminal.flush()
        if said is not None:
            end(1)


def speaker(terminal: TextIO, rule: str) -> Callable[[str], None]:
    """Return a function that prints a job's sentences on the terminal, after the rule's name."""
    return partial(print, f"gpushmoo: {rule}:", file=terminal, flush=True)


@contextmanager
def _bounded(path: Path, was_cut: threading.Event) -> Iterator[None]:
    """Send file descriptors 1 and 2 to a file that is shortened when it gets long (`was_cut`).

    All processes append to the file itself, so that a killed job leaves its output. Output after
    the block is appended, too.
    """
    path.write_bytes(b"")
    with path.open("a+b", buffering=0) as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(_LOOK_S):
            if _shortened(1):
                was_cut.set()

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    try:
        yield
    finally:
        _flush()
        ended.set()
        watching.join()


def _shortened(descriptor: int) -> bool:
    """Keep half of MAX_BYTES at the beginning and a quarter at the end of a longer file."""
    size = os.fstat(descriptor).st_size
    tail = MAX_BYTES // 4
    if size <= MAX_BYTES:
        return False
    with suppress(OSError):
        # Output between reading and cutting would be lost.
        for _ in range(_TRIES):
            last = os.pread(descriptor, tail, size - tail)
            before = size
            size = os.fstat(descriptor).st_size
            if size == before:
                break
        os.ftruncate(descriptor, MAX_BYTES // 2)
        os.write(descriptor, _CUT + last)
    return True


def _flush() -> None:
    """Write buffered output; if the disk is full, it is lost."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()


def _aside(unusable: Sequence[Path], log_file: Path) -> str:
    """Move files of the run aside; return a sentence on them, empty if all are from elsewhere."""
    run = next((p.parent for p in log_file.parents if p.name == "logs"), None)
    try:
        moved = set_aside(unusable, run) if run is not None else []
    except OSError as err:
        return f" Not set aside ({err.strerror}): remove it and start the run again."
    names = ", ".join(f"'{path}'" for path in moved)
    return f" Set aside as {names}; start the run again to create it again." if moved else ""
