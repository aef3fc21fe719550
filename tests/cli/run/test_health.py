"""The probe and the endpoints of real processes."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from colonnade.common.version import VERSION
from tests.cli.run.test_up import ROOT, UNHURRIED, events, finish, start, wait_for_round, write
from tests.support import warm
from tests.support.watched import read, samples, value

pytestmark = pytest.mark.processes

VIMADMM = {"name": "vimadmm", "embedding": 16}


def probe(*words: str) -> tuple[int, str]:
    words = (*warm.COLONNADE, "health", *words)
    ran = warm.run(words, check=False, cwd=ROOT, capture_output=True, timeout=60)
    assert not ran.stderr
    return ran.returncode, ran.stdout


def test_members_of_a_run_can_be_asked_and_read(tmp_path: Path) -> None:
    file, out = write(tmp_path, VIMADMM, parties=2, epochs=5000), tmp_path / "run"
    asked = [f"{section}.{what}=0" for section in ("server", "every_party") for what in ("metrics", "health")]
    process = start("up", file, "--out", out, *UNHURRIED, *(word for one in asked for word in ("--set", one)))
    try:
        wait_for_round(out, 3, process)
        for home in (out, out / "parties" / "party2"):
            (observed,) = events(home, "observed")
            assert probe(observed["health"]) == probe(observed["health"].rpartition(":")[2]) == (0, "")
            assert probe(observed["health"], "--service", "colonnade") == (0, "")
            shown = samples(read(observed["metrics"]))
            assert value(shown, "colonnade_rounds_total") >= 2
        code, said = probe(observed["health"], "--service", "other")
        assert code == 1 and said.count("\n") == 1 and "knows no service 'other'" in said
    finally:
        process.terminate()
        finish(process)
    code, said = probe(observed["health"])
    assert code == 1 and said == f"{observed['health']}: no answer (unavailable)\n"


def test_silence_is_not_waited_for_long() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        assert probe(address) == (1, f"{address}: no answer within 2 s\n")


def test_the_probe_imports_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['colonnade', 'health', '127.0.0.1:1']\n"
        "from colonnade.cli.start import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print([name for name in ('torch', 'numpy', 'typer', 'rich', 'pydantic', 'yaml') if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == "[]"


def test_other_commands_are_reached_and_list_it() -> None:
    ran = warm.run([*warm.COLONNADE, "--version"], capture_output=True)
    assert ran.stdout == f"colonnade {VERSION}\n"
    ran = warm.run([*warm.COLONNADE, "--help"], capture_output=True)
    assert "health" in ran.stdout and "certs" in ran.stdout


def test_a_port_that_is_taken_ends_a_member_before_it_begins(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port, out = taken.getsockname()[1], tmp_path / "run"
        setting = f"server.metrics={port}"
        process = start("server", write(tmp_path, VIMADMM), "--insecure", "--out", out, "--set", setting)
        output = " ".join(finish(process).split())
    assert process.returncode == 4 and not out.exists()
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in output
    assert "choose another server.metrics" in output
