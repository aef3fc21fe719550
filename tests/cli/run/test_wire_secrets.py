"""Contents of a tapped wire without TLS, while tables are aligned and a model is trained."""

from __future__ import annotations

import asyncio
import csv
import hashlib
import itertools
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from tests.cli.run.test_up import finish, start
from tests.support.tables import table_tree, write_tables

PERSONS = 60


class Tap(threading.Thread):
    """Passes bytes on between a port of its own and another, and keeps them."""

    def __init__(self, to: int) -> None:
        super().__init__(daemon=True)
        self._to, self.heard = to, bytearray()
        self._loop = asyncio.new_event_loop()
        self._server = self._loop.run_until_complete(asyncio.start_server(self._connect, "127.0.0.1", 0))
        self.port = self._server.sockets[0].getsockname()[1]

    def run(self) -> None:
        self._loop.run_forever()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self.join()

    async def _connect(self, near: asyncio.StreamReader, out: asyncio.StreamWriter) -> None:
        far, there = await asyncio.open_connection("127.0.0.1", self._to)
        await asyncio.gather(self._pass_on(near, there), self._pass_on(far, out), return_exceptions=True)

    async def _pass_on(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(1 << 16):
            self.heard += data
            sink.write(data)
            await sink.drain()
        sink.close()


@contextmanager
def tapped(to: int) -> Iterator[Tap]:
    tap = Tap(to)
    tap.start()
    try:
        yield tap
    finally:
        tap.stop()


@pytest.fixture(scope="module")
def heard(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, Path]:
    """All bytes on the connections of a run of two parties, and the folder with its tables."""
    folder = tmp_path_factory.mktemp("wire")
    write_tables(folder, persons=PERSONS)
    tree = table_tree(epochs=2, batch=16)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = {**tree["server"], "listen": f"127.0.0.1:{port}"}
    (folder / "server.yaml").write_text(yaml.safe_dump({"federation": tree["federation"], "server": server}))
    with tapped(port) as tap:
        processes = [start("server", folder / "server.yaml", "--out", folder / "server", "--insecure")]
        for name, own in tree["parties"].items():
            party = {name: {**own, "connect": f"127.0.0.1:{tap.port}"}}
            file = folder / f"{name}.yaml"
            file.write_text(yaml.safe_dump({"federation": tree["federation"], "parties": party}))
            processes.append(start("client", file, "--out", folder / name, "--insecure"))
        for process in processes:
            said = finish(process)
            assert process.returncode == 0, said
        return bytes(tap.heard), folder


def rows_of(folder: Path, member: str) -> list[list[str]]:
    with (folder / f"{member}.csv").open(newline="") as lines:
        return list(csv.reader(lines))[1:]


@pytest.mark.processes
def test_the_tap_records_the_messages(heard: tuple[bytes, Path]) -> None:
    wire, _ = heard
    assert b"Census" in wire and b"Points" in wire and b"Gradient" in wire
    assert wire.count(b"party1") > 1


@pytest.mark.processes
def test_no_key_crosses_the_wire_nor_anything_that_a_list_of_names_would_tell(heard: tuple[bytes, Path]) -> None:
    wire, folder = heard
    for member in ("server", "party1", "party2"):
        for key, *_ in rows_of(folder, member):
            said = key.encode()
            guesses = [said]
            for name in ("md5", "sha1", "sha256", "sha512", "blake2b"):
                digest = hashlib.new(name, said)
                guesses += [digest.digest()[:16], digest.hexdigest().encode()[:32]]
            for guess in guesses:
                assert guess not in wire


@pytest.mark.processes
def test_no_value_of_a_feature_crosses_the_wire(heard: tuple[bytes, Path]) -> None:
    wire, folder = heard
    for member in ("party1", "party2"):
        for _, *cells in rows_of(folder, member):
            values = [float(cell) for cell in cells]
            for cell, value in zip(cells, values, strict=True):
                assert cell.encode() not in wire and struct.pack("<d", value) not in wire
            for pair in itertools.pairwise(values):
                assert struct.pack("<ff", *pair) not in wire
