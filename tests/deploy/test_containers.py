"""docker-compose.yml in use: a federation in containers, their failures, and their privileges."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
import yaml

from colonnade.common.data.formats.tensors import read_tensor_labels
from tests.cli.run.test_up import finish, start
from tests.deploy.compose import IMAGE, MEMBERS, PARTIES, ROOT, Project, dealing, engine, project

pytestmark = [
    pytest.mark.containers,
    pytest.mark.timeout(400),
    pytest.mark.skipif(engine() is None, reason=f"no container engine that has the image {IMAGE!r}"),
]
ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root reads volumes and kills a container's process")


OVERLAYS = [*sorted((ROOT / "deploy").glob("compose.*.yml")), *sorted((ROOT / "deploy").glob("compose.*/*.yml"))]


# The demo, to its end.


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    with project(tmp_path_factory.mktemp("demo")) as made:
        code, said = made.run("up", "--no-color")
        assert code == 0, said
        yield made


def test_up_trains_the_demo_and_leaves_a_report(demo: Project) -> None:
    assert demo.exit_codes() == dict.fromkeys(("deal", *MEMBERS, "report"), 0)
    page = (demo.report / "report.html").read_text()
    assert re.search(r"Accuracy 9[5-9](\.\d)?% on 359 test rows that nobody trained on", page)
    assert "http-equiv" in page and 'http-equiv="refresh"' not in page and "was started" not in page
    assert "test accuracy" in demo.logs("server")
    assert "party2: done after round 72" in demo.logs("party2")


def test_members_end_with_the_same_parameters_in_kind_as_on_one_machine(demo: Project, tmp_path: Path) -> None:
    process = start("up", "--out", tmp_path / "run", "--set", "every_party.threads=1", "--set", "server.threads=1")
    output = finish(process)
    assert process.returncode == 0, output
    for name in MEMBERS:
        alone = tmp_path / "run" if name == "server" else tmp_path / "run" / "parties" / name
        here = _last_checkpoint(alone)
        there = _last_checkpoint(_volume(demo, name, "/runs"))
        assert here.keys() == there.keys()
        assert all(here[key].shape == there[key].shape for key in here), name  # each run draws its starts in secret


def test_each_container_sees_its_own_data_alone(demo: Project) -> None:
    for name in MEMBERS:
        mounts = demo.container(name).attrs["Mounts"]
        assert {mount["Destination"] for mount in mounts} == {"/alignments", "/member", "/member/keys", "/runs"}
        assert {mount["Destination"] for mount in mounts if mount["RW"]} == {"/alignments", "/runs"}
        assert all(mount["Name"].startswith(f"{demo.name}_{name}") for mount in mounts)
        data = _volume(demo, name, "/member") / "data"
        kind = "labels" if name == "server" else "columns"
        assert [path.name for path in data.iterdir()] == [f"{kind}.safetensors"]
    assert len(read_tensor_labels(_volume(demo, "server", "/member") / "data" / "labels.safetensors").values) == 1797


def test_no_secret_is_in_an_environment_a_layer_or_a_log(demo: Project) -> None:
    client = engine()
    assert client is not None
    history = json.dumps(client.images.get(IMAGE).history())
    for name in MEMBERS:
        key = (_volume(demo, name, "/member/keys") / "key.pem").read_text().splitlines()[1]
        container = demo.container(name)
        for place in (json.dumps(container.attrs["Config"]), history, container.logs().decode(), demo.logs("deal")):
            assert key not in place and "PRIVATE KEY" not in place
    public = "-not -path '*/certifi/*' -not -name roots.pem -not -path '/etc/ssl/*' -not -path '/usr/*'"
    search = ["-c", f"find / -xdev -name '*.pem' {public} 2>/dev/null; true"]
    found = client.containers.run(IMAGE, search, entrypoint="sh", remove=True, network_mode="none")
    assert found.decode() == ""


def test_the_image_is_small_and_holds_no_compiler(demo: Project) -> None:
    client = engine()
    assert client is not None
    image = client.images.get(IMAGE)
    assert image.attrs["Config"]["User"] == "10001:10001"
    assert image.attrs["Config"]["Labels"]["org.opencontainers.image.licenses"] == "Apache-2.0"
    assert image.attrs["Size"] < 1.2e9
    tools = "for tool in sh gcc cc g++ clang make ld as; do command -v $tool; done"
    looked = ["-c", f"id -u; {tools}; touch /opt/colonnade/x 2>/dev/null || echo read-only"]
    said = client.containers.run(IMAGE, looked, entrypoint="sh", remove=True, network_mode="none")
    assert said.decode().split() == ["10001", "/usr/bin/sh", "read-only"]


def test_up_again_ends_at_once_and_down_leaves_nothing_behind(tmp_path: Path) -> None:
    """A finished run is not trained again, and dealt files are not dealt twice."""
    with project(tmp_path, over=dealing("federation.epochs=1", "every_party.model.hidden=8")) as made:
        assert made.run("up", "--no-color")[0] == 0
        rounds = len(made.events("round"))
        code, said = made.run("up", "--no-color")
        assert code == 0, said
        assert "was dealt already" in said
        assert set(made.exit_codes().values()) == {0} and len(made.events("round")) == rounds == 6
        made.run("down", "--volumes")
        assert made.left() == []


@pytest.mark.parametrize("overlay", [None, *OVERLAYS], ids=lambda path: path.stem if path else "none")
def test_this_compose_reads_every_overlay(tmp_path: Path, overlay: Path | None) -> None:
    files = [] if overlay is None else [str(overlay.relative_to(ROOT / "deploy"))]
    code, said = Project(tmp_path, files).run("config")
    assert code == 0, said
    services = yaml.safe_load(said)["services"]
    assert "server" in services and services["party1"]["environment"]["OMP_NUM_THREADS"] == "1"


# Other protocols than the demo's: another experiment, and one of the overlays.

OTHERS = {
    "czofo": ((), "experiments/czofo/demo.yaml"),
    "fedvs": (("compose.protocols/fedvs.yml",), ""),
}


@pytest.mark.parametrize("protocol", OTHERS)
def test_another_protocol_runs(tmp_path: Path, protocol: str) -> None:
    files, experiment = OTHERS[protocol]
    chosen = {"COLONNADE_EXPERIMENT": experiment} if experiment else {}
    with project(tmp_path, *files, over=dealing("federation.epochs=2"), **chosen) as made:
        code, said = made.run("up", "--no-color")
        assert code == 0, said
        assert set(made.exit_codes().values()) == {0}
        summary = json.loads(made.file("server", "/runs/summary.json"))
        assert summary["protocol"] == protocol and summary["status"] == "completed"


def test_far_parties_say_how_their_line_is_made_long(tmp_path: Path) -> None:
    over = dealing("federation.epochs=1")
    with project(tmp_path, "compose.wan.yml", over=over, WAN_DELAY="40ms", WAN_BANDWIDTH="20Mbit/s") as made:
        code, said = made.run("up", "--no-color")
        assert code == 0, said
        for name in PARTIES:
            log = made.logs(name)
            assert "wan: netem gives" in log or f"{name} itself injects 40ms each way" in log
        assert set(made.exit_codes().values()) == {0}
        rounds = made.events("round")
        # Of the messages, not of the machine: an embedding and an update wait 30 ms each at the very least.
        assert min(event["seconds"] for event in rounds) > 0.06


# Failures of containers during a run.


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A run without an end."""
    long = ("federation.epochs=0", "federation.rounds=1000000", "federation.protocol={name: split, embedding: 8}")
    often = ("federation.checkpoint.rounds=20", "every_party.chaos.delay=20ms", "every_party.model.hidden=8")
    with project(tmp_path_factory.mktemp("running"), over=dealing(*long, *often)) as made:
        code, said = made.run("up", "--no-color", "-d", *PARTIES)
        assert code == 0, said
        made.wait(lambda: made.rounds() >= 25, "25 rounds")
        yield made


