"""Signed statements between certified parties, without a server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from colonnade.client.transcript.receipts import Receipts
from colonnade.client.transcript.statement import WindowStatement
from colonnade.client.transcript.transcript import PartyTranscript
from colonnade.common.config.run_options import TranscriptConfig
from colonnade.common.conversation.parcels import Open, Relayed, Save, Statement
from colonnade.common.crypto.sealing import Session, TranscriptError
from colonnade.common.errors import ContractError
from tests.support.meeting import NAMES, SESSION, Meeting, certified_meeting, contexts


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Meeting:
    return certified_meeting(tmp_path_factory.mktemp("statements") / "certs")


class Certified:
    """A party's transcript, what it has sent, and what it has found."""

    def __init__(self, meeting: Meeting, name: str, session: Session = SESSION, every: int = 50) -> None:
        self.sent: list[Statement] = []
        self.found: list[Exception] = []
        federation = meeting.pinned(contexts()[0].federation)
        federation = federation.model_copy(update={"transcript": TranscriptConfig(every=every)})
        transcript = PartyTranscript(
            name, federation, session, meeting.identities.get(name),
            in_step=True, send=lambda said: self.sent.append(replace(said, party=name)),
            report=lambda _error, _ends: None, fail=self.found.append,
        )  # fmt: skip
        self.receive = transcript.inward(lambda _item: None)
        transcript.begin()

    def hear(self, *said: Statement) -> None:
        self.receive(Relayed.of(said))


def test_signed_statements_that_agree_find_nothing(certified: Meeting) -> None:
    parties, heard = {name: Certified(certified, name) for name in NAMES}, set[tuple[str, bytes]]()
    for number in range(1, 120):
        for party in parties.values():
            party.receive(Open(number))
        for said in [said for party in parties.values() for said in party.sent]:
            for name, party in parties.items():
                if name != said.party and (name, said.signature) not in heard:
                    heard.add((name, said.signature))
                    party.hear(said)
    for party in parties.values():
        assert len(party.sent) == 3 and not party.found
    assert len(heard) == 3 * 3 * 2


def everyone(certified: Meeting, last: int, **saves: Save) -> dict[str, Certified]:
    """All parties after rounds up to `last`, of which each has opened a window, and has been asked for a checkpoint."""
    parties = {name: Certified(certified, name, every=3) for name in NAMES}
    for name, party in parties.items():
        for number in range(1, last + 1):
            party.receive(Open(number))
        party.receive(saves.get(name, Save(last)))
    return parties


def go_on(parties: dict[str, Certified], first: int, last: int) -> None:
    for number in range(first, last + 1):
        for party in parties.values():
            party.receive(Open(number))


def texts(party: Certified) -> list[str]:
    return [str(error) for error in party.found]


def test_different_lists_for_two_parties_end_with_both_refusing(certified: Meeting) -> None:
    """The server has asked two parties for different checkpoints, and hides from each what the other has stated."""
    told = {"ada": Save(3), "bob": Save(3, keep=2)}
    open_ = everyone(certified, 3, **told)
    go_on(open_, 4, 4)
    shown = [said for party in open_.values() for said in party.sent]
    for name in ("ada", "bob"):
        open_[name].hear(*shown)
        assert "round 3" in texts(open_[name])[0] and "was told another Save than we were" in texts(open_[name])[0]

    hidden = everyone(certified, 3, **told)
    go_on(hidden, 4, 4)
    hidden["ada"].hear(*hidden["ada"].sent, *hidden["eve"].sent)
    hidden["bob"].hear(*hidden["bob"].sent)
    assert not hidden["ada"].found and not hidden["bob"].found
    go_on(hidden, 5, 15)
    for name, other in (("ada", "bob"), ("bob", "ada")):
        assert texts(hidden[name]) == [f"the server has not relayed {other}'s statement of rounds 1 to 3"]


@pytest.mark.parametrize(
    ("show", "found"),
    [
        (lambda a, b: [*a, b[0], b[2]], "the server has not relayed bob's statement number 1, and has relayed number"),
        (lambda a, b: [replace(a[0], body=b[1].body), replace(b[0], body=a[0].body)], "one that was altered"),
        (lambda a, b: [replace(a[0], party="bob"), replace(b[0], party="eve")], "one that was altered"),
        (lambda _a, b: [b[0], b[1], b[1]], "the server has relayed as a statement of bob number 1 again"),
        (lambda _a, b: [b[0], b[1], b[0]], "the server has relayed as a statement of bob number 0 again"),
        (lambda _a, b: [b[0], replace(b[1], body=b[1].body[:-1])], "one that was altered"),
        (lambda _a, b: [b[0], replace(b[1], signature=b[1].signature[:-1])], "one that was altered"),
        (lambda _a, b: [replace(b[0], party="mallory")], "statement of mallory one of another party than those of the"),
        (lambda _a, b: [replace(b[0], party="")], "one of another party than those of the roster"),
        (lambda a, b: [replace(b[0], certificate=a[0].certificate, signature=a[0].signature)], "one that was altered"),
    ],
    ids=[
        "one dropped", "two bodies swapped", "two authors swapped", "a party twice", "an earlier window", "shorter",
        "a shorter signature", "a stranger's", "nobody's", "a key that is another's",
    ],
)  # fmt: skip
def test_a_list_that_is_not_the_parties_own_is_refused(
    certified: Meeting, show: Callable[[list[Statement], list[Statement]], list[Statement]], found: str
) -> None:
    parties = everyone(certified, 7)
    (ada, bob, eve) = (parties[name] for name in NAMES)
    assert [len(party.sent) for party in parties.values()] == [3, 3, 3]
    eve.hear(*show(ada.sent, bob.sent))
    (text,) = texts(eve)
    assert found in text


