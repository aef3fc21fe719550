"""A party whose ranks are on two machines, by torchrun on each.

Under `up`, ranks of one machine get the variables that deploy/kubernetes sets: tests/cli/run/test_resume.py.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from colonnade.cli.data.deal import DealTerms, deal
from colonnade.common.parsing.file import load
from tests.cli.run.test_up import write
from tests.deploy.network import Network, available, colonnade, events
from tests.support.federation import federate
from tests.support.patience import PATIENCE

WHY_NOT = available()

pytestmark = [
    pytest.mark.processes,
    pytest.mark.netns,
    pytest.mark.skipif(bool(WHY_NOT), reason=f"no network namespaces: {WHY_NOT}"),
]

FIRST, SECOND, PORT = "10.9.0.1", "10.9.0.2", 29500
TRAINING = {"public_start": True, "rounds": 6, "epochs": 0, "evaluate": {"every": 3}}


@pytest.fixture
def network() -> Iterator[Network]:
    with Network("") as network:
        for name in ("first", "second"):
            network.machine(name)
        network.cable("first", f"{FIRST}/24", "second", f"{SECOND}/24", routed=False)
        yield network


def rank(network: Network, number: int, *words: object) -> subprocess.Popen[str]:
    """One of a party's two ranks, on the machine of its number."""
    name, other, own = (("first", "second", FIRST), ("second", "first", SECOND))[number]
    # Without its own address, torchrun asks a name server for this machine's name.
    place = ("--master-addr", FIRST, "--master-port", PORT, "--local-addr", own)
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--nnodes", 2, "--node-rank", number, *place)
    interface = {"GLOO_SOCKET_IFNAME": f"to-{other}"}
    return network.start(name, *torchrun, "--nproc-per-node", 1, *colonnade(*words)[1:], **interface)


@pytest.mark.slow
def test_ranks_on_two_machines_learn_what_one_process_does(tmp_path: Path, network: Network) -> None:
    file = write(tmp_path, {"name": "split", "embedding": 8}, parties=2, **TRAINING)
    expected = {event["round"]: event["loss"] for event in federate(load(file)).of_kind("round")}
    deal(file, (), tmp_path / "dealt", DealTerms("127.0.0.1:7400", 30))
    configs = {name: tmp_path / "dealt" / name / "config.yaml" for name in ("server", "party1", "party2")}
    members = [
        network.start("first", *colonnade("server", configs["server"], "--out", tmp_path / "run")),
        network.start("first", *colonnade("client", configs["party1"], "--out", tmp_path / "run1")),
        *(rank(network, number, "client", configs["party2"], "--out", tmp_path / "run2") for number in (0, 1)),
    ]
    said = [member.communicate(timeout=PATIENCE)[0] for member in members]
    assert [member.returncode for member in members] == [0] * 4, said
    found = {event["round"]: event["loss"] for event in events(tmp_path / "run", "round")}
    assert found == pytest.approx(expected, rel=0, abs=1e-5) and len(found) == TRAINING["rounds"]
