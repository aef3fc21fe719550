"""Whole federations as a user starts them: real processes, gRPC, mutual TLS."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import yaml

from colonnade.common.crypto.pki.federation import make_federation
from tests.federation import config, federate, tree
from tests.patience import PATIENCE

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[2]
COLONNADE = [sys.executable, "-m", "colonnade"]
SUMMARY = {
    "schema", "status", "error", "federation", "protocol", "dataset", "parties", "rounds", "seconds",
    "seconds_to_first_round", "metrics",
    "best", "stopped", "bytes", "epsilon", "delta", "person", "privacy", "label_privacy", "answer_privacy",
    "details", "targets", "theorem", "pace", "absent", "missing", "late", "environment", "timeline",
}  # fmt: skip


def write(folder: Path, protocol: dict, **federation: object) -> Path:
    path = folder / "federation.yaml"
    path.write_text(yaml.safe_dump(tree(protocol, **federation)))
    return path


UNHURRIED = ("--chaos", "every_party: delay=50ms")  # for runs that are only to be there while others are tried


def start(*argv: object) -> subprocess.Popen[str]:
    words = [*COLONNADE, *map(str, argv)]
    return subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


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


def family_of(process: subprocess.Popen[str]) -> dict[str, psutil.Process]:
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


SMOKE = [
    *({"name": name, "embedding": 16} for name in ("split", "split_avg", "fedbcd", "fdml", "vafl", "c_vfl")),
    {"name": "czofo", "embedding": 16, "arrivals": False},
    *({"name": name, "embedding": 16} for name in ("vimadmm", "vimadmm_j", "syn_zoo_vfl", "vfl_afe")),
    {"name": "vimadmm", "embedding": 16, "head": {"name": "mlp", "hidden": 8}},
    {"name": "centralized"},
    {"name": "linear_admm"},
    {"name": "fedvs", "embedding": 16},
    {"name": "agg_vfl", "embedding": 16},
    {"name": "fdml", "embedding": 16, "aggregate": "blinded"},
    {"name": "vfedmh", "embedding": 16},
]


@pytest.mark.parametrize(
    "protocol", SMOKE, ids=lambda p: p["name"] + "_mlp" * ("head" in p) + "_blinded" * ("aggregate" in p)
)
def test_processes_learn_the_same_as_one_event_loop(tmp_path: Path, protocol: dict) -> None:
    """The same halves, unchanged: equal losses to the last bit, and everything that a run leaves behind."""
    file, out = write(tmp_path, protocol), tmp_path / "run"
    process = start("up", file, "--out", out)
    output = finish(process)
    assert process.returncode == 0, output
    together = federate(config(protocol))
    agree = protocol["name"] in ("fedvs", "vfedmh") or "aggregate" in protocol
    signed = 1000 if agree else 0  # bytes of a certificate and a signature, which a virtual clock does not have
    assert [e["loss"] for e in events(out, "round")] == [e["loss"] for e in together.of_kind("round")]
    summary = json.loads((out / "summary.json").read_text())
    assert set(summary) == SUMMARY and (summary["schema"], summary["status"]) == (1, "completed")
    assert summary["metrics"] == together.server.metrics
    for name, party in summary["bytes"]["parties"].items():
        sent = sum(_payload(m) for sender, _, m in together.messages if sender == name)
        told = sum(_payload(m) for _, to, m in together.messages if to == name)
        up, down = party["up"]["payload"], party["down"]["payload"]
        assert sent <= up <= sent + signed and told <= down <= told + 5 * signed
        assert up < party["up"]["wire"] < up * 1.005 + 300 * len(together.messages)
        ledger = map(json.loads, (out / "parties" / name / "ledger.jsonl").read_text().splitlines())
        assert sum(line.get("bytes", 0) for line in ledger) == up
    assert not list(out.rglob("key.pem")) and "run folder:" in output and "test accuracy" in output
    assert "BEGIN" not in (out / "config.yaml").read_text()


def test_a_server_that_learns_alone_is_told_nothing(tmp_path: Path) -> None:
    """Nobody is waited for, and yet everyone joins, saves the last round and parts."""
    protocol = {"name": "local", "embedding": 16}
    file, out = write(tmp_path, protocol), tmp_path / "run"
    process = start("up", file, "--out", out)
    output = finish(process)
    assert process.returncode == 0, output
    together = federate(config(protocol))
    assert [e["loss"] for e in events(out, "round")] == [e["loss"] for e in together.of_kind("round")]
    summary = json.loads((out / "summary.json").read_text())
    assert summary["status"] == "completed" and summary["metrics"] == together.server.metrics
    assert summary["bytes"]["up"]["payload"] == summary["bytes"]["down"]["payload"] == 0
    assert not list(out.rglob("ledger.jsonl")) and len(list((out / "parties").rglob("*.safetensors"))) == 4


def test_noised_and_compressed_they_learn_the_same_too(tmp_path: Path) -> None:
    protocol = {"name": "vimadmm", "embedding": 16}
    more = {"privacy": {"clip": 1.0, "noise_multiplier": 5.0, "seeded": True}, "compress": {"up": 4, "down": 16}}
    file, out = write(tmp_path, protocol, **more), tmp_path / "run"
    process = start("up", file, "--out", out)
    output = finish(process)
    assert process.returncode == 0, output
    sets = ("federation.privacy={clip: 1, noise_multiplier: 5, seeded: true}", "federation.compress={up: 4, down: 16}")
    together = federate(config(protocol, *sets))
    assert [e["loss"] for e in events(out, "round")] == [e["loss"] for e in together.of_kind("round")]
    summary = json.loads((out / "summary.json").read_text())
    assert summary["metrics"] == together.server.metrics
    assert summary["bytes"]["up"]["payload"] == sum(_payload(m) for s, _, m in together.messages if s != "server")
    assert summary["privacy"]["releases"] == {name: p.releases for name, p in together.privacy.items()}
    assert "no guarantee: noise was drawn from the federation's seed" in " ".join(output.replace("│", "").split())
    assert all(
        "sigma=5 delta=1e-05 replace seeded, 4 bits" in line
        for line in (out / "parties" / "party1" / "ledger.jsonl").read_text().splitlines()
    )


def test_a_finished_run_that_is_looked_at_again_keeps_its_epsilon(tmp_path: Path) -> None:
    """Resumed with more rounds, what left before counts with the noise that it had."""
    more = {"privacy": {"clip": 1.0, "epsilon": 8.0}}
    file, out = write(tmp_path, {"name": "vimadmm", "embedding": 16}, rounds=6, epochs=0, **more), tmp_path / "run"
    finish(process := start("up", file, "--out", out))
    assert process.returncode == 0
    before = json.loads((out / "summary.json").read_text())
    assert 7.9 < max(before["epsilon"].values()) <= 8
    finish(process := start("up", "--resume", out))
    again = json.loads((out / "summary.json").read_text())
    assert (again["epsilon"], again["status"]) == (before["epsilon"], "completed")
    said = finish(process := start("up", "--resume", out, "--set", "federation.rounds=30"))
    assert process.returncode != 0 and "the privacy budget is spent" in said
    longer = json.loads((out / "summary.json").read_text())  # there was no further round: the run is what it was
    assert (longer["epsilon"], longer["status"]) == (before["epsilon"], "completed")


def test_secure_noise_is_paid_for_before_it_leaves(tmp_path: Path) -> None:
    more = {"privacy": {"clip": 1.0, "noise_multiplier": 50.0, "epsilon": 1.0}}
    file, out = write(tmp_path, {"name": "vimadmm", "embedding": 16}, epochs=100, **more), tmp_path / "run"
    process = start("up", file, "--out", out)
    output = finish(process)
    assert process.returncode == 0, output
    summary = json.loads((out / "summary.json").read_text())
    assert 0.95 < max(summary["epsilon"].values()) <= 1.0 and summary["delta"] == 1e-5
    assert summary["status"] == "completed" and summary["rounds"] < 200  # of 600
    for name, releases in summary["privacy"]["releases"].items():
        lines = [json.loads(line) for line in (out / "parties" / name / "ledger.jsonl").read_text().splitlines()]
        assert "reserved" in lines[0]
        assert sum(line.get("mechanism", "").startswith("gaussian") for line in lines) == releases
        assert sum(line.get("reserved", 0) - line.get("returned", 0) for line in lines) == releases


def test_parties_that_come_when_they_like_survive_a_crash(tmp_path: Path) -> None:
    """Asynchronous VAFL in processes: the order is real, checkpoints are consistent, everyone goes on from one."""
    protocol = {"name": "vafl", "embedding": 16, "arrivals": True}
    file = write(tmp_path, protocol, epochs=10, checkpoint={"rounds": 10}, evaluate={"every": 30})
    out = tmp_path / "run"
    output = finish(process := start("up", file, "--out", out, "--chaos", "party2: crash=25"))
    assert process.returncode == 0, output
    (resume,) = events(out, "resume")
    assert resume["round"] in (0, 10, 20)  # the newest that everyone had written by then
    assert [event["round"] for event in events(out, "round")][-1] == 60
    assert json.loads((out / "summary.json").read_text())["metrics"]["test_accuracy"] > 0.5


def test_pairs_that_come_when_they_like_are_answered_with_one_number_each(tmp_path: Path) -> None:
    """Asynchronous ZOO-VFL in processes."""
    protocol = {"name": "zoo_vfl", "embedding": 8}
    file, out = write(tmp_path, protocol, epochs=8, evaluate={"every": 48}), tmp_path / "run"
    rates = ("every_party.optimiser={lr: 0.03, momentum: 0}", "server.optimiser={lr: 0.03}")
    sets = [
        word for value in ("every_party.model={name: linear, activation: none}", *rates) for word in ("--set", value)
    ]
    output = finish(process := start("up", file, "--out", out, *sets))
    assert process.returncode == 0, output
    summary = json.loads((out / "summary.json").read_text())
    assert summary["metrics"]["test_accuracy"] > 0.4  # one in ten is right by chance
    assert summary["bytes"]["down"]["payload"] == 48 * 4 * 4


def _payload(message: object) -> int:
    from colonnade.common.messaging.message import Message, payload_bytes

    assert isinstance(message, Message)
    return payload_bytes(message)


def test_ctrl_c_stops_everyone_and_leaves_a_valid_summary(tmp_path: Path) -> None:
    file, out = write(tmp_path, {"name": "vimadmm"}, epochs=500), tmp_path / "run"
    process = start("up", file, "--out", out, *UNHURRIED)
    wait_for_round(out, 3, process)
    members = family_of(process)
    process.send_signal(signal.SIGINT)
    output = finish(process)
    assert process.returncode == 130 and "Traceback" not in output
    summary = json.loads((out / "summary.json").read_text())
    assert summary["status"] == "interrupted" and summary["rounds"] >= 3
    assert len(members) == 5 and not any(member.is_running() for member in members.values())


def test_a_killed_party_that_may_not_be_started_again_is_named_first_and_ends_the_run(tmp_path: Path) -> None:
    file, out = write(tmp_path, {"name": "vimadmm"}, epochs=500), tmp_path / "run"
    process = start("up", file, "--out", out, *UNHURRIED, "--set", "launch.restarts=0")
    wait_for_round(out, 3, process)
    members = family_of(process)
    members["party3"].kill()
    output = finish(process)
    assert process.returncode == 1
    errors = [line for line in output.splitlines() if "error:" in line]
    assert errors == ["error: party3: was killed by SIGKILL"]
    assert json.loads((out / "summary.json").read_text())["status"] == "interrupted"
    assert f"colonnade up --resume {out}" in output
    assert not any(member.is_running() for member in members.values())


def test_a_party_that_crashes_is_named_with_its_own_error(tmp_path: Path) -> None:
    (tmp_path / "tower.py").write_text(
        "import torch\n"
        "class Tower(torch.nn.Module):\n"
        "    def __init__(self, shape):\n"
        "        super().__init__()\n"
        "        self.layer, self.calls = torch.nn.Linear(16, 60), 0\n"
        "    def forward(self, x):\n"
        "        self.calls += 1\n"
        "        if self.calls > 30: raise ZeroDivisionError('tower fell')\n"
        "        return self.layer(x.flatten(1))\n"
    )
    file, out = write(tmp_path, {"name": "split"}, epochs=500), tmp_path / "run"
    tree = yaml.safe_load(file.read_text())
    tree["parties"] = {"party2": {"model": "./tower.py:Tower"}}
    file.write_text(yaml.safe_dump(tree))
    process = start("up", file, "--out", out, *UNHURRIED)
    output = finish(process)
    assert process.returncode == 1 and "Traceback" not in output
    first = next(line for line in output.splitlines() if line.startswith("error:"))
    assert first == "error: party2: ZeroDivisionError: tower fell"


def test_nobody_is_left_when_up_itself_is_killed(tmp_path: Path) -> None:
    file, out = write(tmp_path, {"name": "split"}, epochs=5000), tmp_path / "run"
    process = start("up", file, "--out", out, *UNHURRIED)
    wait_for_round(out, 3, process)
    family = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.communicate()
    _, alive = psutil.wait_procs(family, timeout=10)
    assert not alive


def test_members_started_plainly_learn_the_same(tmp_path: Path) -> None:
    """A file and an identity each, started in any order, as on machines of their own."""
    protocol = {"name": "vimadmm", "embedding": 16}
    pins = make_federation(tmp_path / "keys", ["party1", "party2", "party3", "party4"])
    tree = yaml.safe_load(write(tmp_path, protocol).read_text())
    tree["federation"] |= {"server": pins.pop("server"), "parties": pins}
    address = tmp_path / "address"
    server = {
        "federation": tree["federation"],
        "server": tree["server"] | {"identity": str(tmp_path / "keys/server"), "threads": 1},
    }
    (tmp_path / "server.yaml").write_text(yaml.safe_dump(server))
    members = []
    for name in pins:
        own = tree["every_party"] | {"identity": str(tmp_path / "keys" / name), "threads": 1}
        (tmp_path / f"{name}.yaml").write_text(
            yaml.safe_dump({"federation": tree["federation"], "parties": {name: own}})
        )
        out = tmp_path / "out" / name
        members.append(start("client", tmp_path / f"{name}.yaml", "--out", out, "--server-file", address))
    hub = start("server", tmp_path / "server.yaml", "--out", tmp_path / "out" / "server")
    try:
        deadline = time.monotonic() + PATIENCE
        while not (found := events(tmp_path / "out" / "server", "listening")) and time.monotonic() < deadline:
            time.sleep(0.05)
        address.write_text(found[0]["address"])
        outputs = [finish(member) for member in (hub, *members)]
    finally:
        for member in (hub, *members):
            member.kill()
    assert [member.returncode for member in (hub, *members)] == [0] * 5, outputs
    losses = [e["loss"] for e in events(tmp_path / "out" / "server", "round")]
    assert losses == [e["loss"] for e in federate(config(protocol)).of_kind("round")]
    assert "test accuracy" in outputs[0]


def test_children_of_the_fork_server_draw_numbers_of_their_own(tmp_path: Path) -> None:
    code = (
        "import colonnade.cli.fork_server as nursery\n"
        "def draw(argv):\n"
        "    import torch, numpy, random, sys\n"
        "    print(torch.randn(1).item(), numpy.random.rand(), random.random(),"
        " torch.get_num_threads(), 'grpc' in sys.modules)\n"
        "    return 0\n"
        "nursery._run = draw\n"
        "nursery.main()\n"
    )
    requests = [json.dumps({"start": n, "argv": [], "log": str(tmp_path / n), "threads": 3}) for n in ("one", "two")]
    nursery = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert nursery.stdin is not None and nursery.stdout is not None
    nursery.stdin.write("\n".join(requests) + "\n")
    nursery.stdin.flush()
    reports = [json.loads(nursery.stdout.readline()) for _ in range(5)]
    nursery.stdin.close()
    assert nursery.wait(10) == 0
    assert sorted(r["exited"] for r in reports if "exited" in r) == ["one", "two"]
    one, two = ((tmp_path / n).read_text().split() for n in ("one", "two"))
    assert all(a != b for a, b in zip(one[:3], two[:3], strict=True))
    assert one[3:] == two[3:] == ["3", "False"]


def test_a_member_is_given_its_own_section_and_no_others(tmp_path: Path) -> None:
    """A party's file holds the federation and its own section, and no other's."""
    file, out = write(tmp_path, {"name": "split"}, epochs=1), tmp_path / "run"
    process = start("up", file, "--out", out)
    assert finish(process) and process.returncode == 0
    own = yaml.safe_load((out / "parties" / "party2" / "config.yaml").read_text())
    assert set(own) == {"federation", "parties"} and set(own["parties"]) == {"party2"}
    assert set(yaml.safe_load((out / "server.yaml").read_text())) == {"federation", "server"}
