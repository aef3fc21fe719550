"""A party that vanishes in the round in which another one lies: the liar is named or the fault is stated, in time.

Bounds: blinded sums (party); FedVS's shares (party); messages (party).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch

from colonnade.common.aggregation.messages import Masked, OpenedShares, SealedShares, SetProof
from colonnade.common.aggregation.summed_sets import SetError
from colonnade.common.conversation.conversation import Cohort
from colonnade.common.conversation.parcels import Item
from colonnade.common.errors import ColonnadeError, ContractError, PartyLost, TrainingDiverged
from colonnade.common.messaging.message import Message
from colonnade.common.protocols.codes import Codes
from colonnade.common.protocols.fedvs import Answer, Opened, Shares
from colonnade.common.protocols.vimadmm import Embedding
from tests.support.federation import Outcome, config, federate, parameters

LIAR, ROUND, ROUNDS = "party2", 2, 3
ANSWER = 20  # seconds that a party has
BOUND = 4 * ANSWER  # virtual seconds within which every run ends: no wait but those for the two
SETS = (
    f"federation.rounds={ROUNDS}", "federation.epochs=0", "federation.evaluate.every=99", "federation.batch=64",
    "federation.rows={train: 192, validation: 0, test: 32}", f"federation.timeouts.answer={ANSWER}",
)  # fmt: skip
SEVEN, OF_FOUR = "federation.parties=7", ("federation.quorum={need: 3, grace: 0.2}",)
PROTOCOLS: Mapping[str, tuple[Mapping[str, Any], tuple[str, ...]]] = {
    "vimadmm": ({"name": "vimadmm", "tau": 1}, OF_FOUR),
    "codes": ({"name": "codes", "steps": 2}, OF_FOUR),
    "split_avg": (
        {"name": "split_avg", "embedding": 4, "aggregate": "blinded"},
        (SEVEN, "federation.quorum={need: 4, grace: 0.2}", "federation.blinding.recovery=alone"),
    ),
    "fedvs": ({"name": "fedvs", "embedding": 4, "segments": 1}, (SEVEN, "federation.quorum={need: 5, grace: 0.2}")),
}
Lie = Callable[[Any], Message | list[Message] | None]


class Faults:
    """What a party sends is altered in one message, and another's is taken away from one on, statements too.

    Args:
        lies: altered: (kind, its round, the change); None for a party that is honest.
        last: the first kind of the round that does not come of the other.
    """

    def __init__(self, lies: tuple[type[Message], int, Lie] | None, last: type[Message] | None) -> None:
        self._lies, self._last, self._gone = lies, last, False

    def __call__(self, cohort: Cohort) -> None:
        for name, change in ((LIAR, self._lie), (tuple(cohort)[-1], self._vanish)):
            cohort[name].deliver = self._through(cohort[name].deliver, change)  # type: ignore[method-assign]

    @staticmethod
    def _through(deliver: Callable[[Item], None], change: Callable[[Item], Sequence[Item]]) -> Callable[[Item], None]:
        def altered(item: Item) -> None:
            for made in change(item):
                deliver(made)

        return altered

    def _lie(self, item: Item) -> Sequence[Item]:
        if self._lies is None or not isinstance(item, self._lies[0]) or item.round != self._lies[1]:
            return [item]
        made = self._lies[2](item)
        return made if isinstance(made, list) else [] if made is None else [made]

    def _vanish(self, item: Item) -> Sequence[Item]:
        self._gone = self._gone or (self._last is not None and isinstance(item, self._last) and item.round == ROUND)
        return [] if self._gone else [item]


def play(
    protocol: str, lie: Lie | None, of: type[Message], last: type[Message] | None, at: int = ROUND, *more: str
) -> Outcome:
    section, sets = PROTOCOLS[protocol]
    faults = Faults(None if lie is None else (of, at, lie), last)
    outcome = federate(config(section, *SETS, *sets, *more), on_cohort=faults)
    assert outcome.seconds < BOUND
    return outcome


@cache
def without_lie(protocol: str, last: type[Message]) -> Outcome:
    return play(protocol, None, last, last)


def flipped(field: str) -> Lie:
    return lambda message: replace(message, **{field: getattr(message, field) ^ 1})


def shorter(field: str) -> Lie:
    return lambda message: replace(message, **{field: getattr(message, field)[:-1]})


def twice(message: Message) -> list[Message]:
    return [message, message]


def of_round(round: int) -> Lie:
    return lambda message: replace(message, round=round)


NEITHER = f"{LIAR} was lost: no %s for round {ROUND} within {ANSWER} s \\(nor from party4\\)"
CLEAR: Mapping[str, tuple[str, type[Message], Lie, type[ColonnadeError], str]] = {
    "duals, not finite": ("vimadmm", Embedding, lambda m: replace(m, h=m.h * torch.nan), TrainingDiverged, LIAR),
    "duals, fewer rows": ("vimadmm", Embedding, shorter("h"), ContractError, f"^{LIAR} sent Embedding.h: "),
    "duals, far ahead": ("vimadmm", Embedding, of_round(40), ContractError, f"^{LIAR} sent Embedding.round: "),
    "duals, a round late": ("vimadmm", Embedding, of_round(1), PartyLost, NEITHER % "Embedding"),
    "duals, none": ("vimadmm", Embedding, lambda _: None, PartyLost, NEITHER % "Embedding"),
    "codes, twice as much": ("codes", Codes, lambda m: replace(m, s=m.s * 2), ContractError, f"^{LIAR} sent Codes.s: "),
    "codes, empty sets": ("codes", Codes, lambda m: replace(m, s=m.s * 0), ContractError, f"^{LIAR} sent Codes.s: "),
    "codes, all codes": ("codes", Codes, lambda m: replace(m, s=m.s * 0 + 1), ContractError, f"^{LIAR} sent Codes.s: "),
    "codes, fewer rows": ("codes", Codes, shorter("s"), ContractError, f"^{LIAR} sent Codes.s: "),
    "codes, a round late": ("codes", Codes, of_round(1), PartyLost, NEITHER % "Codes"),
}


@pytest.mark.parametrize("case", CLEAR)
def test_in_the_clear_the_liar_is_named_and_never_the_silent_one_alone(case: str) -> None:
    """The server named party4, which had only not answered, where the liar's message had broken the contract."""
    protocol, kind, lie, error, said = CLEAR[case]
    with pytest.raises(error, match=said):
        play(protocol, lie, kind, kind)


