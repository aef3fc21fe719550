"""docs/who_sees_what.md has a row for every protocol, with exactly the protections that its configuration accepts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from colonnade.common.contracts.registry import CONTRACTS
from colonnade.common.conversation import capacity
from colonnade.common.errors import ConfigError
from colonnade.common.parsing.file import load
from colonnade.common.run import descriptors
from colonnade.common.wire import frame
from colonnade.server.member import listen
from colonnade.server.member import party as member

ROOT = Path(__file__).parents[2]
SECTION = (ROOT / "docs/who_sees_what.md").read_text().partition("# What each side learns\n")[2].partition("\n## ")[0]
ROWS = {
    name: cells.split(" | ")
    for name, page, cells in re.findall(r"^\| \[`(\w+)`\]\(protocols/(\w+)\.md\) \| (.*) \|$", SECTION, re.M)
    if name == page
}
SWITCHES = {
    "F": "federation.privacy={clip: 1, noise_multiplier: 2, delta: 1.0e-6}",
    "R": "federation.privacy={mechanism: adaptive, clip: 1, noise_multiplier: 2, delta: 1.0e-6}",
    "B": "federation.protocol.aggregate=blinded",
    "A": "server.privacy.answers={clip: 1, head_clip: 1, noise_multiplier: 2, delta: 1.0e-6}",
}


def test_every_protocol_has_one_row_of_four_columns() -> None:
    assert set(ROWS) == set(CONTRACTS)
    assert all(len(cells) == 4 and all(cells[:3]) for cells in ROWS.values())
    assert len(re.findall(r"^\| \[", SECTION, re.M)) == len(CONTRACTS)


def takes(name: str, switch: str) -> bool:
    """True if the protocol's demo can be run with it."""
    demo = ROOT / "experiments" / name / "demo.yaml"
    fitting = ("federation.protocol.update=signal",) if (name, switch) == ("vimadmm_j", SWITCHES["B"]) else ()
    try:
        load(demo, (switch, *fitting))
    except ConfigError:
        return False
    return True


@pytest.mark.parametrize("name", CONTRACTS)
def test_documented_protections_are_those_that_the_configuration_accepts(name: str) -> None:
    load(ROOT / "experiments" / name / "demo.yaml")  # the refusal below is due to the switch
    able = {letter for letter, switch in SWITCHES.items() if takes(name, switch)}
    assert set(re.findall(r"\b[FRBA]\b", ROWS[name][3])) == able


@pytest.mark.parametrize("name", CONTRACTS)
def test_a_row_matches_the_contract(name: str) -> None:
    server, others, labels, _ = (_resolved(name, column) for column in range(4))
    contract = CONTRACTS[name]
    assert ("all training labels" in labels) == contract.exchange.shares_labels
    assert ("embeddings" in server) == ("embedding" in contract.sees["server"])
    assert ("logits" in server) == ("logits" in contract.sees["server"])
    assert ("EMBEDDINGS" in contract.sees["party"]) == ("every other party's embeddings" in others)
    assert (labels == "nothing") == (contract.sees["party"] == "nothing")


def _resolved(name: str, column: int) -> str:
    """A cell, with references such as "as `split`" resolved."""
    cell = ROWS[name][column]
    if found := re.search(r"as (?:in )?`(\w+)`", cell):
        return f"{_resolved(found[1], column)}; {cell}"
    return cell


def test_the_limits_that_it_names_are_those_of_the_code() -> None:
    page = " ".join((ROOT / "docs/port.md").read_text().split())
    options = dict(listen.STRANGERS)
    seconds = options["grpc.server_handshake_timeout_ms"] // 1000
    assert options["grpc.max_connection_idle_ms"] == 1000 * seconds and options["grpc.max_concurrent_streams"] == 1
    assert frame.FRAME_ALLOWANCE == 1 << 16 and member.REFUSAL_PAUSE == 1
    assert capacity.KEPT == 4 and capacity.BEYOND * capacity.KEPT == 16 and capacity.KEPT * capacity.LEAST == 1 << 20
    for said in (
        f"one Hello of at most {frame.FRAME_ALLOWANCE >> 10} kB",
        f"one stream at a time, {seconds} s for its handshake and {seconds} s without a stream",
        f"at most {frame.MOST_PARCELS} parcels",
        f"at most {descriptors.MOST:,} connections",
        f"{descriptors.RESERVE} files for checkpoints",
        "at most four of the contract's largest messages (and at least 1 MB)",
        f"more than {capacity.AHEAD} beyond",
        "sixteen of the largest messages",
    ):
        assert said in page, said