def test_a_list_with_a_strangers_key_is_refused(certified: Meeting, tmp_path: Path) -> None:
    """A certificate for a name of the roster, which the roster does not pin."""
    other = Certified(certified_meeting(tmp_path / "certs"), "bob")
    eve = Certified(certified, "eve")
    eve.hear(*other.sent)
    assert "the server has relayed as a statement of bob one that was altered" in texts(eve)[0]


def test_a_statement_of_an_earlier_run_is_refused(certified: Meeting) -> None:
    before, eve = Certified(certified, "bob", replace(SESSION, run="run 0")), Certified(certified, "eve")
    eve.hear(*before.sent)
    assert texts(eve) == ["bob was told run run 0, we were told run run 1"]


@pytest.mark.parametrize(
    "torn",
    [
        {"parties": ("bob", "bob")}, {"places": ()}, {"places": (1,)}, {"signatures": ()}, {"certificates": (b"", b"")},
        {"bodies": ()},
    ],
    ids=str,
)  # fmt: skip
def test_a_list_whose_parts_have_different_lengths_is_refused(certified: Meeting, torn: dict[str, Any]) -> None:
    bob, eve = Certified(certified, "bob"), Certified(certified, "eve")
    eve.receive(replace(Relayed.of(bob.sent), **torn))
    (error,) = eve.found
    assert isinstance(error, ContractError) and "server sent Relayed: expected a party, a place and a" in str(error)


def test_what_a_party_has_stated_itself_is_not_compared(certified: Meeting) -> None:
    bob = Certified(certified, "bob")
    bob.hear(*bob.sent, replace(bob.sent[0], body=b"{}"))
    assert not bob.found


@given(st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40)
def test_statements_are_compared_in_whatever_frames_they_come(data: st.DataObject) -> None:
    """Parties that state the same are compared together, however their statements are spread over frames."""
    lies = data.draw(st.booleans())
    parties = {name: Certified(Meeting(), name, every=3) for name in NAMES}
    waiting: dict[str, list[Statement]] = {name: [] for name in NAMES}

    def relay() -> None:
        for name in NAMES:
            queue = [said for other in NAMES for said in waiting[other] if other != name]
            while queue:
                cut = data.draw(st.integers(1, len(queue)))
                parties[name].hear(*queue[:cut])
                queue = queue[cut:]
        for each in waiting.values():
            each.clear()

    for number in range(1, 14):
        go_on(parties, number, number)
        if number == 8:
            for name, party in parties.items():
                party.receive(Save(number, keep=2 if lies and name == "bob" else 0))
        for name, party in parties.items():
            waiting[name] += party.sent
            party.sent.clear()
        if data.draw(st.booleans()) or number == 13:
            relay()
    found = {name: texts(party) for name, party in parties.items()}
    assert all(bool(errors) == lies for errors in found.values())
    assert all("was told another Save than we were" in text for errors in found.values() for text in errors)


@pytest.mark.parametrize(
    "alter",
    [
        lambda said: replace(said, body=said.body.replace(b'"last":0', b'"last":1')),
        lambda said: replace(said, signature=b""),
        lambda said: replace(said, certificate=b"", signature=b""),
        lambda said: replace(said, party="eve"),
    ],
    ids=["another body", "no signature", "no certificate", "in another's name"],
)
def test_an_altered_statement_is_refused(certified: Meeting, alter: Callable[[Statement], Statement]) -> None:
    ada, bob = Certified(certified, "ada"), Certified(certified, "bob")
    ada.hear(alter(bob.sent[0]))
    (error,) = ada.found
    assert isinstance(error, TranscriptError) and "one that was altered" in str(error)


def test_a_statement_of_an_earlier_session_is_refused(certified: Meeting) -> None:
    ada, before = Certified(certified, "ada"), Certified(certified, "bob", replace(SESSION, number=6))
    ada.hear(before.sent[0])
    assert [str(error) for error in ada.found] == ["bob was told session 6, we were told session 7"]


@pytest.mark.parametrize("mask", ["-1", "+1", "0x1", "1_0", " 1", ""])
def test_a_mask_is_hexadecimal_digits_alone(mask: str) -> None:
    with pytest.raises(ValueError, match="mask"):
        Receipts("one", ("one", "two")).compare("two", {"exchanges": [[1, "0", mask]]})


def test_a_truth_value_is_no_number_of_a_statement() -> None:
    with pytest.raises(ValueError, match="not what a party was told"):
        WindowStatement.decode(WindowStatement(0, False, {"session": True}, 0).encode())