def test_a_member_may_do_nothing_that_it_need_not(running: Project) -> None:
    for name in MEMBERS:
        container = running.container(name)
        status = dict(
            line.split(":\t", 1)
            for line in Path(f"/proc/{container.attrs['State']['Pid']}/status").read_text().splitlines()
            if ":\t" in line
        )
        for kind in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            assert int(status[kind], 16) == 0
        assert status["NoNewPrivs"] == "1" and status["Uid"].split() == ["10001"] * 4
        host = container.attrs["HostConfig"]
        assert host["ReadonlyRootfs"] and not host["Privileged"] and host["PidsLimit"] and host["Memory"]
        assert container.exec_run(["touch", "/opt/colonnade/x"]).exit_code != 0
        assert not container.attrs["HostConfig"]["PortBindings"]


def test_members_are_healthy_and_the_network_is_private(running: Project) -> None:
    running.wait(lambda: _health(running, "server") == "healthy", "a healthy server")
    for name in PARTIES:
        assert running.container(name).exec_run(["colonnade", "health", "--service", "colonnade"]).exit_code == 0
    client = engine()
    assert client is not None
    (network,) = client.networks.list(names=[f"{running.name}_federation"])
    assert network.attrs["Internal"]


@ROOT_ONLY
def test_a_party_that_is_killed_comes_back(running: Project) -> None:
    pid = running.container("party1").attrs["State"]["Pid"]
    before = len(running.events("rollback"))
    os.kill(pid, signal.SIGKILL)
    running.wait(lambda: running.container("party1").attrs["State"]["Pid"] not in (0, pid), "a new process")
    running.wait(lambda: len(running.events("rollback")) > before, "the server to notice")
    running.wait_for_more()
    assert running.container("party1").attrs["RestartCount"] >= 1
    assert running.events("rollback")[-1]["party"] == "party1" and running.events("resume")[-1]["round"] >= 20


