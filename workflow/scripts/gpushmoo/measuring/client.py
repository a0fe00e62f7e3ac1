"""Let a server of the run do a job: ``python client.py MODULE ADDRESS [KEY=VALUE ...]``.

The environment variable ADDRESS names the server's socket. The job is read from the standard input.
If there are keys, the job is JSON, and they are added to it. Without a server, as on a cluster's
node, or if the server ends before the job is done, this process becomes ``python -m MODULE`` with
the job as its standard input. The client imports nothing of the library, so that it starts in
milliseconds.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from contextlib import suppress

# The variable of the measuring server.
ADDRESS = "GPUSHMOO_MEASURING_SERVER"
# Bytes of the length before a request.
LENGTH = 8
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def served(address: str, request: bytes) -> int | None:
    """Let a server do a job, and return the exit status, or None if the server did not finish it.

    The first signal that ends the job is passed on to the server. The second one ends this process.
    After a signal the status is never None, so the job is not done again.

    Parameters
    ----------
    address
        Path of the server's socket.
    request
        The job.
    """
    passed: list[int] = []

    def pass_on(number: int, _: object) -> None:
        passed.append(number)
        _tell(server, number)

    with socket.socket(socket.AF_UNIX) as server:
        try:
            server.connect(address)
            length = len(request).to_bytes(LENGTH, "big")
            socket.send_fds(server, [length], [1, 2])
            server.sendall(request)
            # Only now: a signal's byte must not become a part of the request.
            for number in _ENDING:
                if signal.getsignal(number) is not signal.SIG_IGN:
                    signal.signal(number, pass_on)
            status = server.recv(1)
        except OSError:
            status = b""
        if status:
            return status[0]
        return 128 + passed[0] if passed else None


def _tell(server: socket.socket, number: int) -> None:
    for ending in _ENDING:
        signal.signal(ending, signal.SIG_DFL)
    with suppress(OSError):
        server.send(bytes([number]))


def main() -> None:
    """Do the job that the arguments and the standard input of this process describe."""
    parent = os.getppid()
    _, module, variable, *words = sys.argv
    request = sys.stdin.buffer.read()
    if words:
        import json

        job = {**json.loads(request), **dict(word.split("=", 1) for word in words)}
        request = json.dumps(job).encode()
    if address := os.environ.get(variable):
        status = served(address, request)
        if status is not None or os.getppid() != parent:
            sys.exit(1 if status is None else status)
        for number in _ENDING:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
    import tempfile  # seldom needed, and as slow as all the rest

    with tempfile.TemporaryFile() as file:
        file.write(request)
        file.seek(0)
        os.dup2(file.fileno(), 0)
    library = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    paths = filter(None, [library, os.environ.get("PYTHONPATH")])
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    os.execv(sys.executable, [sys.executable, "-m", module])


if __name__ == "__main__":
    main()
