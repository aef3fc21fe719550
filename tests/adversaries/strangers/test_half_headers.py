"""300 callers of a service with 128 descriptors send half a header, or nothing: the health check is answered.

Bounds: no cell.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.adversaries.strangers.slow import HALF_HEADER, is_healthy, service

LIMIT, CALLERS = 128, 300


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[list[int], Path]]:
    """A service's ports and its log; callers connect to one port after the other."""
    with service(tmp_path_factory.mktemp("served"), LIMIT, LIMIT) as ports_and_said:
        yield ports_and_said


@pytest.mark.processes
@pytest.mark.parametrize(("door", "words"), [(0, HALF_HEADER), (0, b""), (1, b""), (1, b"\x16\x03"), (2, b"PRI")])
def test_the_health_check_is_answered(served: tuple[list[int], Path], door: int, words: bytes) -> None:
    ports, said = served
    assert is_healthy(ports[0])
    held, before = [], said.stat().st_size
    try:
        for _ in range(CALLERS):
            held.append(socket.create_connection(("127.0.0.1", ports[door]), 20))
            held[-1].sendall(words)
        assert all(is_healthy(ports[0]) for _ in range(3))
    finally:
        for line in held:
            line.close()
    assert said.stat().st_size - before < 2000, said.read_text()
