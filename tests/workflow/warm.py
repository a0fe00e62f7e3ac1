"""Calls of `snakemake` by a process that has imported it already: half of each is imports.

What it imports beforehand are packages; the project's modules are each call's own. All calls share
how Python hashes texts, so that the run at which most of them look is started afresh
(`workflow_fixtures.finished`): an order that depends on hashes shows as a change.
"""

from __future__ import annotations

import atexit
import functools
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

# What every call imports.
PACKAGES = (
    *("snakemake.cli", "snakemake.report.html_reporter", "smart_open", "jsonschema"),
    *("pandas", "pyarrow.parquet"),
)
# Far more than the end takes where no call hangs.
END_S = 60
# What may differ from the environment in which the process was started, and have an effect.
FREE = {"GPUSHMOO_LOCK_DIR"}


def call(
    args: Sequence[str], folder: Path, environment: Mapping[str, str], screen: Path, limit_s: float
) -> int | None:
    """The exit status of ``python -m snakemake`` in `folder`; `screen` becomes its terminal.

    None where the environment asks for a new process. Raises TimeoutError.
    """
    if "PYTHONPATH" in environment:
        return None
    channel, started_in = _server()
    if any(environment.get(k) != started_in.get(k) for k in {*environment, *started_in} - FREE):
        return None
    channel.settimeout(limit_s)
    told = {"args": [*args], "folder": str(folder), "screen": str(screen)}
    told["environment"] = dict(environment)
    channel.sendall(json.dumps(told).encode() + b"\n")
    return int(channel.makefile().readline())


@functools.cache
def _server() -> tuple[socket.socket, dict[str, str]]:
    """The channel to a server, which ends with this process, and the environment it has."""
    ours, theirs = socket.socketpair()
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "SNAKEMAKE"))}
    with theirs:
        process = subprocess.Popen(
            [sys.executable, __file__, str(theirs.fileno())],
            # Else there are threads, which a fork does not take along.
            env={**environment, "OPENBLAS_NUM_THREADS": "1"},
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
    atexit.register(_end, ours, process)
    return ours, environment


def _end(channel: socket.socket, process: subprocess.Popen[bytes]) -> None:
    """Wait for the server, so that its seconds count for the process that has asked for them."""
    channel.close()
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def serve(channel: socket.socket) -> dict[str, Any] | None:
    """Fork for each call and tell its status; what is to be called, and nothing at the end.

    Only forked processes are told what to call.
    """
    for name in PACKAGES:
        importlib.import_module(name)
    with channel, channel.makefile() as asked:
        for line in asked:
            if (child := os.fork()) == 0:
                return dict(json.loads(line))
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            channel.sendall(f"{status}\n".encode())
    return None


def become(told: Mapping[str, Any]) -> None:
    """Run `snakemake` in this process as if it had been started for that."""
    terminal = os.open(told["screen"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(terminal, 1)
    os.dup2(terminal, 2)
    os.close(terminal)
    os.chdir(told["folder"])
    os.environ.clear()
    os.environ.update(told["environment"])
    sys.argv[1:] = told["args"]
    sys.path[0] = told["folder"]
    runpy.run_module("snakemake", run_name="__main__", alter_sys=True)


if __name__ == "__main__" and (told := serve(socket.socket(fileno=int(sys.argv[1])))):
    become(told)
