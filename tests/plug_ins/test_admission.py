"""Versions of agreed plug-ins: compared when a party joins."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from colonnade.cli.data.deal import DealTerms, deal
from colonnade.common.config.federation import FederationConfig
from colonnade.common.contracts.registry import agreed_parts
from colonnade.common.conversation.parcels import Hello, Welcome
from colonnade.common.parsing.file import parse
from colonnade.common.version import VERSION
from tests.cli.data.test_deal import free_port
from tests.server.stage import federation, refused, stage
from tests.support import warm
from tests.support.federation import tree
from tests.support.packages import Packages
from tests.support.patience import PATIENCE

ROOT = Path(__file__).parents[2]
SIGNS = (ROOT / "examples" / "plugin" / "colonnade_signs.py").read_text()
LOSS = "def mine(scores, targets):\n    return scores.square().sum(dim=1)\n"


def install(packages: Packages, version: str) -> Path:
    return packages.install("colonnade-signs", "protocols", {"signs": "colonnade_signs"}, SIGNS, version)


def hello(agreed: FederationConfig, **parts: str) -> Hello:
    config = {**agreed.stated(), **(parts or agreed_parts(agreed))}
    return Hello("ada", "test", VERSION, config=config, rows=100, official_test=20)


def test_federations_of_built_in_parts_state_nothing_more() -> None:
    assert agreed_parts(federation()) == {}


async def test_equal_versions_join_and_others_are_refused_by_name(packages: Packages) -> None:
    install(packages, "1.1")
    agreed = federation(protocol={"name": "signs", "embedding": 4}, loss="")
    theirs = hello(agreed)
    assert theirs.config["plugin.protocols.signs"] == "colonnade-signs 1.1"
    install(packages, "1.0")

    there = stage(agreed)
    said = await refused(there, theirs)
    assert said.reason == ("'ada' has colonnade-signs 1.1 for the protocol 'signs', the server colonnade-signs 1.0")
    assert said.hint == "install the same version of the package at every member"
    connection = await there.come(hello(agreed))
    assert connection.last == Welcome()


async def test_the_loss_is_compared_too(packages: Packages) -> None:
    packages.install("colonnade-mine", "losses", {"mine": "mine_loss:mine"}, LOSS, "3.0")
    agreed = federation(loss="mine")

    there = stage(agreed)
    other = await refused(there, hello(agreed, **{"plugin.losses.mine": "colonnade-mine 2.9"}))
    assert other.reason == "'ada' has colonnade-mine 2.9 for the loss 'mine', the server colonnade-mine 3.0"
    none = Hello("ada", "test", VERSION, config=agreed.stated(), rows=100, official_test=20)
    assert (await refused(there, none)).reason.startswith("'ada' has nothing for the loss 'mine', the server")
    assert (await there.come(hello(agreed))).last == Welcome()


async def test_another_section_is_named_first_and_text_of_strangers_is_cut(packages: Packages) -> None:
    there = stage(federation())
    parts = {"plugin.protocols.signs": "x" * 5000}
    other = Hello("ada", "test", VERSION, config={**federation(seed=3).stated(), **parts}, rows=100,
                  official_test=20)  # fmt: skip
    assert (await refused(there, other)).reason == "'ada' has another federation section; it differs in seed"
    said = await refused(there, hello(federation(), **parts))
    assert said.reason == f"'ada' has {'x' * 80} for the protocol 'signs', the server nothing"


def test_versions_are_no_part_of_what_a_resumed_run_must_keep(packages: Packages) -> None:
    """A run goes on after an update of a package at all members."""
    install(packages, "1.0")
    before = parse(tree({"name": "signs"})).federation.lasting_hashes()
    install(packages, "1.1")
    assert parse(tree({"name": "signs"})).federation.lasting_hashes() == before


@pytest.mark.processes
def test_two_members_at_different_versions_over_the_wire(packages: Packages, tmp_path: Path) -> None:
    newer, older = install(packages, "1.1"), install(packages, "1.0")
    file = tmp_path / "signs.yaml"
    made = tree({"name": "signs", "embedding": 4}, epochs=1, parties=1, timeouts={"away": 20})
    file.write_text(yaml.safe_dump(made))
    deal(file, (), tmp_path / "dealt", DealTerms(f"localhost:{free_port()}", 30))
    command = [sys.executable, "-m", "colonnade"]
    server, party = (tmp_path / "dealt" / name / "config.yaml" for name in ("server", "party1"))

    def start(*words: str, path: Path | None) -> subprocess.Popen[str]:
        own = {} if path is None else {"PYTHONPATH": str(path)}
        kept = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        return warm.Popen(
            [*command, *words], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={**kept, **own},
        )  # fmt: skip

    serving = start("server", str(server), "--out", str(tmp_path / "out"), path=older)
    try:
        joining = start("client", str(party), "--out", str(tmp_path / "party"), path=newer)
        said, _ = joining.communicate(timeout=PATIENCE)
        flat = " ".join(said.split())
        assert joining.returncode == 3, said
        ours, theirs = "the server colonnade-signs 1.0", "'party1' has colonnade-signs 1.1"
        assert f"the server refused: {theirs} for the protocol 'signs', {ours}" in flat
        missing = start("client", str(party), "--out", str(tmp_path / "party"), path=None)
        said, _ = missing.communicate(timeout=PATIENCE)
        assert missing.returncode == 2 and "unknown protocol" in said and "install the package" in said
    finally:
        serving.kill()
        serving.communicate()
