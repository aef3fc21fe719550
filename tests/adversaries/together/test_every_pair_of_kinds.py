"""In every state of a session a message of any kind is dropped, repeated, swapped, or comes out of place.

A sample here; `make states` runs every pair of kinds in every state.

Bounds: messages (server, party).
"""

from __future__ import annotations

import asyncio
import gc
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from colonnade.client.dialling.instructions import Instructions
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.conversation.parcels import Relayed, Statement
from colonnade.common.conversation.relay import Relay
from colonnade.server.member.hub import Hub
from tests.support.disturbed import End
from tests.support.relay import Act, Fault
from tests.support.relay import Relay as Disturbing
from tests.support.states import OTHER, SETTINGS, VICTIM, Case, Line, Outcome, State, cases, sound, states
from tests.support.states import Phase as Part

EXAMPLES = 1  # of each setting
REWOUND = ("split", "recovered")


@pytest.mark.parametrize(("setting", "rewound"), [*((s, False) for s in SETTINGS), *((s, True) for s in REWOUND)])
def test_a_member_goes_on_to_the_same_result_or_says_who_made_it_end(setting: str, rewound: bool) -> None:
    @settings(
        max_examples=EXAMPLES, derandomize=True, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck), deadline=None,
    )  # fmt: skip
    @given(st.sampled_from(cases(setting, rewound=rewound)))
    def played(case: Case) -> None:
        Outcome(case, case.run()).check()

    played()


def ended(setting: str, fault: Fault, *, rewound: bool = False) -> End:
    """A fault whose parcel is found, and after which all rules hold."""
    case = Case(State(setting, rewound, Part.ROUND, fault.kind, fault.number, up=bool(fault.up)), fault)
    end = case.run()
    Outcome(case, end).check()
    assert fault in end.relay.struck
    return end


def up(act: Act, kind: str, number: int, other: str = "") -> Fault:
    return Fault(act, kind, VICTIM, number, other, up=True)


def down(act: Act, kind: str, number: int, other: str = "") -> Fault:
    return Fault(act, kind, VICTIM, number, other, up=False)


# Found in this way.


def test_a_set_that_a_party_does_not_confirm_is_told_to_the_server() -> None:
    """It named the honest parties, of which it had heard no more."""
    end = ended("confirmed", up("before", "Statement", 1, "SetProof"))
    assert str(end.errors[SERVER]).startswith("party2 failed: party1 does not confirm that round 1 sums over party1")
    assert end.seconds == 0


@pytest.mark.parametrize(
    ("setting", "fault"),
    [("coded", up("instead", "Statement", 2, "Opened")), ("codes", down("repeat", "Relayed", 1))],
    ids=["before the last checkpoint", "while it is written"],
)
def test_a_party_that_has_failed_is_not_asked_for_the_last_checkpoint(setting: str, fault: Fault) -> None:
    """The server waited for it in vain, and named honest parties for their silence."""
    end = ended(setting, fault, rewound=True)
    assert "party1's statement" in str(end.errors[SERVER]) or "statement of party2" in str(end.errors[SERVER])
    assert end.seconds == 0


@pytest.mark.parametrize("number", [0, 1])
def test_blocks_of_labels_are_taken_in_their_order_alone(number: int) -> None:
    """A repeated block counted as the next one."""
    end = ended("codes", down("repeat", "Labels", number))
    assert str(end.errors[VICTIM]) == f"server sent Labels block={number}: expected one in round 1, got a second"


@pytest.mark.parametrize(("setting", "kind"), [("split", "Gradient"), ("duals", "Update")])
def test_a_party_saves_no_round_whose_answer_it_has_dropped(setting: str, kind: str) -> None:
    """It was at fault with the server, took the answer for late, and said that the round was saved."""
    end = ended(setting, down("before", kind, 0, "Relayed"))
    assert str(end.errors[VICTIM]) == "the server has relayed as a statement of party2 number 0 again"
    assert not end.models[VICTIM]


@pytest.mark.usefixtures("no_garbage")
def test_an_error_that_the_server_has_found_first_is_not_reported_with_a_traceback(monkeypatch: Any) -> None:
    """Every member finds that no key is common."""
    reported: list[Any] = []
    monkeypatch.setattr(
        asyncio.BaseEventLoop, "call_exception_handler", lambda _loop, context: reported.append(context)
    )
    said = {str(error) for error in ended("aligned", up("instead", "Points", 1, "Points")).errors.values()}
    assert any("no key is common" in one for one in said)
    gc.collect()
    assert not reported


# The checks can fail.


def test_the_states_are_those_of_a_session() -> None:
    found = {state.phase for setting in SETTINGS for state in states(setting)}
    assert found | {state.phase for state in states("split", rewound=True)} == set(Part)
    line = Line()
    assert [line.step(kind) for kind in ("Hello", "Welcome", "Begin", "Open", "Masked", "Gradient", "Masked")] == [
        Part.HANDSHAKE, Part.HANDSHAKE, Part.READY, Part.ROUND, Part.SENDING, Part.RESPONSE, Part.EVALUATION,
    ]  # fmt: skip


def test_undisturbed_runs_of_all_settings_end_well() -> None:
    for setting in SETTINGS:
        end = sound(setting)
        assert set(end.errors.values()) == {None} and not end.relay.wrongs and end.seconds == 0
        assert end.status == "completed" and len(set(end.persons.values())) <= 1


def test_a_party_that_checks_no_instructions_is_found() -> None:
    with patch.object(Instructions, "check", lambda _self, _item: None), pytest.raises(AssertionError, match="back"):
        ended("split", down("repeat", "Open", 1))


def test_a_server_that_lets_a_party_speak_for_another_is_found() -> None:
    def taken(self: Relay, _party: str, statement: Statement) -> None:
        for link in self._links.values():
            link.pass_on(Relayed.of([statement]))

    found = pytest.raises(AssertionError, match=r"it has not sent|of another party")
    with patch.object(Relay, "take", taken), found:
        ended("split", up("before", "Embedding", 1, "Statement"))


def test_a_server_that_blames_the_silent_is_found() -> None:
    with patch.object(Hub, "whole", True), pytest.raises(AssertionError, match="no checkpoint of round 2"):
        ended("coded", up("instead", "Statement", 2, "Opened"), rewound=True)


def test_a_release_that_is_sent_twice_is_found() -> None:
    record = sound("split").relay
    first = next(one.piece for one in record.passed if one.piece.kind == "Embedding" and one.party == OTHER)
    relay = Disturbing(record.there)
    relay.check_release(OTHER, first)
    assert not relay.wrongs
    relay.check_release(OTHER, first)
    (wrong,) = relay.wrongs
    assert wrong == f"party2 released Embedding of [1] twice in session {first.session}"