def test_a_party_that_is_paused_is_waited_for(running: Project) -> None:
    before = len(running.events("leave"))
    party = running.container("party2")
    party.pause()
    try:
        time.sleep(1)  # for messages in transit
        at = running.rounds()
        time.sleep(3)
        assert running.rounds() == at
    finally:
        party.unpause()
    running.wait_for_more()
    assert len(running.events("leave")) == before


def test_a_party_that_is_cut_from_the_network_joins_again(running: Project) -> None:
    client = engine()
    assert client is not None
    (network,) = client.networks.list(names=[f"{running.name}_federation"])
    party, before = running.container("party3"), len(running.events("resume"))
    network.disconnect(party)
    running.wait(lambda: any(e["party"] == "party3" for e in running.events("rollback")), "the server to notice")
    network.connect(party, aliases=["party3"])
    running.wait(lambda: len(running.events("resume")) > before, "the party to join again")
    running.wait_for_more()
    assert running.container("party3").attrs["RestartCount"] == 0  # the same process


def test_a_party_on_a_narrow_line_slows_the_run_down_and_is_named(running: Project) -> None:
    usual = _seconds(running, 5)
    _tc(running, "party4", "replace", "root", "tbf", "rate", "64kbit", "burst", "4kb", "latency", "10s")
    try:
        running.wait_for_more(7)
        narrow = _seconds(running, 5)
        named = [event["slowest"]["party"] for event in running.events("round")[-5:]]
    finally:
        _tc(running, "party4", "del", "root")
    # 256 rows of 8 floats are 8 kB: a second on this line. One round may be slow for another reason.
    assert narrow > 0.5 and narrow > 2 * usual and named.count("party4") > 2
    running.wait_for_more()


def test_the_server_stops_within_ten_seconds_and_everyone_goes_on_when_it_is_back(running: Project) -> None:
    server = running.container("server")
    at, before = running.rounds(), len(running.events("resume"))
    begun = time.monotonic()
    server.stop(timeout=30)
    assert time.monotonic() - begun < 10
    assert running.container("server").attrs["State"]["ExitCode"] == 130
    assert json.loads(running.file("server", "/runs/summary.json"))["status"] == "interrupted"
    assert {running.container(name).status for name in PARTIES} == {"running"}
    server.start()
    running.wait(lambda: len(running.events("resume")) > before, "the server to take up its run")
    assert running.events("resume")[-1]["round"] > at - 40
    running.wait_for_more()


# Errors, reported by the service at fault.


