"""A job's log file: everything a script prints or raises ends there, progress on the terminal."""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn, TextIO

from .quarantine import set_aside
from .store import BadParquetError


@contextmanager
def job_log(path: str | Path, expected: tuple[type[BaseException], ...] = ()) -> Iterator[TextIO]:
    """Send file descriptors 1 and 2 to `path`; yield the terminal's stderr for progress lines.

    Snakemake leaves ``log:`` empty when a script does not do this, also for output of libraries
    written in C. An exception of the `expected` types is a message to the user: it is said in one
    line on the terminal and ends the process with status 1, without a traceback. So is a damaged
    file, which is set aside. Any other one is written to the log with its traceback and named on
    the terminal.
    """
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    with os.fdopen(os.dup(2), "w") as terminal, open(path, "w") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
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
            _end(terminal, str(err))
        except BadParquetError as err:
            print(err, file=sys.stderr)
            _end(terminal, f"{err}{_aside(err.path, Path(path))}")
        except Exception as err:
            traceback.print_exc()
            _end(terminal, f"{type(err).__name__}: {err} (details: {path})")
        sys.stdout.flush()
        sys.stderr.flush()


def _end(terminal: TextIO, sentence: str) -> NoReturn:
    terminal.write(f"gpushmoo: {sentence}\n")
    terminal.flush()
    sys.stderr.flush()
    os._exit(1)


def _aside(damaged: Path, log: Path) -> str:
    """Set a damaged file of the run aside; a sentence on it, empty for one from elsewhere."""
    run = next((p.parent for p in log.parents if p.name == "logs"), None)
    moved = set_aside([damaged], run) if run is not None else []
    return "".join(f" Set aside as '{m}'; start the run again to make it anew." for m in moved)
