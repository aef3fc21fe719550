"""Strangers at the server's port, for some seconds."""

from __future__ import annotations

import contextlib
import random
import socket
import ssl
import subprocess
import sys
import time
from collections import deque
from pathlib import Path

from benchmarks.runs import ROOT

RATE, SILENT = 20, 60  # connections a second; concurrent silent connections
_PLAIN = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"
_TLS = b"\x16\x03\x01\x02\x00\x01"  # a record that begins like a ClientHello


def knock(kind: str, port: int, keys: Path, seconds: float) -> int:
    """Knocks for some seconds; returns how often, or 0 where another process does it.

    Args:
        keys: folder of all members' keys, and those of `foreign` and `former`.
    """
    if kind in ("revoked", "hellos"):
        _flooder(kind, port, keys, seconds)
        return 0
    until, held, count = time.monotonic() + seconds, deque[socket.socket](), 0
    draws = random.Random(port)
    while time.monotonic() < until:
        with contextlib.suppress(OSError):
            held.append(_one(kind, port, keys, draws))
            count += 1
        while len(held) > SILENT:
            held.popleft().close()
        time.sleep(1 / RATE)
    for connection in held:
        connection.close()
    return count


def _one(kind: str, port: int, keys: Path, draws: random.Random) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), 5)
    if kind == "plain":
        connection.sendall(_PLAIN)
    elif kind == "garbage":
        connection.sendall((_TLS if draws.random() < 0.5 else b"") + draws.randbytes(2000))
    elif kind == "foreign":
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.load_cert_chain(keys / "foreign" / "cert.pem", keys / "foreign" / "key.pem")
        secured = context.wrap_socket(connection, server_hostname="localhost")
        secured.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9))
        return secured
    return connection


def _flooder(kind: str, port: int, keys: Path, seconds: float) -> None:
    argv = [sys.executable, "-m", "benchmarks.flooders", kind, str(port), str(keys)]
    with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as flooder:
        time.sleep(seconds + 1)  # it takes a moment to start
        flooder.kill()
