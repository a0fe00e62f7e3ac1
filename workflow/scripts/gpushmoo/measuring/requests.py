"""A server's end of a client's connection (`client`)."""

from __future__ import annotations

import socket

from .client import LENGTH


def received_request(client: socket.socket) -> tuple[bytes, list[int]] | None:
    """A client's request and the descriptors of its output; None if it has ended."""
    try:
        length, output, _, _ = socket.recv_fds(client, LENGTH, 2)
        request = received(client, int.from_bytes(length, "big"))
    except OSError:
        return None
    return None if request is None else (request, output)


def received(client: socket.socket, length: int) -> bytes | None:
    """The next `length` bytes; None if the client ends before. A signal's byte may follow."""
    request = b""
    while len(request) < length:
        if not (more := client.recv(min(2**16, length - len(request)))):
            return None
        request += more
    return request