@pytest.mark.parametrize("case", ["duals, not finite", "duals, fewer rows", "duals, far ahead"])
def test_a_quorum_without_the_liar_neither_hides_it_nor_goes_on_unless_that_is_agreed(case: str) -> None:
    """Three honest answers are enough for the round: the lie was dropped without a word."""
    protocol, kind, lie, error, said = CLEAR[case]
    with pytest.raises(error, match=said):
        play(protocol, lie, kind, None)
    outcome = play(protocol, lie, kind, None, ROUND, "federation.absence=continue")
    warned = [event["reason"] for event in outcome.of_kind("warning") if event["party"] == LIAR]
    assert re.search(said, warned[0]) and "rounds go on without it" in warned[0]
    assert {event["party"] for event in outcome.of_kind("missing")} == {LIAR} and outcome.status == "completed"


BLINDED: Mapping[str, tuple[type[Message], int, Lie, type[ColonnadeError], str]] = {
    "opens wrong shares": (OpenedShares, 2, flipped("pads"), ContractError, f"^{LIAR} sent OpenedShares.pads: "),
    "dealt wrong shares": (SealedShares, 1, flipped("shares"), ContractError, f"^{LIAR} sent OpenedShares.pads: "),
    "proves another set": (SetProof, 2, flipped("proofs"), SetError, f"^{LIAR} does not confirm that round 2 sums ov"),
    "sends fewer rows": (Masked, 2, shorter("words"), ContractError, f"^{LIAR} sent Masked.words: "),
}


@pytest.mark.parametrize("last", [Masked, SetProof, OpenedShares])
@pytest.mark.parametrize("case", BLINDED)
def test_while_a_blinded_sum_is_recovered_the_liar_is_named_alone(case: str, last: type[Message]) -> None:
    kind, at, lie, error, said = BLINDED[case]
    with pytest.raises(error, match=said):
        play("split_avg", lie, kind, last, at)


CODED: Mapping[str, tuple[type[Message], Lie, type[ColonnadeError], str]] = {
    "computes something else": (Answer, lambda m: replace(m, h=m.h ^ 1), ContractError, f"^{LIAR} sent Answer.h: "),
    "sums over another set": (
        Answer, lambda m: replace(m, senders="0" * 16), ContractError, f"^{LIAR} sent Answer.senders: ",
    ),
    "proves another set": (SetProof, flipped("proofs"), SetError, f"^{LIAR} does not confirm that round 2 sums over"),
    "shares its model twice": (Shares, twice, ContractError, f"^{LIAR} sent Shares: expected one a stage, got a s"),
}  # fmt: skip


@pytest.mark.parametrize("last", [Shares, Answer])
@pytest.mark.parametrize("case", CODED)
def test_while_a_coded_sum_lacks_a_party_the_liar_is_named_alone(case: str, last: type[Message]) -> None:
    kind, lie, error, said = CODED[case]
    with pytest.raises(error, match=said):
        play("fedvs", lie, kind, last)


def test_boxes_that_nobody_can_open_cost_their_sender_its_part_of_the_sum() -> None:
    outcome = play("fedvs", lambda m: replace(m, boxes=m.boxes[:, :-1]), Shares, Shares)
    partial = next(event for event in outcome.of_kind("partial_sum") if event["round"] == ROUND)
    assert partial["without"] == [LIAR, "party7"] and set(partial["unopened"]) == {LIAR}
    assert len(partial["unopened"][LIAR]) >= 3 and not outcome.of_kind("skipped")  # of the first R that have said


def test_a_party_that_claims_to_have_opened_nothing_costs_the_round_and_is_in_the_record() -> None:
    outcome = play("fedvs", lambda m: replace(m, senders=m.senders * 0), Opened, Shares)
    assert [event["round"] for event in outcome.of_kind("skipped")] == [ROUND]
    said = [event["unopened_by"] for event in outcome.of_kind("abandoned") if event["party"] not in (LIAR, "party7")]
    assert said == [[LIAR]] * 5
    rounds = [event["round"] for event in outcome.of_kind("round") if "loss" in event]
    assert rounds == [1, 3]


@pytest.mark.parametrize(("protocol", "last"), [("vimadmm", Embedding), ("split_avg", Masked), ("fedvs", Answer)])
def test_a_message_that_is_sent_again_changes_no_bit(protocol: str, last: type[Message]) -> None:
    """The one harmless fault: the result is that of the run without the lie, in which the party vanishes too."""
    sound = without_lie(protocol, last)
    assert len([event for event in sound.of_kind("round") if "loss" in event]) == ROUNDS
    assert {event["party"] for event in sound.of_kind("missing")} == {tuple(sound.clients)[-1]}
    again = play(protocol, twice, last, last)
    for name, values in parameters(again).items():
        assert torch.equal(values, parameters(sound)[name]), name
