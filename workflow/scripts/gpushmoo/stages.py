"""Stages: the functions that rules call, each done by a job, or by a fork of the run's server.

``python -m gpushmoo.stages FD PARENT`` serves the clients (`measuring.client`) of the listening
socket FD until its parent ends. It imports what stages need once for the whole run: pandas and
Matplotlib take more of a core than most stages do. Each stage runs in a process that the server
forks. Without FD it does the one stage on its standard input.
"""

from __future__ import annotations

import ast
import gc
import inspect
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from .core.errors import UserError
from .measuring.requests import received_request
from .storage.joblog import JobSignalledError, end_with_parent, job_log

# The environment variable that names the server's socket.
STAGE_ADDRESS = "GPUSHMOO_STAGE_SERVER"
# BLAS starts no threads at its import, as a fork would lack them.
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")

Files = Mapping[str, str | list[str]]


@dataclass(frozen=True)
class Stage:
    """A stage in plain values: `call` is ``package.module:function``, `first` the first output.

    The function is given what its parameters are called by: an input or output of the rule, as a
    path or a list of them, a param, or one of the names that `run` adds. If its module has a
    function `prepare_forks`, the server calls it once, with params.
    """

    rule: str
    call: str
    params: Mapping[str, Any]
    inputs: Files
    outputs: Files
    first: str
    log: str
    threads: int

    def request(self) -> bytes | None:
        """The stage as a text of Python's literals; None if a parameter is another object."""
        plain = asdict(self)
        text = repr(plain)
        with suppress(ValueError, SyntaxError):
            if ast.literal_eval(text) == plain:
                return text.encode()
        return None

    def run(self, end: Callable[[int], NoReturn] = os._exit) -> None:
        """Do it here, with all that is printed in its log; a failure ends this process by `end`."""
        with job_log(self.log, (UserError, JobSignalledError), end) as terminal:
            module, _, name = self.call.partition(":")
            function = getattr(import_module(module), name)
            given = {
                **self.params,
                **_paths(self.inputs),
                **_paths(self.outputs),
                "files": _paths(self.inputs),
                "out": Path(self.first),
                "log_file": self.log,
                "terminal": terminal,
                "say": partial(print, f"gpushmoo: {self.rule}:", file=terminal, flush=True),
                "threads": self.threads,
            }
            function(**_taken(function, given))


def _asked(request: bytes) -> Stage:
    """The stage of a `Stage.request`."""
    return Stage(**ast.literal_eval(request.decode()))


def _paths(named: Files) -> dict[str, Path | list[Path]]:
    return {k: Path(v) if isinstance(v, str) else [*map(Path, v)] for k, v in named.items()}


def stage_of(job: Any, rule: str) -> Stage:
    """The stage of a job of `rule`, which Snakemake describes by `job`."""

    def plain(named: Any) -> Files:
        return {k: str(v) if isinstance(v, str) else [*map(str, v)] for k, v in named.items()}

    return Stage(
        rule,
        job.params.call,
        dict(job.params.items()),
        plain(job.input),
        plain(job.output),
        next(iter(job.output), ""),
        job.log[0],
        job.threads,
    )


def serve(listening: socket.socket) -> None:
    """Fork a process for each stage that is asked for, forever."""
    prepared = set()
    while True:
        client, _ = listening.accept()
        with client:
            request = received_request(client)
            if request is None:
                continue
            text, output = request
            stage = _asked(text)
            module = stage.call.partition(":")[0]
            if module not in prepared:
                prepared.add(module)
                _prepare(module, stage)
            # A fork's collections would copy all that is imported.
            gc.freeze()
            server = os.getpid()
            if os.fork() == 0:
                listening.close()
                end_with_parent(server)
                _answer(client, stage, output)
            for descriptor in output:
                os.close(descriptor)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _prepare(module: str, stage: Stage) -> None:
    """Do once what all forks for stages of a module need: its import, and its `prepare_forks`."""
    # The fork reports what is wrong.
    with suppress(Exception, SystemExit):
        prepare = getattr(import_module(module), "prepare_forks", None)
        if prepare is not None:
            prepare(**_taken(prepare, stage.params))


def _taken(function: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """What the parameters of a function are called by."""
    return {n: given[n] for n in inspect.signature(function).parameters if n in given}


def _answer(client: socket.socket, stage: Stage, output: list[int]) -> NoReturn:
    """Do the stage in this process, which then ends, and send its exit status."""
    for number, descriptor in enumerate(output, 1):
        os.dup2(descriptor, number)
        os.close(descriptor)
    threading.Thread(target=_pass_signals, args=(client,), daemon=True).start()

    def end(status: int) -> NoReturn:
        with suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        with suppress(OSError):
            client.sendall(bytes([status]))
        os._exit(status)

    try:
        stage.run(end)
    except KeyboardInterrupt:
        end(128 + signal.SIGINT)
    except BaseException:
        traceback.print_exc()
        end(1)
    end(0)


def _pass_signals(client: socket.socket) -> None:
    """Send this process the signal that the client gets, and SIGTERM when the client ends."""
    number = b""
    with suppress(OSError):
        number = client.recv(1)
    os.kill(os.getpid(), number[0] if number else signal.SIGTERM)


if __name__ == "__main__":
    end_with_parent(*map(int, sys.argv[2:3]))
    if len(sys.argv) > 1:
        serve(socket.socket(fileno=int(sys.argv[1])))
    else:
        _asked(sys.stdin.buffer.read()).run()
