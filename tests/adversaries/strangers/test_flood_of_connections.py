"""Hundreds of plain connections at the real port: few lines in events.jsonl and in the log, and all of them counted.

Bounds: no cell.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path

import pytest

from colonnade.common.crypto.pki.authority import make_federation
from colonnade.server.member.listen import sift
from tests.support import warm

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
COUNT = 400

SERVER = """
import asyncio, socket, sys
from pathlib import Path
from colonnade.common.crypto.pki.identity import load_identity
from colonnade.common.protocols.split import CONTRACT
from colonnade.common.observability.telemetry import Telemetry
from colonnade.common.wire.codec import Codec
from colonnade.server.member.listen import Listener, ServerTls
from colonnade.server.member.listen import watch_handshakes

folder, count = Path(sys.argv[1]), int(sys.argv[2])
server = load_identity(folder / "server")

async def greet(connection, pem):
    connection.attach(lambda parcel: None, lambda error: None)

def come(port):
    with socket.create_connection(("127.0.0.1", port), 20) as plain:
        plain.sendall(b"GET / HTTP/1.1\\r\\n\\r\\n")
        while plain.recv(100):
            pass

async def main():
    all_told, told = asyncio.Event(), []
    def hear(event):
        told.append(event)
        if len(told) == count:
            all_told.set()
    telemetry = Telemetry(folder / "events.jsonl", hear)
    with watch_handshakes(lambda reason: telemetry.refused("unknown", reason)):
        listener = Listener(Codec(CONTRACT.kinds), 1 << 20, greet)
        port = await listener.start("127.0.0.1:0", ServerTls(server.key_pem, server.chain_pem, server.ca_pem))
        for _ in range(count // 20):
            await asyncio.gather(*(asyncio.to_thread(come, port) for _ in range(20)))
        await asyncio.wait_for(all_told.wait(), 30)
        await listener.stop()
    telemetry.close()

asyncio.run(main())
"""


def test_they_are_few_lines_and_all_counted(tmp_path: Path) -> None:
    make_federation(tmp_path, ["ada"])
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GRPC_")}
    done = warm.run(
        [sys.executable, "-c", SERVER, str(tmp_path), str(COUNT)], cwd=ROOT,
        env={**environment, "GRPC_VERBOSITY": "INFO", "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    written = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert sum(event.get("count", 1) for event in written) == COUNT
    assert len(written) <= 20 + 3 and len(done.stderr) < 1000  # one count per minute, if it takes that long


def test_other_grpc_output_is_bounded_and_foreign_lines_pass() -> None:
    (source, sink), (kept, through) = os.pipe(), os.pipe()
    logged: list[str] = []
    reader = threading.Thread(target=sift, args=(source, through, logged.append))
    reader.start()
    with os.fdopen(sink, "wb") as log:
        for number in range(300):
            log.write(b"E1123 01:44:39.096100   11778 tcp_server_posix.cc:310] Failed accept4: Too many open files\n")
            log.write(b"a line of ours, %d\n" % number)
    with os.fdopen(kept, "rb") as heard:
        lines = heard.read().decode().splitlines()
    reader.join()
    grpc = [line for line in lines if "accept4" in line]
    assert len(grpc) == 21 and grpc[-1].startswith("280 more: ") and not logged
    assert [line for line in lines if line not in grpc] == [f"a line of ours, {number}" for number in range(300)]
