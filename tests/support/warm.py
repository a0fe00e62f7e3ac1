"""A Python that has imported packages already: most of what a short call takes, its end the rest.

A server forks for each call; the project's modules are each call's own, and so are the jobs of
`snakemake`, which are calls, too. The servers that a run starts are forks of its own process. All
share how Python hashes texts, so that the run at which most tests look is started afresh
(`workflow_fixtures.finished`): an order that depends on hashes shows as a change.
"""

import atexit
import functools
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

# What calls import.
PACKAGES = (
    "snakemake.cli",
    "snakemake.report.html_reporter",
    "snakemake.script",
    "smart_open",
    "jsonschema",
    "pandas",
    "pyarrow.parquet",
    "scipy.stats",
    "seaborn",
    "numba",
    "typst",
)
# Servers of a run: they are forks of its Snakemake, which has imported the same.
SERVERS = ("gpushmoo.stages", "gpushmoo.measuring.job")
# Far more than the end takes where no call hangs.
END_S = 60
# What may differ from the environment in which the server was started, and have an effect.
FREE = {"GPUSHMOO_LOCK_DIR"}
# OpenCL's variables as they were before a test opened a device, which sets them in this process.
# With these no call would have the environment in which the server was started.
OF_A_DEVICE = ("DPCPP_", "OCL_", "POCL_", "PYOPENCL_", "XDG_CACHE_HOME")
BEFORE = {k: v for k, v in os.environ.items() if k.startswith(OF_A_DEVICE)}


def inherited() -> dict[str, str]:
    """The environment of a call: without what would change it."""
    left_out = ("PYTEST", "SNAKEMAKE", *OF_A_DEVICE)
    return {k: v for k, v in os.environ.items() if not k.startswith(left_out)} | BEFORE


def call(
    args: Sequence[str], folder: Path, environment: Mapping[str, str], screen: Path, limit_s: float
) -> int | None:
    """The exit status of ``python ARGS`` in `folder`; `screen` becomes its terminal.

    None where the environment asks for a new process. Raises TimeoutError.
    """
    # Its modules may stand in for packages.
    if "PYTHONPATH" in environment:
        return None
    address, started_in = _server()
    if any(environment.get(k) != started_in.get(k) for k in {*environment, *started_in} - FREE):
        return None
    with screen.open("wb") as out, open(os.devnull) as none:
        terminal = [none.fileno(), out.fileno(), out.fileno()]
        return ask(address, args, str(folder), environment, terminal, limit_s)


def programs(folder: Path) -> None:
    """Write `python`, `gpushmoo` and `snakemake` that are such calls to `folder`."""
    folder.mkdir(parents=True)
    words = f"{sys.executable} -I -S {__file__} {_server()[0]}"
    for name in ("python", "gpushmoo", "snakemake"):
        script = "" if name == "python" else Path(sys.executable).with_name(name)
        (folder / name).write_text(f'#!/bin/sh\nexec {words} {script} "$@"\n')
        (folder / name).chmod(0o755)


