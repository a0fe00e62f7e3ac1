"""``python -m gpushmoo.interactive.building``: compiles a kernel for `measure`.

Compilers run in forks of this process, on all cores. The caller may be a notebook, with threads
and an open device, which must not be forked.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from ..core.errors import DeviceError
from ..core.paths import child_environment
from ..devices.building import build_kernel
from ..storage.joblog import end_with_parent

# The exit status that goes with a DeviceError's sentence.
_REFUSED = 3


def build_apart(
    params: Mapping[str, Any], cache: Path, out: Path, terminal: TextIO, log_file: Path
) -> None:
    """`build_kernel` in another process, whose compilers print into `log_file`.

    Raises DeviceError when no device or compiler answers.
    """
    with log_file.open("ab") as log:
        done = subprocess.run(
            [sys.executable, "-m", __name__, json.dumps(params), str(cache), str(out)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            env=child_environment(),
            encoding="utf-8",
            errors="replace",
            check=False,
        )
    if done.returncode == _REFUSED:
        raise DeviceError(done.stdout.strip())
    terminal.write(done.stdout)
    if done.returncode:
        raise DeviceError(f"The compiling process ended with status {done.returncode}.")


def _main(params: str, cache: str, out: str) -> int:
    end_with_parent()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    # Compilers print into the log; the caller's pipe gets sentences alone.
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as pipe:
        os.dup2(2, 1)
        asked = json.loads(params)
        try:
            cores = os.cpu_count() or 1
            build_kernel(asked, Path(cache), Path(out), pipe, "the sweep's log", cores)
        except DeviceError as err:
            print(err, file=pipe)
            return _REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
