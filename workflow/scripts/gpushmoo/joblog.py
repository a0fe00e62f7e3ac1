"""A job's log file: everything a script prints or raises ends there, progress on the terminal."""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO


@contextmanager
def job_log(path: str | Path, expected: tuple[type[Exception], ...] = ()) -> Iterator[TextIO]:
    """Send file descriptors 1 and 2 to `path`; yield the terminal's stderr for progress lines.

    Snakemake leaves ``log:`` empty when a script does not do this, also for output of libraries
    written in C. An exception of the `expected` types is a message to the user: it is said in one
    line on the terminal and ends the process with status 1, without a traceback. Any other one is
    written to the log with its traceback and named on the terminal.
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
            terminal.write(f"gpushmoo: {err}\n")
            terminal.flush()
            sys.stderr.flush()
            os._exit(1)
        except Exception as err:
            traceback.print_exc()
            terminal.write(f"gpushmoo: {type(err).__name__}: {err} (details: {path})\n")
            terminal.flush()
            sys.stderr.flush()
            os._exit(1)
        sys.stdout.flush()
        sys.stderr.flush()
