"""Four hundred silent connections at a server with a low limit of open files: its run completes.

Bounds: no cell.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from colonnade.common.run.json_text import read_lines
from tests.support import warm

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
COUNT = 400
LIMITS = {"raised": (200, 4096), "kept in reserve": (260, 260)}  # soft and hard, of open files

SERVER = """
import asyncio, resource, sys
from pathlib import Path
from colonnade.common.crypto.pki.authority import make_federation
from colonnade.common.crypto.pki.identity import load_identity
from colonnade.common.protocols.split import CONTRACT
from colonnade.common.wire.codec import Codec
from colonnade.server.member.listen import Listener, ServerTls

async def greet(connection, pem):
    pass

async def main():
    folder = Path(sys.argv[1])
    make_federation(folder / "keys", ["ada"])
    server = load_identity(folder / "keys" / "server")
    listener = Listener(Codec(CONTRACT.kinds), 1 << 20, greet)
    port = await listener.start("127.0.0.1:0", ServerTls(server.key_pem, server.chain_pem, server.ca_pem))
    print(port, flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    kept = [open(folder / f"checkpoint-{n}", "wb") for n in range(60)]
    print(len(kept), flush=True)
    await listener.stop()

asyncio.run(main())
"""


def _flood(port: int, stack: ExitStack) -> None:
    for _ in range(COUNT):
        try:
            stack.enter_context(socket.create_connection(("127.0.0.1", port), 5))
        except OSError:  # the queue of the port is full
            time.sleep(0.01)


def test_files_can_be_opened_under_many_silent_connections(tmp_path: Path) -> None:
    with ExitStack() as stack:
        process = stack.enter_context(
            warm.Popen(
                [sys.executable, "-c", SERVER, tmp_path], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, files=(260, 260),
            )
        )  # fmt: skip
        assert process.stdin is not None and process.stdout is not None
        _flood(int(process.stdout.readline()), stack)
        process.stdin.write("go on\n")
        process.stdin.flush()
        assert process.stdout.readline() == "60\n"


@pytest.mark.processes
@pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS)
def test_a_run_completes_with_its_checkpoints(tmp_path: Path, limits: tuple[int, int]) -> None:
    out = tmp_path / "run"
    argv = ["up", ROOT / "experiments" / "demo.yaml", "--out", out]
    for one in ("parties=2", "checkpoint.rounds=10", "epochs=20", "protocol={name: split, embedding: 8}"):
        argv += ["--set", f"federation.{one}"]
    with ExitStack() as stack:
        process = stack.enter_context(warm.start(*argv, cwd=ROOT, stdout=subprocess.DEVNULL, files=limits))
        events = out / "events.jsonl"
        while not (events.exists() and any(event["kind"] == "round" for event in read_lines(events))):
            assert process.poll() is None
            time.sleep(0.05)
        (listening,) = (event for event in read_lines(events) if event["kind"] == "listening")
        _flood(int(str(listening["address"]).rpartition(":")[2]), stack)
        assert process.wait() == 0
    summary = json.loads((out / "summary.json").read_text())
    assert summary["status"] == "completed"
    kinds = [event["kind"] for event in read_lines(events)]
    assert "checkpoint" in kinds and "abandoned" not in kinds
