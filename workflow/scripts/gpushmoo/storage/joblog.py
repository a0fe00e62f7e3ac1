"""A job's log file: everything a script prints or raises ends there, progress on the terminal."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn, TextIO

from ..core.display import MOST_SENTENCE, one_line
from .wholefile import UnusableFilesError, set_aside

# Bytes that a log holds at most; what is printed beyond them is left out in the middle.
MOST_BYTES = 10**7
# Seconds between two looks at its size: what is printed in between may be beyond that.
_LOOK_S = 0.2
# Readings of the end until nothing was printed meanwhile; a flood never pauses.
_TRIES = 5
_CUT = (
    b"\n[gpushmoo: what was printed here is left out. What prints so much is most likely a kernel "
    b"or workload.py, and what is timed includes it.]\n"
)

log = logging.getLogger(__name__)


@contextmanager
def job_log(
    path: str | Path,
    expected: tuple[type[BaseException], ...] = (),
    end: Callable[[int], NoReturn] = os._exit,
) -> Iterator[TextIO]:
    """Send file descriptors 1 and 2 to `path`; yield the terminal's stderr for progress lines.

    Snakemake leaves ``log:`` empty when a script does not do this, also for output of libraries
    written in C. Of what all processes of the job print the log keeps about MOST_BYTES, the
    beginning and the end; a job that printed more says so on the terminal. An exception of the
    `expected` types is a message to the user: it is said in one line on the terminal, without a
    traceback, and `end` is called with status 1. So is one on files that must not be used, which
    are set aside. Any other one is written to the log with its traceback and named on the terminal.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    _flush()
    with os.fdopen(os.dup(2), "w", encoding="utf-8", errors="backslashreplace") as terminal:
        file = _BoundedLog(path, terminal)
        # On a full disk a handler loses a line; to print one would end the job.
        logging.basicConfig(
            level=logging.INFO,
            stream=sys.stderr,
            format="%(asctime)s %(levelname)s %(message)s",
            force=True,
        )
        try:
            yield terminal
        except expected as err:
            file.stop()
            log.error("%s", err)
            file.end(str(err))
            end(1)
        except UnusableFilesError as err:
            file.stop()
            log.error("%s", err)
            file.end(f"{err}{_aside(err.files, path)}")
            end(1)
        except Exception as err:
            file.stop()
            log.exception("The job failed.")
            sentence = one_line(f"{type(err).__name__}: {err}", MOST_SENTENCE)
            file.end(f"{sentence} (details: {path})")
            end(1)
        finally:
            file.close()


class _BoundedLog:
    """The file that file descriptors 1 and 2 lead to, shortened in the middle where it is long.

    All that prints appends to the file itself, so that nothing waits, and what was printed before
    a job is killed is there.
    """

    def __init__(self, path: Path, terminal: TextIO) -> None:
        self._path, self._terminal = path, terminal
        path.write_bytes(b"")
        # Kept open: at the end the folder may be gone, or another one the working directory.
        self._file = path.open("a+b", buffering=0)
        os.dup2(self._file.fileno(), 1)
        os.dup2(self._file.fileno(), 2)
        self._is_cut = False
        self._ended = threading.Event()
        self._watch = threading.Thread(target=self._bound, daemon=True)
        self._watch.start()

    def _bound(self) -> None:
        while not self._ended.wait(_LOOK_S):
            self._shorten()

    def _shorten(self) -> None:
        """Keep the first half of MOST_BYTES and the last quarter; on a full disk what fits."""
        descriptor = self._file.fileno()
        size, tail = os.fstat(descriptor).st_size, MOST_BYTES // 4
        if size <= MOST_BYTES:
            return
        self._is_cut = True
        with suppress(OSError):
            # What is printed between reading and cutting is lost, so nothing should be.
            for _ in range(_TRIES):
                last = os.pread(descriptor, tail, size - tail)
                before, size = size, os.fstat(descriptor).st_size
                if size == before:
                    break
            os.ftruncate(descriptor, MOST_BYTES // 2)
            os.write(descriptor, _CUT + last)

    def stop(self) -> None:
        """Shorten no more until `close`, so that the last words of the job stay whole."""
        _flush()
        self._ended.set()
        self._watch.join()

    def close(self) -> None:
        """Return when the log is as it stays; what is printed later goes to its end."""
        if self._file.closed:
            return
        self.stop()
        self._shorten()
        self._file.close()
        if self._is_cut:
            self.say(
                f"'{self._path}' would be over {MOST_BYTES / 1e6:g} MB and holds only the "
                "beginning and the end; where a kernel or workload.py prints, times include it."
            )

    def end(self, sentence: str) -> None:
        """Say what ended the job, and close the log."""
        self.say(sentence)
        self.close()

    def say(self, sentence: str) -> None:
        """Write `sentence` to the terminal, behind the name of the program."""
        self._terminal.write(f"gpushmoo: {sentence}\n")
        self._terminal.flush()


def _flush() -> None:
    """Have all that was printed written; on a full disk it is lost."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()


def _aside(unusable: Sequence[Path], log_file: Path) -> str:
    """Set files of the run aside; a sentence on them, empty where all are from elsewhere."""
    run = next((p.parent for p in log_file.parents if p.name == "logs"), None)
    try:
        moved = set_aside(unusable, run) if run is not None else []
    except OSError as err:
        return f" Not set aside ({err.strerror}): remove it and start the run again."
    names = ", ".join(f"'{path}'" for path in moved)
    return f" Set aside as {names}; start the run again to make it anew." if moved else ""
