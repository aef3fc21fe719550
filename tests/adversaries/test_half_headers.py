"""300 callers of a service with 128 descriptors say half a header, or nothing: the health check is answered."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.adversaries.slow import HALF_HEADER, is_healthy, service

LIMIT, CALLERS = 128, 300


@pytest.mark.processes
@pytest.mark.parametrize(("door", "words"), [(0, HALF_HEADER), (0, b""), (1, b""), (1, b"\x16\x03"), (2, b"PRI")])
def test_the_health_check_is_answered(tmp_path: Path, door: int, words: bytes) -> None:
    with service(tmp_path, LIMIT, LIMIT) as (ports, said):
        assert is_healthy(ports[0])
        held = []
        try:
            for _ in range(CALLERS):
                held.append(socket.create_connection(("127.0.0.1", ports[door]), 20))
                held[-1].sendall(words)
            assert all(is_healthy(ports[0]) for _ in range(3))
        finally:
            for line in held:
                line.close()
        assert len(said.read_bytes()) < 2000, said.read_text()
