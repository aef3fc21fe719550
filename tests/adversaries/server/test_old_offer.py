"""A server that repeats an old offer, or shows parties different keys, with run and session number as they were.

Bounds: blinded sums (server).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch

from colonnade.common.aggregation.messages import KeyProofs, KeyRing
from colonnade.common.conversation.parcels import Item
from colonnade.common.crypto.signatures import ForgedError
from colonnade.common.messaging.raw import lay_out, take_apart
from tests.support.altered_lines import change_each
from tests.support.federation import config, federate
from tests.support.meeting import NAMES, Meeting, Passes, certified_meeting

NOT_CONFIRMED = "does not confirm the agreed keys: it was shown other keys"


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Meeting:
    return certified_meeting(tmp_path_factory.mktemp("offers") / "certs")


@pytest.fixture(params=["with certificates", "without"])
def meeting(request: pytest.FixtureRequest, certified: Meeting) -> Meeting:
    return certified if request.param == "with certificates" else Meeting()


def overheard(meeting: Meeting) -> tuple[KeyRing, KeyProofs]:
    """Messages to ada in the key agreement of one session of a run."""
    sent: list[Any] = []
    replace(meeting, passes={"ada": lambda item: sent.append(item) or item}).run()
    ring, proofs = sent
    return ring, proofs


def with_old_offer(old: KeyRing, whose: str) -> Passes:
    """A ring in which one offer is that of an earlier agreement: signed by its party, and for the same numbers."""
    place = NAMES.index(whose)

    def passes(item: Item) -> Item:
        if not isinstance(item, KeyRing):
            return item
        keys = item.keys.clone()
        keys[place] = old.keys[place]
        signatures = take_apart(item.signatures, item.signature_lengths)
        signatures[place] = take_apart(old.signatures, old.signature_lengths)[place]
        signed, lengths = lay_out(signatures)
        return replace(item, keys=keys, signatures=signed, signature_lengths=lengths)

    return passes


def test_an_old_offer_with_run_and_session_number_repeated_is_refused(meeting: Meeting) -> None:
    """Its signature verifies: only the proof shows that it is old."""
    old, _ = overheard(meeting)
    with pytest.raises(ForgedError, match=rf"^'(bob|ada|eve)' {NOT_CONFIRMED}"):
        replace(meeting, passes={"ada": with_old_offer(old, "bob")}).run()


def test_the_old_proof_beside_it_does_not_help(meeting: Meeting) -> None:
    ring, proofs = overheard(meeting)
    alter = with_old_offer(ring, "bob")
    passes = {"ada": lambda item: proofs if isinstance(item, KeyProofs) else alter(item)}
    with pytest.raises(ForgedError, match=rf"^'(bob|ada|eve)' {NOT_CONFIRMED}"):
        replace(meeting, passes=passes).run()


def test_a_pair_does_not_agree_if_one_of_them_was_shown_an_old_key_of_a_third(meeting: Meeting) -> None:
    """Keys of a pair depend on all offers: bob, with the right key, does not confirm ada's."""
    old, _ = overheard(meeting)
    with pytest.raises(ForgedError, match=rf"^'bob' {NOT_CONFIRMED} than 'ada' was"):
        replace(meeting, passes={"ada": with_old_offer(old, "eve")}).run()


@pytest.mark.parametrize(
    "lie",
    [torch.zeros_like, lambda proofs: proofs.flip(0), lambda proofs: proofs ^ 1],
    ids=["none", "exchanged", "altered"],
)
def test_proofs_that_a_server_makes_up_are_refused(
    meeting: Meeting, lie: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    def passes(item: Item) -> Item:
        return replace(item, proofs=lie(item.proofs)) if isinstance(item, KeyProofs) else item

    with pytest.raises(ForgedError, match=NOT_CONFIRMED):
        replace(meeting, passes={"ada": passes}).run()


@pytest.mark.parametrize(
    "protocol",
    [{"name": "fedvs", "embedding": 4}, {"name": "split_avg", "embedding": 4, "aggregate": "blinded"}],
    ids=["sealed", "masked"],
)
def test_nothing_is_sealed_or_masked_before_all_have_confirmed(protocol: Mapping[str, Any]) -> None:
    """Parties send only offers and proofs to a server with proofs that differ between parties."""
    left: list[str] = []

    def alter(cohort: Any) -> None:
        for link in cohort.values():
            change_each(
                link, lambda item: replace(item, proofs=item.proofs ^ 1) if isinstance(item, KeyProofs) else item
            )

    def delay(sender: str, _to: str, item: Item) -> float:
        left.extend([type(item).__name__] if sender != "server" else [])
        return 0.0

    with pytest.raises(ForgedError, match=NOT_CONFIRMED):
        federate(config(protocol, "federation.rounds=1", "federation.epochs=0"), delay=delay, on_cohort=alter)
    assert left == ["KeyOffer"] * 4 + ["KeyProof"] * 4


def test_an_agreement_costs_two_small_messages_each_way(meeting: Meeting) -> None:
    sent: list[Item] = []
    replace(meeting, passes={"ada": lambda item: sent.append(item) or item}).run()
    assert [type(item) for item in sent] == [KeyRing, KeyProofs]
    assert sent[1].proofs.nbytes == 64 * len(NAMES)
