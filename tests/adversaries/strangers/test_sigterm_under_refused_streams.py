"""Two thousand streams are refused repeatedly: a server asked to end then still says farewell.

Without its bounds on strangers the server ended as well; it does not if it first waits for open streams. The bounds
show in the rate: a connection has one stream at a time, which is refused after a second.

Bounds: no cell.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.flooders import CROWD, CROWDED
from colonnade.common.crypto.pki.authority import make_federation
from colonnade.common.crypto.pki.revocation import RevocationList
from tests.cli.run.test_up import ROOT, events, finish, start, wait_for_round, write
from tests.support.patience import PATIENCE
from tests.support.watched import read, samples, value

pytestmark = pytest.mark.processes

ROUNDS = 3  # times that every connection has been refused, more or less, before the server is asked to end


@contextmanager
def flood(port: str, keys: Path) -> Iterator[subprocess.Popen[str]]:
    """All streams have begun, and begin again for as long as this lasts."""
    words = [sys.executable, "-m", "benchmarks.flooders", "crowd", port, str(keys)]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as flooder:
        try:
            assert flooder.stdout is not None and flooder.stdout.readline() == f"{CROWD}\n"
            yield flooder
        finally:
            flooder.kill()


def refusals(address: str) -> float:
    return value(samples(read(address)), "colonnade_refused_connections_total")


def test_a_server_that_is_asked_to_end_ends_while_the_flood_goes_on(tmp_path: Path) -> None:
    keys, out, revoked = tmp_path / "keys", tmp_path / "run", tmp_path / "revoked.json"
    pins = make_federation(keys, ["ada", "bob", "former"])
    RevocationList.create(revoked).revoke(pins.pop("former"), "left")
    file = write(tmp_path, {"name": "split"}, server=pins.pop("server"), parties=pins)
    own = {"identity": keys / "server", "revoked": revoked, "listen": "127.0.0.1:0", "metrics": 0}
    sets = [word for key, value in own.items() for word in ("--set", f"server.{key}={value}")]
    server = start("server", file, "--out", out, *sets)
    try:
        wait_for_round(out, 1, server, "observed")
        (listening,), (observed,) = events(out, "listening"), events(out, "observed")
        with flood(listening["address"].rpartition(":")[2], keys) as flooder:
            deadline = time.monotonic() + PATIENCE
            while refusals(observed["metrics"]) < ROUNDS * CROWDED:
                assert flooder.poll() is server.poll() is None and time.monotonic() < deadline
                time.sleep(0.05)
            server.terminate()
            output = finish(server)
            assert flooder.poll() is None
    finally:
        server.kill()
    assert server.returncode == 130 and "\ninterrupted\n" in output and "\nfolder " in output, output
    assert json.loads((out / "summary.json").read_text())["status"] == "interrupted"
    assert [event["status"] for event in events(out, "end")] == ["interrupted"]
    refused = events(out, "refused")
    seconds = refused[-1]["time"] - refused[0]["time"]  # by the server's own clock
    # Every connection once at first, and once a second, on a slow machine less often; half of one for the clock.
    assert sum(event.get("count", 1) for event in refused) <= CROWDED * (seconds + 1.5)