@pytest.fixture(scope="module")
def dealt(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """Volumes of a federation that was not started."""
    with project(tmp_path_factory.mktemp("dealt"), over=dealing("federation.timeouts.away=3")) as made:
        code, said = made.run("up", "--no-color", "deal")
        assert code == 0, said
        yield made


WRONG = {
    "no certificates": (
        "party1", {"binds": {"/member/keys": ""}}, (), 2, "there is no file /member/keys/key.pem",
    ),
    "a GPU where there is none": (
        "party1", {}, ("--set", "parties.party1.device=cuda:0"), 4, "device cuda:0",
    ),
    "nobody at the other end": ("party1", {}, (), 4, "did not come within 3 s"),
}  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_input_is_one_clear_line_in_the_right_log(dealt: Project, wrong: str) -> None:
    service, how, words, code, line = WRONG[wrong]
    found, said = _alone(dealt, service, words, how.get("binds", {}))
    assert found == code and line in said and "Traceback" not in said
    assert said.count("error:") == 1


def test_a_taken_port_is_reported_by_the_server(dealt: Project) -> None:
    client = engine()
    assert client is not None
    squat = (
        "import socket, time; s = socket.socket(); s.bind(('', 7400)); s.listen(); print(1, flush=True); time.sleep(60)"
    )
    squatter = client.containers.run(IMAGE, ["-c", squat], entrypoint="python", detach=True, network_mode="bridge")
    try:
        dealt.wait(squatter.logs, "the port to be taken")
        code, said = _alone(dealt, "server", (), {}, network_mode=f"container:{squatter.id}")
    finally:
        squatter.remove(force=True)
    assert code == 4 and "cannot listen on 0.0.0.0:7400: Address already in use" in said and "Traceback" not in said


def test_an_experiment_of_more_parties_names_the_one_too_many(tmp_path: Path) -> None:
    with project(tmp_path, over=dealing("federation.parties=5")) as made:
        _, said = made.run("up", "--no-color", "deal")
        assert "none for party5" in " ".join(said.split()) and made.exit_codes() == {"deal": 2}


def _alone(made: Project, service: str, words: tuple[str, ...], binds: dict[str, str], **more: Any) -> tuple[int, str]:
    """A member by itself, on the volumes of a project, some of them replaced or taken away."""
    client = engine()
    assert client is not None
    places = {"/member": service, "/member/keys": f"{service}-keys", **binds}
    volumes = [f"{made.name}_{volume}:{place}:ro" for place, volume in places.items() if volume]
    tmpfs = {"/tmp": "", "/runs": "uid=10001", **{place: "" for place, volume in places.items() if not volume}}
    command = ["server" if service == "server" else "client", "/member/config.yaml", "--in", "/runs", *words]
    more.setdefault("network_mode", "none")
    container = client.containers.run(
        IMAGE, command, volumes=volumes, tmpfs=tmpfs, detach=True, read_only=True, cap_drop=["ALL"], **more
    )
    try:
        code = container.wait(timeout=60)["StatusCode"]
        return code, " ".join(container.logs().decode().split())
    finally:
        container.remove(force=True)


def _tc(made: Project, service: str, *words: str) -> None:
    """Shapes the link of a service's container, from another in the same network namespace."""
    client = engine()
    assert client is not None
    verb, *rest = words
    client.containers.run(
        IMAGE, ["qdisc", verb, "dev", "eth0", *rest], entrypoint="tc", user="root", cap_add=["NET_ADMIN"],
        network_mode=f"container:{made.container(service).id}", remove=True,
    )  # fmt: skip


def _volume(made: Project, service: str, destination: str) -> Path:
    (found,) = (m["Source"] for m in made.container(service).attrs["Mounts"] if m["Destination"] == destination)
    return Path(found)


def _last_checkpoint(home: Path) -> dict[str, torch.Tensor]:
    newest = max((home / "checkpoints").glob("round-*.safetensors"))
    return safetensors.torch.load_file(newest)


def _health(made: Project, service: str) -> str:
    return str(made.container(service).attrs["State"]["Health"]["Status"])


def _seconds(made: Project, rounds: int) -> float:
    """The median of the newest rounds."""
    newest = sorted(event["seconds"] for event in made.events("round")[-rounds:])
    return float(newest[len(newest) // 2])
