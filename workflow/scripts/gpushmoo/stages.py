"""Run scripts of rules, each in a fork of a process that has imported the needed modules.

``python -m gpushmoo.stages FD PARENT JOBS NUMBER`` serves the clients (`measuring.client`) of the
listening socket FD until its parent ends. A client sends the path of a script as Snakemake wrote
it. Importing pandas and Matplotlib takes longer than most scripts, so the server imports the
modules of a script, and a fork of it runs the script. JOBS is a JSON file. If its value
``compiler`` is not null, it names the compiler that `prepare_forks` prepares. Without FD, this
process runs the one script on its standard input.
"""

from __future__ import annotations

import ast
import gc
import json
import os
import runpy
import signal
import socket
import sys
import threading
import traceback
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from .devices.building import prepare_forks
from .measuring.requests import received_request
from .storage.joblog import end_with_parent

# Request of a client to run a script.
STAGES = "gpushmoo.stages"
# Environment variable with the name of the server's socket.
STAGE_ADDRESS = "GPUSHMOO_STAGE_SERVER"
# BLAS must not start threads at its import, because a fork would lack them.
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def serve(listening: socket.socket) -> None:
    """Fork a process for each script that a client sends, forever."""
    while True:
        client, _ = listening.accept()
        with client:
            request = received_request(client)
            if request is None:
                continue
            script, output = _script(request[0]), request[1]
            import_modules(script)
            # A garbage collection in a fork would copy all imported objects.
            gc.freeze()
            server = os.getpid()
            if os.fork() == 0:
                listening.close()
                end_with_parent(server)
                _answer(client, script, output)
            for descriptor in output:
                os.close(descriptor)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _script(request: bytes) -> Path:
    return Path(os.fsdecode(request.rstrip(b"\n")))


def import_modules(script: Path) -> None:
    """Import the modules that a script imports at its top; its own job reports failures."""
    with suppress(Exception, SystemExit):
        for node in ast.parse(script.read_bytes()).body:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    import_module(alias.name)
            elif isinstance(node, ast.ImportFrom) and node.module:
                import_module(node.module)


def _answer(client: socket.socket, script: Path, output: list[int]) -> NoReturn:
    """Run a script in a child of this process, and send its exit status unless a signal ends it."""
    watching = os.getpid()
    child = os.fork()
    if child == 0:
        client.close()
        end_with_parent(watching)
        _run(script, output)
    threading.Thread(target=_pass_signals, args=(client, child), daemon=True).start()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status >= 0:
        with suppress(OSError):
            client.sendall(bytes([status]))
    os._exit(0)


def _run(script: Path, output: list[int]) -> NoReturn:
    """Run a script in this process, and end as a Python process that runs it would."""
    for number, descriptor in enumerate(output, 1):
        os.dup2(descriptor, number)
        os.close(descriptor)
    status = 0
    try:
        runpy.run_path(str(script), run_name="__main__")
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except KeyboardInterrupt:
        status = 128 + signal.SIGINT
    except BaseException:
        traceback.print_exc()
        status = 1
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)


def _pass_signals(client: socket.socket, child: int) -> None:
    """Forward signals of the client to the child, and send SIGTERM when the client ends."""
    number = b""
    with suppress(OSError):
        number = client.recv(1)
    # The client also ends when it receives the status of the child.
    with suppress(ProcessLookupError):
        os.kill(child, number[0] if number else signal.SIGTERM)


def _prepare(jobs: Path) -> None:
    """Prepare forks for the compiler that the file `jobs` names, if it names one."""
    compiler = json.loads(jobs.read_text(encoding="utf-8"))["compiler"]
    # The fork reports errors.
    with suppress(Exception, SystemExit):
        if compiler is not None:
            prepare_forks(**compiler)


if __name__ == "__main__":
    end_with_parent(*map(int, sys.argv[2:3]))
    if len(sys.argv) > 1:
        _prepare(Path(sys.argv[3]))
        serve(socket.socket(fileno=int(sys.argv[1])))
    else:
        runpy.run_path(str(_script(sys.stdin.buffer.read())), run_name="__main__")
