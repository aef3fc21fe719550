"""Parcels between a real server and real parties, swapped, dropped and repeated in every state of a run.

Of five protocols: embeddings in the clear, duals, blinded sums, coded sums, and one that learns from arrivals.

Bounds: messages (both).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any
from unittest.mock import patch

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from colonnade.client.dialling.instructions import Instructions
from colonnade.common.alignment.messages import all_kinds
from colonnade.common.config.members import Config
from colonnade.common.contracts.registry import CONTRACTS
from colonnade.common.conversation.conversation import Link
from colonnade.common.conversation.mailbox import Mailbox
from colonnade.common.errors import ContractError
from colonnade.common.messaging.message import ServerMessage
from colonnade.common.protocols.split import Gradient
from tests.support import disturbed as disturbance
from tests.support import in_memory
from tests.support.disturbed import End, disturbed
from tests.support.federation import config
from tests.support.in_memory import ROUNDS, WIDTH
from tests.support.relay import Fault

EXAMPLES = int(os.environ.get("COLONNADE_SCRIPTS", "0"))
"""Scripts of each protocol to try, drawn at random; by default few, and the same ones in every run."""
SPLIT = "split"
PROTOCOLS: Mapping[str, tuple[Mapping[str, Any], int]] = {
    SPLIT: ({"name": "split", "embedding": WIDTH}, 6),
    "duals": ({"name": "vimadmm"}, 2),
    "blinded": ({"name": "split_avg", "embedding": WIDTH, "aggregate": "blinded"}, 2),
    "coded": ({"name": "fedvs", "embedding": WIDTH, "segments": 1, "stragglers": 0}, 2),
    "arrivals": ({"name": "vafl", "embedding": WIDTH, "arrivals": True}, 2),
}
"""Protocols, and the number of scripts that every run tries."""
SETS = ("federation.checkpoint.rounds=1", "federation.transcript.every=2", "federation.batch=256")
LAST = f"round-{ROUNDS:08}"
DOWN = ("Welcome", "Begin", "Open", "Relayed", "Save", "Close", "Farewell", "Rewind", "Refusal", "Failure")
UP = ("Hello", "Statement", "Saved", "Farewell", "Failure")


@cache
def told(protocol: str) -> Config:
    return config(PROTOCOLS[protocol][0], *in_memory.SETS, *SETS)


@cache
def messages(protocol: str, *, server: bool) -> tuple[str, ...]:
    """Kinds of a protocol's messages, keys among them, of the server or of a party."""
    federation = told(protocol).federation
    kinds = all_kinds(federation, CONTRACTS[federation.protocol.name])
    return tuple(name for name, kind in kinds.items() if issubclass(kind, ServerMessage) == server)


def learned(end: End, protocol: str) -> bool:
    """True if a fault may have changed what is learned: it took a message away. TLS lets no stranger do so.

    Where messages count as they come, any delay and any repetition of one changes it too.
    """
    kinds = {*messages(protocol, server=True), *messages(protocol, server=False)}
    struck = end.relay.struck
    if protocol == "arrivals":
        return bool(struck)
    return any(fault.kind in kinds for fault in struck if fault.act in ("drop", "hold"))


def tried(*faults: Fault, protocol: str = SPLIT) -> End:
    return disturbed(told(protocol), *faults)


@cache
def undisturbed(protocol: str = SPLIT) -> End:
    return tried(protocol=protocol)


def check(end: End, protocol: str = SPLIT) -> None:
    disturbance.check(end, undisturbed(protocol), learned=learned(end, protocol))


def faults(kinds: tuple[str, ...]) -> st.SearchStrategy[Fault]:
    acts = st.sampled_from(("drop", "repeat", "hold", "again", "unbound", "delay", "cut"))
    parties, number = st.sampled_from(("party1", "party2")), st.integers(0, 4)
    return st.builds(Fault, acts, st.sampled_from(kinds), parties, number, st.sampled_from((*kinds, "")))  # type: ignore[arg-type]


