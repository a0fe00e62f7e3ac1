"""Receive requests of clients (`client`) in a server."""

from __future__ import annotations

import socket

from .client import LENGTH


def received_request(client: socket.socket) -> tuple[bytes, list[int]] | None:
    """Return a client's request, and the descriptors of its standard output and error.

    The result is None if the client has ended.
    """
    try:
        length, output, _, _ = socket.recv_fds(client, LENGTH, 2)
        request = received(client, int.from_bytes(length, "big"))
    except OSError:
        return None
    return None if request is None else (request, output)


def received(client: socket.socket, length: int) -> bytes | None:
    """Return the next `length` bytes of a client, or None if it ends before.

    The byte of a signal may follow. It is not read.
    """
    request = b""
    while len(request) < length:
        if not (more := client.recv(min(2**16, length - len(request)))):
            return None
        request += more
    return request