@functools.cache
def _server() -> tuple[str, dict[str, str]]:
    """The address of a server, which ends with this process, and the environment it has."""
    address = f"{tempfile.mkdtemp()}/calls"
    environment = inherited()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(address)
        listener.listen()
        process = subprocess.Popen(
            [sys.executable, __file__, address],
            # Else there are threads, which a fork does not take along.
            env={**environment, "OPENBLAS_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=listener,
            start_new_session=True,
        )
    atexit.register(_end, process, address)
    return address, environment


def _end(process: subprocess.Popen[bytes], address: str) -> None:
    """Wait for the server, so that its seconds count for the process that has asked for them."""
    try:
        process.communicate(timeout=END_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    os.unlink(address)
    os.rmdir(os.path.dirname(address))


def serve(listener: socket.socket) -> dict[str, object] | None:
    """Fork for each call and tell its status; the call in its process, and None at the end."""
    for name in PACKAGES:
        importlib.import_module(name)
    gc.freeze()
    calls: dict[int, tuple[int, socket.socket]] = {}
    while True:
        ready, _, _ = select.select([listener, sys.stdin, *calls], [], [])
        for ended in calls.keys() & set(ready):
            child, caller = calls.pop(ended)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            os.close(ended)
            with caller:
                # As a shell says it.
                caller.sendall(str(status if status >= 0 else 128 - status).encode())
        if listener in ready:
            caller, _ = listener.accept()
            told, terminal, _, _ = socket.recv_fds(caller, 1 << 20, 3)
            if (child := os.fork()) == 0:
                for number, descriptor in enumerate(terminal):
                    os.dup2(descriptor, number)
                return dict(json.loads(told))
            for descriptor in terminal:
                os.close(descriptor)
            calls[os.pidfd_open(child)] = child, caller
        elif sys.stdin in ready:
            return None


def ask(
    address: str,
    args: Sequence[str],
    folder: str,
    environment: Mapping[str, str],
    terminal: Sequence[int] = (0, 1, 2),
    limit_s: float | None = None,
) -> int:
    """The status of a call that the server at `address` does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.settimeout(limit_s)
        server.connect(address)
        told = {"args": [*args], "folder": folder, "environment": {**environment}}
        socket.send_fds(server, [json.dumps(told).encode()], terminal)
        return int(server.recv(9) or 1)


def become(args: list[str], folder: str, environment: dict[str, str]) -> None:
    """Do in this process what ``python ARGS`` does."""
    snakemake = sys.modules["snakemake.script"]
    address = sys.argv[1]
    job = f"{sys.executable} -I -S {__file__} {address} {{fname:q}}"
    snakemake.PythonScript.execute_script = lambda script, fname, edit=False: script._execute_cmd(
        job, fname=fname
    )
    subprocess.Popen = Popen  # type: ignore[misc]
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    first = {"-m": folder, "-c": ""}.get(args[0], os.path.dirname(args[0]))
    paths = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    sys.path[:1] = [first, *paths]
    sys.argv[:] = args[1:] if args[0] == "-m" else args
    if args[0] == "-m":
        end_after(lambda: runpy.run_module(args[1], run_name="__main__", alter_sys=True))
    elif args[0] == "-c":
        del sys.argv[1]
        end_after(lambda: exec(compile(args[1], "<string>", "exec"), {"__name__": "__main__"}))
    else:
        end_after(lambda: runpy.run_path(args[0], run_name="__main__"))


class Popen(subprocess.Popen):  # type: ignore[type-arg]
    """As its base, but for SERVERS, which begin with all that this process has imported."""

    def __init__(self, args: Sequence[str], *rest: object, **how: object) -> None:
        if args[1] != "-m" or args[2] not in SERVERS:
            super().__init__(args, *rest, **how)  # type: ignore[call-overload]
            return
        self.args = args
        self.returncode = None
        self._waitpid_lock = threading.Lock()
        self.stdin = None
        self.stdout = None
        self.stderr = None
        self.pid = os.fork()
        self._child_created = True
        if self.pid == 0:
            serve_run(args, how["env"])  # type: ignore[arg-type]


def serve_run(args: Sequence[str], environment: Mapping[str, str]) -> None:
    """Become a server of a run: it ends with the process that has forked this one."""
    atexit._clear()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv[:] = args[2:]
    # The module is imported already.
    warnings.simplefilter("ignore", RuntimeWarning)
    end_after(lambda: runpy.run_module(args[2], run_name="__main__", alter_sys=True))


def end_after(work: Callable[[], object]) -> None:
    """Do `work` and end as Python does, but for objects: to free all imported ones takes long."""
    status = 0
    try:
        work()
    except SystemExit as err:
        status = err.code if isinstance(err.code, int) else int(err.code is not None)
        if isinstance(err.code, str):
            print(err.code, file=sys.stderr)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        status = 1
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    if sys.argv[2:]:
        sys.exit(ask(sys.argv[1], sys.argv[2:], os.getcwd(), os.environ))
    if told := serve(socket.socket(fileno=os.dup(1))):
        become(**told)