def scripts(protocol: str) -> st.SearchStrategy[list[Fault]]:
    down, up = (*DOWN, *messages(protocol, server=True)), (*UP, *messages(protocol, server=False))
    return st.lists(st.one_of(faults(down), faults(up)), min_size=1, max_size=4)


@pytest.mark.timeout(0 if EXAMPLES else 120)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_no_script_of_faults_breaks_a_rule(protocol: str) -> None:
    @settings(
        max_examples=EXAMPLES or PROTOCOLS[protocol][1], derandomize=not EXAMPLES, database=None,
        phases=[Phase.generate], suppress_health_check=list(HealthCheck), deadline=None,
    )  # fmt: skip
    @given(scripts(protocol))
    def played(script: list[Fault]) -> None:
        check(tried(*script, protocol=protocol), protocol)

    played()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_undisturbed_run_ends_well_and_at_once(protocol: str) -> None:
    end = undisturbed(protocol)
    assert set(end.errors.values()) == {None} and all(LAST in models for models in end.models.values())
    assert end.seconds == 0 and not end.relay.silences and not end.relay.wrongs


def test_a_parcel_of_an_ended_connection_reaches_no_protocol_side() -> None:
    """It comes without a session on the new line, while the server waits for another party."""
    script = (
        Fault("unbound", "Embedding", "party1", 0, "Hello"),
        Fault("cut", "Embedding", "party1", 1),
        Fault("cut", "Embedding", "party2", 1),
        Fault("delay", "Hello", "party2", 1),
    )
    end = tried(*script)
    check(end)
    assert end.relay.struck == set(script) and "nothing before Begin" in str(end.errors["party1"])


def test_a_lost_connection_costs_no_bit() -> None:
    end = tried(Fault("cut", "Gradient", "party1", 2))
    check(end)
    assert end.relay.struck and set(end.errors.values()) == {None}


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Fault("hold", "Saved", "party1", 1, "Farewell"), None),
        (Fault("drop", "Saved", "party1", 2), "party1 was lost: no checkpoint of round 4 within 20 s"),
    ],
    ids=["of round 2, until the end", "of the last round"],
)
def test_a_party_whose_checkpoint_is_not_confirmed_is_named_alone(fault: Fault, error: str | None) -> None:
    end = tried(fault)
    check(end)
    failed = [event for event in end.events if "has not confirmed" in event.get("reason", "")]
    assert [(event["party"], event["round"]) for event in failed] == ([] if error else [("party1", 2)])
    assert (str(end.errors["server"]) if error else end.errors["server"]) == error
    assert end.seconds == 20 and end.relay.silences == 0


def test_the_checks_can_fail() -> None:
    sound = undisturbed()
    check(sound)
    for wrong in (
        replace(sound, errors={**sound.errors, "party1": ValueError("undeclared")}),
        replace(sound, models={**sound.models, "party1": {LAST: {}}}),
    ):
        with pytest.raises(AssertionError):
            check(wrong)
    dropped = tried(Fault("drop", "Gradient", "party1", 1))
    assert dropped.models["party1"][LAST] != sound.models["party1"][LAST]


def test_a_party_that_checks_no_instructions_is_found() -> None:
    with patch.object(Instructions, "check", lambda _self, _item: None):
        end = tried(Fault("repeat", "Open", "party1", 1))
    assert end.relay.wrongs == ["a party side was taken back from round 2 to 2"]


def test_a_server_that_hears_before_begin_is_found() -> None:
    relay = undisturbed().relay
    found = replace(relay, wrongs=[])
    with found.watched(), contextlib.suppress(ContractError):
        Link("party1", {}, {}, lambda _item: None, Mailbox()).deliver(Gradient(1, torch.zeros(1, 1)))
    assert found.wrongs == ["the server side got Gradient from party1 outside of a session"]
