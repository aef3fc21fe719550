"""A tiny HTTP proxy: answers CONNECT, and prints requests and responses."""

from __future__ import annotations

import socket
import sys
import threading
from contextlib import suppress


def serve(address: str, port: int) -> None:
    """Serves until killed."""
    with socket.create_server((address, port)) as listening:
        while True:
            threading.Thread(target=_handle, args=(listening.accept()[0],), daemon=True).start()


def _handle(near: socket.socket) -> None:
    with near, suppress(OSError):
        asked = near.recv(4096).decode("latin-1").split()
        host, _, port = asked[1].rpartition(":")
        try:
            far = socket.create_connection((host.strip("[]"), int(port)), 5)
        except OSError:
            print(*asked[:2], 502, flush=True)
            near.sendall(b"HTTP/1.1 502 Bad Gateway\r\n\r\n")
            return
        print(*asked[:2], 200, flush=True)
        near.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        far.settimeout(None)
        with far:
            threading.Thread(target=_copy, args=(far, near), daemon=True).start()
            _copy(near, far)


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
