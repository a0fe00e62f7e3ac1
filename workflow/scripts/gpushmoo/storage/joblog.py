"""A job's log file: everything a script prints or raises ends there, progress on the terminal."""

from __future__ import annotations

import fcntl
import logging
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn, TextIO

from ..core.display import MOST_SENTENCE, one_line
from . import log_keeper
from .wholefile import UnusableFilesError, set_aside

# Bytes that a log holds at most; what is printed beyond them is left out in the middle.
MOST_BYTES = 10**7
# Seconds for which a job that has ended waits for its log: only where something that user's code
# started goes on and may still print is there anything to wait for.
_CLOSE_S = 5.0
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def job_log(
    path: str | Path,
    expected: tuple[type[BaseException], ...] = (),
    end: Callable[[int], NoReturn] = os._exit,
) -> Iterator[TextIO]:
    """Send file descriptors 1 and 2 to `path`; yield the terminal's stderr for progress lines.

    Snakemake leaves ``log:`` empty when a script does not do this, also for output of libraries
    written in C. All processes of the job together print at most MOST_BYTES into it; a job that
    printed more says so on the terminal. An exception of the `expected` types is a message to the
    user: it is said in one line on the terminal, without a traceback, and `end` is called with
    status 1. So is one on files that must not be used, which are set aside. Any other one is
    written to the log with its traceback and named on the terminal.
    """
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    with os.fdopen(os.dup(2), "w", encoding="utf-8", errors="backslashreplace") as terminal:
        log = _Log(Path(path), terminal)
        logging.basicConfig(
            level=logging.INFO,
            stream=sys.stderr,
            format="%(asctime)s %(levelname)s %(message)s",
            force=True,
        )
        try:
            yield terminal
        except expected as err:
            print(err, file=sys.stderr)
            log.end(str(err))
            end(1)
        except UnusableFilesError as err:
            print(err, file=sys.stderr)
            log.end(f"{err}{_aside(err.files, Path(path))}")
            end(1)
        except Exception as err:
            traceback.print_exc()
            sentence = one_line(f"{type(err).__name__}: {err}", MOST_SENTENCE)
            log.end(f"{sentence} (details: {path})")
            end(1)
        finally:
            log.close()


class _Log:
    """File descriptors 1 and 2 on their way to a file through a `log_keeper`."""

    def __init__(self, path: Path, terminal: TextIO) -> None:
        self._path, self._terminal = path, terminal
        path.write_bytes(b"")
        # Kept open: at the end the folder may be gone, or another one the working directory.
        self._file = path.open("ab")
        # The end that is read stays open here as well: were the keeper killed, the log would be
        # lost, and nothing that prints would fail.
        self._read_end, begin = os.pipe()
        if sys.platform == "linux":
            # So that what prints seldom has to wait; it is no matter if there is no more room.
            with suppress(OSError):
                fcntl.fcntl(begin, fcntl.F_SETPIPE_SZ, 2**20)
        # The keeper starts with these blocked, so that only the end of all that prints ends it: a
        # scheduler that ends a job asks every process, and what they say then is to be kept.
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
        try:
            self._keeper = subprocess.Popen(
                [sys.executable, "-I", "-S", log_keeper.__file__, str(MOST_BYTES)],
                stdin=self._read_end,
                stdout=self._file,
                stderr=self._file,
                start_new_session=True,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        os.dup2(begin, 1)
        os.dup2(begin, 2)
        os.close(begin)

    def close(self) -> None:
        """Return when the file is written; what is printed later goes straight to its end."""
        if self._file.closed:
            return
        sys.stdout.flush()
        sys.stderr.flush()
        with self._file:
            os.dup2(self._file.fileno(), 1)
            os.dup2(self._file.fileno(), 2)
        os.close(self._read_end)
        with suppress(subprocess.TimeoutExpired):
            if self._keeper.wait(_CLOSE_S) == log_keeper.DROPPED:
                self.say(
                    f"'{self._path}' would be over {MOST_BYTES / 1e6:g} MB and holds only the "
                    "beginning and the end; where a kernel or workload.py prints, times include it."
                )

    def end(self, sentence: str) -> None:
        """Say what ended the job, and return when the file is written."""
        self.say(sentence)
        self.close()

    def say(self, sentence: str) -> None:
        """Write `sentence` to the terminal, behind the name of the program."""
        self._terminal.write(f"gpushmoo: {sentence}\n")
        self._terminal.flush()


def _aside(unusable: Sequence[Path], log: Path) -> str:
    """Set files of the run aside; a sentence on them, empty where all are from elsewhere."""
    run = next((p.parent for p in log.parents if p.name == "logs"), None)
    try:
        moved = set_aside(unusable, run) if run is not None else []
    except OSError as err:
        return f" Not set aside ({err.strerror}): remove it and start the run again."
    names = ", ".join(f"'{path}'" for path in moved)
    return f" Set aside as {names}; start the run again to make it anew." if moved else ""
