"""Whole federations as a user starts them: real processes, gRPC, mutual TLS."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from colonnade.common.crypto.pki.authority import make_federation
from colonnade.common.parsing.file import load
from tests.support import warm
from tests.support.federation import config, federate, tree
from tests.support.household import colonnade, household
from tests.support.patience import PATIENCE

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[3]
SUMMARY = {
    "schema", "status", "error", "hint", "federation", "protocol", "dataset", "parties", "rows", "rows_hash", "rounds",
    "seconds", "seconds_to_first_round",
    "metrics", "best", "model", "stopped", "bytes", "epsilon", "delta", "person", "privacy", "label_privacy",
    "answer_privacy", "details", "classes", "warning", "fallen", "decision", "forest",
    "targets", "theorem", "pace", "absent", "back_offs", "missing", "late", "start", "environment", "timeline",
}  # fmt: skip


def write(folder: Path, protocol: dict, **federation: object) -> Path:
    path = folder / "federation.yaml"
    path.write_text(yaml.safe_dump(tree(protocol, **federation)))
    return path


UNHURRIED = ("--chaos", "every_party: delay=50ms")  # for runs that are only to be there while others are tried


def start(*argv: object) -> subprocess.Popen[str]:
    return warm.start(*argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def finish(process: subprocess.Popen[str]) -> str:
    output, _ = process.communicate(timeout=PATIENCE)
    return output


def events(out: Path, kind: str) -> list[dict]:
    path = out / "events.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [event for event in map(json.loads, lines) if event["kind"] == kind]


def wait_for_round(out: Path, number: int, process: subprocess.Popen[str], kind: str = "round") -> None:
    deadline = time.monotonic() + PATIENCE
    while len(events(out, kind)) < number:
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()[0]
        time.sleep(0.05)


def processes_of(process: subprocess.Popen[str]) -> dict[str, psutil.Process]:
    """The members' processes by name: the party's folder is in its command's arguments, the log's path in its files."""
    members = {}
    for child in psutil.Process(process.pid).children(recursive=True):
        for file in child.open_files():
            path = Path(file.path)
            if path.name == "server.log":
                members["server"] = child
            elif path.name == "log.txt":
                members[path.parent.name] = child
    return members


def assert_as_simulated(file: Path, out: Path, output: str) -> None:
    """Equal losses to the last bit, and everything that a run leaves behind."""
    cfg = load(file)
    together, protocol = federate(cfg), cfg.federation.protocol
    agree = protocol.name in ("fedvs", "vfedmh") or getattr(protocol, "aggregate", "") == "blinded"
    signed = 1000 if agree else 0  # bytes of a certificate and a signature, which a virtual clock does not have
    assert [e["loss"] for e in events(out, "round")] == [e["loss"] for e in together.of_kind("round")]
    summary = summary_of(out)
    assert set(summary) == SUMMARY and (summary["schema"], summary["status"]) == (1, "completed")
    assert summary["metrics"] == together.server.metrics
    for name, party in summary["bytes"]["parties"].items():
        sent = sum(_payload(m) for sender, _, m in together.messages if sender == name)
        received = sum(_payload(m) for _, to, m in together.messages if to == name)
        up, down = party["up"]["payload"], party["down"]["payload"]
        assert sent <= up <= sent + signed and received <= down <= received + 5 * signed
        assert up < party["up"]["wire"] < up * 1.005 + 300 * len(together.messages)
        ledger = map(json.loads, (out / "parties" / name / "ledger.jsonl").read_text().splitlines())
        assert sum(line.get("bytes", 0) for line in ledger) == up
    assert not list(out.rglob("key.pem")) and "\nfolder " in output and "test accuracy" in output
    assert "BEGIN" not in (out / "config.yaml").read_text()


def summary_of(out: Path) -> dict[str, Any]:
    """Files of a run that describe how it went."""
    return dict(json.loads((out / "summary.json").read_text()))


def test_noised_and_compressed_they_learn_the_same_too(tmp_path: Path) -> None:
    protocol = {"name": "vimadmm", "embedding": 16}
    more = {"privacy": {"clip": 1.0, "noise_multiplier": 5.0, "seeded": True}, "compress": {"up": 4, "down": 16}}
    file, out = write(tmp_path, protocol, **more), tmp_path / "run"
    code, output = colonnade("up", file, "--out", out)
    assert code == 0, output
    sets = ("federation.privacy={clip: 1, noise_multiplier: 5, seeded: true}", "federation.compress={up: 4, down: 16}")
    together = federate(config(protocol, *sets))
    assert [e["loss"] for e in events(out, "round")] == [e["loss"] for e in together.of_kind("round")]
    summary = summary_of(out)
    assert summary["metrics"] == together.server.metrics
    assert summary["bytes"]["up"]["payload"] == sum(_payload(m) for s, _, m in together.messages if s != "server")
    assert summary["privacy"]["releases"] == {name: p.releases for name, p in together.privacy.items()}
    assert "no guarantee: noise was drawn from the federation's seed" in " ".join(output.split())
    assert all(
        "sigma=5 delta=1e-05 replace seeded, 4 bits" in line
        for line in (out / "parties" / "party1" / "ledger.jsonl").read_text().splitlines()
        if "control" not in json.loads(line)
    )


def test_a_finished_run_that_is_looked_at_again_keeps_its_epsilon(tmp_path: Path) -> None:
    """After a resumption with more rounds, earlier releases count with their own noise."""
    more = {"privacy": {"clip": 1.0, "epsilon": 8.0}}
    file, out = write(tmp_path, {"name": "vimadmm", "embedding": 16}, rounds=6, epochs=0, **more), tmp_path / "run"
    code, output = colonnade("up", file, "--out", out)
    assert code == 0, output
    before = summary_of(out)
    assert 7.9 < max(before["epsilon"].values()) <= 8
    colonnade("up", "--resume", out)
    again = summary_of(out)
    assert (again["epsilon"], again["status"]) == (before["epsilon"], "completed")
    code, said = colonnade("up", "--resume", out, "--set", "federation.rounds=30")
    assert code != 0 and "pays for at most 6 rounds" in " ".join(said.split())
    longer = summary_of(out)  # there was no further round: the run is unchanged
    assert (longer["epsilon"], longer["status"]) == (before["epsilon"], "completed")


def test_secure_noise_is_paid_for_before_it_leaves(tmp_path: Path) -> None:
    more = {"privacy": {"clip": 1.0, "noise_multiplier": 25.0, "epsilon": 1.0}}
    file, out = write(tmp_path, {"name": "vimadmm", "embedding": 16}, epochs=100, **more), tmp_path / "run"
    code, output = colonnade("up", file, "--out", out)
    assert code == 0, output
    summary = summary_of(out)
    assert 0.95 < max(summary["epsilon"].values()) <= 1.0 and summary["delta"] == 1e-5
    assert summary["status"] == "completed" and summary["rounds"] < 200  # of 600
    for name, releases in summary["privacy"]["releases"].items():
        lines = [json.loads(line) for line in (out / "parties" / name / "ledger.jsonl").read_text().splitlines()]
        assert "reserved" in next(line for line in lines if "control" not in line)
        assert sum(line.get("mechanism", "").startswith("gaussian") for line in lines) == releases
        assert sum(line.get("reserved", 0) - line.get("returned", 0) for line in lines) == releases


def _payload(message: object) -> int:
    from colonnade.common.messaging.message import Message, payload_bytes

    assert isinstance(message, Message)
    return payload_bytes(message)


def test_ctrl_c_stops_everyone_and_leaves_a_valid_summary(tmp_path: Path) -> None:
    file, out = write(tmp_path, {"name": "vimadmm"}, parties=2, epochs=500), tmp_path / "run"
    process = start("up", file, "--out", out, *UNHURRIED)
    wait_for_round(out, 3, process)
    members = processes_of(process)
    process.send_signal(signal.SIGINT)
    output = finish(process)
    assert process.returncode == 130 and "Traceback" not in output
    summary = summary_of(out)
    assert summary["status"] == "interrupted" and summary["rounds"] >= 3
    assert len(members) == 3 and not any(member.is_running() for member in members.values())


def test_a_killed_party_that_may_not_be_started_again_is_named_first_and_ends_the_run(tmp_path: Path) -> None:
    file, out = write(tmp_path, {"name": "vimadmm"}, parties=2, epochs=500), tmp_path / "run"
    process = start("up", file, "--out", out, *UNHURRIED, "--set", "launch.restarts=0")
    wait_for_round(out, 3, process)
    members = processes_of(process)
    members["party2"].kill()
    output = finish(process)
    assert process.returncode == 1
    errors = [line for line in output.splitlines() if "error:" in line]
    assert errors == ["error: party2: was killed by SIGKILL"]
    assert summary_of(out)["status"] == "interrupted"
    assert f"colonnade up --resume {out}" in output
    assert not any(member.is_running() for member in members.values())


def test_a_party_that_crashes_is_named_with_its_own_error(tmp_path: Path) -> None:
    (tmp_path / "tower.py").write_text(
        "import torch\n"
        "class Tower(torch.nn.Module):\n"
        "    def __init__(self, shape):\n"
        "        super().__init__()\n"
        "        self.layer, self.calls = torch.nn.Linear(32, 60), 0\n"
        "    def forward(self, x):\n"
        "        self.calls += 1\n"
        "        if self.calls > 30: raise ZeroDivisionError('tower fell')\n"
        "        return self.layer(x.flatten(1))\n"
    )
    file, out = write(tmp_path, {"name": "split"}, parties=2, epochs=500), tmp_path / "run"
    tree = yaml.safe_load(file.read_text())
    tree["parties"] = {"party2": {"model": "./tower.py:Tower"}}
    file.write_text(yaml.safe_dump(tree))
    code, output = colonnade("up", file, "--out", out)
    assert code == 2 and "Traceback" not in output
    first = next(line for line in output.splitlines() if line.startswith("error:"))
    where = f"parties.party2: {tmp_path}/tower.py, line 8, in forward"
    assert first == f"error: party2: {where}: ZeroDivisionError: tower fell"


def test_no_process_remains_if_up_itself_is_killed(tmp_path: Path) -> None:
    file, out = write(tmp_path, {"name": "split"}, parties=2, epochs=5000), tmp_path / "run"
    process = start("up", file, "--out", out, *UNHURRIED)
    wait_for_round(out, 3, process)
    processes = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.communicate()
    _, alive = psutil.wait_procs(processes, timeout=10)
    assert not alive


def test_members_started_plainly_learn_the_same(tmp_path: Path) -> None:
    """A file and an identity each, started in any order, as on machines of their own."""
    protocol = {"name": "vimadmm", "embedding": 16}
    pins = make_federation(tmp_path / "keys", ["party1", "party2"])
    tree = yaml.safe_load((file := write(tmp_path, protocol, parties=2)).read_text())
    tree["federation"] |= {"server": pins.pop("server"), "parties": pins}
    for name in ("server", *pins):
        own = tree["server" if name == "server" else "every_party"] | {"identity": str(tmp_path / "keys" / name)}
        section = {"server": own} if name == "server" else {"parties": {name: own}}
        text = yaml.safe_dump({"federation": tree["federation"], **section})
        (tmp_path / f"{name}.yaml").write_text(text)
    address, home = tmp_path / "address", tmp_path / "out"
    with household(tmp_path) as members:
        for name in pins:
            own = (tmp_path / f"{name}.yaml", "--out", home / name)
            members.begin(name, "client", *own, "--server-file", address)
        members.begin("server", "server", tmp_path / "server.yaml", "--out", home / "server")
        address.write_text(members.address_of("server", home / "server"))
        ended = {name: members.finish(name) for name in ("server", *pins)}
    assert {code for code, _ in ended.values()} == {0}, ended
    losses = [e["loss"] for e in events(home / "server", "round")]
    assert losses == [e["loss"] for e in federate(load(file)).of_kind("round")]
    assert "test accuracy" in ended["server"][1]


def test_children_of_the_fork_server_draw_numbers_of_their_own(tmp_path: Path) -> None:
    code = (
        "import colonnade.cli.fork_server as fork_server\n"
        "def draw(argv):\n"
        "    import torch, numpy, random, sys\n"
        "    print(torch.randn(1).item(), numpy.random.rand(), random.random(),"
        " torch.get_num_threads(), 'grpc' in sys.modules)\n"
        "    return 0\n"
        "fork_server._run = draw\n"
        "fork_server.main()\n"
    )
    requests = [json.dumps({"start": n, "argv": [], "log": str(tmp_path / n), "threads": 3}) for n in ("one", "two")]
    fork_server = warm.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT)
    assert fork_server.stdin is not None and fork_server.stdout is not None
    fork_server.stdin.write("\n".join(requests) + "\n")
    fork_server.stdin.flush()
    reports = [json.loads(fork_server.stdout.readline()) for _ in range(5)]
    fork_server.stdin.close()
    assert fork_server.wait(10) == 0
    assert sorted(r["exited"] for r in reports if "exited" in r) == ["one", "two"]
    one, two = ((tmp_path / n).read_text().split() for n in ("one", "two"))
    assert all(a != b for a, b in zip(one[:3], two[:3], strict=True))
    assert one[3:] == two[3:] == ["3", "False"]


def test_a_member_is_given_its_own_section_and_no_others(tmp_path: Path) -> None:
    """A party's file holds the federation and its own section, and no other's."""
    file, out = write(tmp_path, {"name": "split"}, epochs=1), tmp_path / "run"
    assert colonnade("up", file, "--out", out)[0] == 0
    own = yaml.safe_load((out / "parties" / "party2" / "config.yaml").read_text())
    assert set(own) == {"federation", "parties"} and set(own["parties"]) == {"party2"}
    assert set(yaml.safe_load((out / "server.yaml").read_text())) == {"federation", "server"}
