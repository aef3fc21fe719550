"""Signed statements between certified parties, without a server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from colonnade.client.transcript.receipts import Receipts
from colonnade.client.transcript.statement import WindowStatement
from colonnade.client.transcript.transcript import PartyTranscript
from colonnade.common.conversation.control import Open, Statement
from colonnade.common.crypto.sealing import Session
from colonnade.common.crypto.told import TranscriptError
from tests.support.meeting import NAMES, SESSION, Meeting, certified_meeting, contexts


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Meeting:
    return certified_meeting(tmp_path_factory.mktemp("statements") / "certs")


class Certified:
    """A party's transcript, what it has sent, and what it has found."""

    def __init__(self, meeting: Meeting, name: str, session: Session = SESSION) -> None:
        self.sent: list[Statement] = []
        self.found: list[Exception] = []
        federation = meeting.pinned(contexts()[0].federation)
        transcript = PartyTranscript(
            name, federation, session, meeting.identities[name],
            in_step=True, send=lambda said: self.sent.append(replace(said, party=name)),
            report=lambda _error, _ends: None, fail=self.found.append,
        )  # fmt: skip
        self.hear = transcript.inward(lambda _item: None)
        transcript.begin()


def test_signed_statements_that_agree_find_nothing(certified: Meeting) -> None:
    parties, heard = {name: Certified(certified, name) for name in NAMES}, set[tuple[str, bytes]]()
    for number in range(1, 120):
        for party in parties.values():
            party.hear(Open(number))
        for said in [said for party in parties.values() for said in party.sent]:
            for name, party in parties.items():
                if name != said.party and (name, said.signature) not in heard:
                    heard.add((name, said.signature))
                    party.hear(said)
    for party in parties.values():
        assert len(party.sent) == 3 and not party.found
    assert len(heard) == 3 * 3 * 2


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
