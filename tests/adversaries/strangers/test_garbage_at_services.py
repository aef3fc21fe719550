"""Strangers send garbage to the ports of a service, as plain text and in TLS: its log stays short and it goes on.

Bounds: no cell.
"""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

import pytest

from tests.adversaries.strangers.slow import is_healthy, service

TIMES = 100
GARBAGE = (
    b"\x00" * 50 + b"\r\n\r\n",
    b"GET /\x1b[2J HTTP/1.1\r\nHost: \x1b]0;owned\x07\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"\x16\x03\x01\x00\xff" + b"\xff" * 255,
    b"POST /v1/predict HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes.fromhex("000000040000000000") + b"\xff" * 64,
    b"GET " + b"x" * 9000 + b" HTTP/1.1\r\n\r\n",
)


@pytest.mark.processes
def test_its_log_stays_short(tmp_path: Path) -> None:
    with service(tmp_path, 1024, 1024) as (ports, said):
        for port in ports:
            for words in GARBAGE * (TIMES // len(GARBAGE)):
                with socket.create_connection(("127.0.0.1", port), 20) as line, contextlib.suppress(OSError):
                    line.sendall(words)
                    line.shutdown(socket.SHUT_WR)
                    while line.recv(1 << 16):
                        pass
        assert is_healthy(ports[0])
        assert b"\x1b" not in said.read_bytes() and len(said.read_bytes()) < 5000, said.read_text()[:3000]
