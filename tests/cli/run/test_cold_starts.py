"""Starts that import everything themselves, as a user's do: other tests fork from a process with the imports."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.run.test_up import ROOT, events, finish, start, write
from tests.support.patience import PATIENCE

pytestmark = pytest.mark.processes


def cold(*argv: object) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "colonnade", *map(str, argv)]
    return subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_a_member_that_is_started_plainly_takes_part(tmp_path: Path) -> None:
    file = write(tmp_path, {"name": "split"}, parties=2, rounds=3, epochs=0)
    address, homes = tmp_path / "address", [tmp_path / f"party{number}" for number in range(1, 3)]
    server = cold("server", file, "--out", tmp_path / "server", "--insecure")
    members = [server]
    try:
        deadline = time.monotonic() + PATIENCE
        while not (found := events(tmp_path / "server", "listening")):
            assert server.poll() is None and time.monotonic() < deadline, server.communicate()[0]
            time.sleep(0.05)
        address.write_text(found[0]["address"])
        for home in homes:
            where = ("--party", home.name, "--out", home, "--server-file", address)
            members.append(start("client", file, *where, "--insecure"))
        outputs = [finish(member) for member in members]
    finally:
        for member in members:
            member.kill()
    assert [member.returncode for member in members] == [0] * 3, outputs
    assert [event["round"] for event in events(tmp_path / "server", "round")] == [1, 2, 3]
