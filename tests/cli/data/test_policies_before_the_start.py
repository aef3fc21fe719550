"""`colonnade check`, and what starts members, apply the parties' own rules as a party does that has joined."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from colonnade.cli.checks.check import check
from colonnade.client.member.process import PartyMember
from colonnade.common.conversation import inprocess
from colonnade.common.crypto.pki.authority import make_federation
from colonnade.common.errors import ConfigError
from colonnade.common.parsing.file import load
from colonnade.launcher.configuration import GivenConfig
from tests.support.tables import table_tree, write_tables

PRIVACY = {"mechanism": "gaussian", "clip": 1, "epsilon": 8, "delta": 1e-5}


def written(folder: Path, policy: Mapping[str, Any], align: str = "psi", **federation: Any) -> Path:
    write_tables(folder, persons=60)
    tree = table_tree(align=align, **federation)
    tree["parties"]["party1"]["policy"] = dict(policy)
    (folder / "federation.yaml").write_text(yaml.safe_dump(tree))
    return folder / "federation.yaml"


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ({"protocols": ["vimadmm"]}, "policy.protocols = vimadmm: the federation has "),
        ({"min_parties": 5}, "policy.min_parties = 5: the federation has 2"),
        ({"blinded": True}, "policy.blinded = true: the federation has no blinded sums"),
        ({"max_epsilon": 8, "max_delta": 1e-7}, "policy.max_delta = 1e-07: the federation has 1e-05"),
    ],
)
def test_what_the_configuration_decides_is_refused_before_any_start(
    tmp_path: Path, policy: Mapping[str, Any], said: str
) -> None:
    file = written(tmp_path, policy, privacy=PRIVACY)
    with pytest.raises(ConfigError, match=said):
        check(file, ())
    with pytest.raises(ConfigError, match=said):  # as `up` and `simulate` begin
        GivenConfig.of(file, sets=()).put(tmp_path / "run")
    assert not (tmp_path / "run").exists()
    own = load(file)
    member = PartyMember("party1", own.federation, own.parties["party1"], tmp_path, tmp_path / "own", secure=False)
    with pytest.raises(ConfigError, match=said):  # without an address to dial: it has not looked for one
        inprocess.run_virtual(member.run())


def test_a_budget_for_the_rows_of_the_tables_is_compared_with_the_policy(tmp_path: Path) -> None:
    file = written(tmp_path, {"max_epsilon": 2}, privacy=PRIVACY)
    with pytest.raises(ConfigError, match=r"policy.max_epsilon = 2.0: the federation has \d+ releases at sigma"):
        check(file, ())
    check(file, ("parties.party1.policy.max_epsilon=8",))


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        (("parties.party1.policy.min_common_rows=59",), r"min_common_rows = 59: the federation has \d+ common keys"),
        (("parties.party1.policy.max_other_rows=9",), r"max_other_rows = 9: the federation has \d+ keys at server"),
        (("parties.party1.alignments.rows_per_day=99",), r"rows_per_day = 99: .* announced \d+ keys of other members"),
        (("server.alignments.rows_per_day=9",), r"rows_per_day = 9: with this alignment party1 has tested \d+ keys"),
    ],
)
def test_tables_are_compared_with_rules_about_alignments(tmp_path: Path, sets: tuple[str, ...], said: str) -> None:
    file = written(tmp_path, {})
    pins = make_federation(tmp_path / "pki", ["party1", "party2"])
    tree = yaml.safe_load(file.read_text())
    tree["server"]["identity"] = "pki/server"
    tree["federation"] |= {"server": pins.pop("server"), "parties": pins}
    for name in pins:
        tree["parties"][name]["identity"] = f"pki/{name}"
    file.write_text(yaml.safe_dump(tree))
    check(file, ())
    with pytest.raises(ConfigError, match=said):
        check(file, sets)


def test_a_party_alone_learns_that_its_table_is_too_small_for_its_rule(tmp_path: Path) -> None:
    file = written(tmp_path, {"min_common_rows": 61})
    tree = yaml.safe_load(file.read_text())
    del tree["server"], tree["parties"]["party2"]
    tree["federation"]["parties"] = {"party1": "", "party2": ""}
    file.write_text(yaml.safe_dump(tree))
    with pytest.raises(ConfigError, match=r"min_common_rows = 61: .* at most the \d+ keys of its table in common"):
        check(file, ())
