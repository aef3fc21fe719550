"""FedVS where sets other than all parties are possible: parties confirm the set first; settings that are refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from colonnade.common.aggregation.messages import SetProof, SetProofs
from colonnade.common.conversation.conversation import Cohort
from colonnade.common.conversation.parcels import Item
from colonnade.common.errors import ConfigError, DataError, PartyLost
from colonnade.common.protocols.fedvs import Answer, Bundle, Config
from tests.support.altered_lines import change_each
from tests.support.federation import Outcome, config, federate, parameters

PROTOCOL = {"name": "fedvs", "embedding": 4, "segments": 1}
SETS = (
    "federation.parties=6", "federation.rounds=3", "federation.epochs=0",
    "federation.rows.validation=0", "federation.transcript.every=0",
)  # fmt: skip
QUORUM = "federation.quorum={need: 4, grace: 1}"


def run(*sets: str, **how: Any) -> Outcome:
    return federate(config(PROTOCOL, *SETS, *sets), **how)


def late(kind: type, seconds: float, *names: str) -> Any:
    """Messages of a kind of some parties in round 2."""

    def delay(sender: str, _to: str, item: object) -> float:
        return seconds if isinstance(item, kind) and sender in names and item.round == 2 else 0.0

    return delay


def test_confirming_changes_no_bit_of_a_run() -> None:
    one, two = run(), run(QUORUM)
    ours, theirs = parameters(one), parameters(two)
    assert all(torch.equal(ours[name], theirs[name]) for name in ours) and one.server.metrics == two.server.metrics
    assert not [m for *_, m in one.messages if isinstance(m, SetProof | SetProofs)]


def test_every_stage_is_confirmed_by_all_to_all_with_32_bytes_a_party() -> None:
    outcome = run(QUORUM)
    for name in outcome.clients:
        sent = [m for sender, _, m in outcome.messages if sender == name and isinstance(m, SetProof)]
        heard = [m for _, to, m in outcome.messages if to == name and isinstance(m, SetProofs)]
        assert [(m.round, m.stage) for m in sent] == [(1, 0), (2, 0), (3, 0), (3, 1)]
        assert [(m.round, m.stage) for m in heard] == [(m.round, m.stage) for m in sent]
        assert {m.proofs.nbytes for m in sent + heard} == {6 * 32}


def test_parties_that_confirm_late_are_not_waited_for() -> None:
    """Two of six: the other four are enough, and their answers are."""
    sound, outcome = run(QUORUM), run(QUORUM, delay=late(SetProof, 9.0, "party5", "party6"))
    assert not outcome.of_kind("skipped")
    ours, theirs = ([(e["time"], e["loss"]) for e in one.of_kind("round")][:2] for one in (outcome, sound))
    assert ours == theirs


def test_without_enough_confirmations_nobody_answers() -> None:
    def refuse(cohort: Cohort) -> None:
        for name in ("party4", "party5", "party6"):
            cohort[name].deliver = refusing(cohort[name].deliver)  # type: ignore[method-assign]

    def refusing(deliver: Any) -> Any:
        def lie(item: Item) -> None:
            if isinstance(item, SetProof) and (item.round, item.stage) == (2, 0):
                item = replace(item, proofs=torch.empty(0, 32, dtype=torch.uint8))
            deliver(item)

        return lie

    outcome = run(QUORUM, on_cohort=refuse)
    assert [event["round"] for event in outcome.of_kind("skipped")] == [2]
    assert {m.round for *_, m in outcome.messages if isinstance(m, Answer) and not m.stage} == {1, 3}


def test_too_few_in_time_end_the_run() -> None:
    with pytest.raises(PartyLost, match="no SetProof for round 2"):
        run(QUORUM, "federation.timeouts.answer=5", delay=late(SetProof, 99.0, "party4", "party5", "party6"))


def test_a_party_without_a_share_confirms_and_goes_on_with_the_next_stage() -> None:
    """Proofs of the stage that it does not answer remain unread, and are not taken for the next one's."""

    def drop(cohort: Cohort) -> None:
        def lie(item: Item) -> Item:
            if isinstance(item, Bundle) and (item.round, item.stage) == (3, 0):  # nothing of the others arrives
                item = replace(item, boxes=item.boxes[:0], lengths=torch.zeros_like(item.lengths))
            return item

        change_each(cohort["party6"], lie)
        deliver = cohort["party6"].deliver

        def hear(item: Item) -> None:
            if type(item).__name__ == "Opened" and (item.round, item.stage) == (3, 0):  # type: ignore[union-attr]
                item = replace(item, senders=torch.ones_like(item.senders))  # type: ignore[union-attr,type-var,call-arg]
            deliver(item)

        cohort["party6"].deliver = hear  # type: ignore[method-assign]

    outcome = run(QUORUM, on_cohort=drop)
    assert not outcome.of_kind("skipped") and len(outcome.of_kind("evaluation")) == 1
    answers = [m for by, _, m in outcome.messages if isinstance(m, Answer) and (by, m.round) == ("party6", 3)]
    assert [(m.stage, len(m.h) > 0) for m in answers][:2] == [(0, False), (1, True)]


FEDVS = {"name": "fedvs", "embedding": 4}
NETWORKS = (
    "federation.parties=7",
    "federation.rounds=1",
    "federation.epochs=0",
    "every_party.model={name: polynomial, layers: 2}",
    "every_party.data.scale=unit",
)


@pytest.mark.parametrize(
    ("sets", "said", "hint"),
    [
        (("segments=4",), "7 parties cannot decode K = 4, T = 1: at least 9", "must not exceed their number"),
        (("masks=4",), "7 parties cannot decode K = 1, T = 4: at least 9", "lower `segments` (K) or `masks` (T)"),
        (("stragglers=5",), "stragglers = 5: with masks = 1 at least 3 of the 7 parties", "take stragglers up to 4"),
        (("stragglers=3", "masks=3"), "stragglers = 3: with masks = 3 at least 7 of the 7", "take stragglers up to 0"),
        (("prime=91",), "the field's p is 91, it must be an odd prime up to 2147483647", "take 89"),
        (("prime=2147483659",), "the field's p is 2147483659", "take 2147483647"),
        (("prime=7",), "the 10 points of a Lagrange code are not distinct", "a p larger than K + T + N"),
        (("segments=half",), "federation.protocol.segments = 'half'", ""),
    ],
)
def test_a_code_that_cannot_be(sets: tuple[str, ...], said: str, hint: str) -> None:
    with pytest.raises(ConfigError) as refused:
        config(FEDVS, *NETWORKS, *(f"federation.protocol.{each}" for each in sets))
    assert said in str(refused.value) and hint in refused.value.hint
    assert str(refused.value).count("federation.protocol") == 1


@pytest.mark.parametrize(
    ("sets", "said", "hint"),
    [
        ("federation.absence=wait", "federation.absence = wait: a party that comes back needs new keys", "rollback"),
        ("federation.privacy={clip: 1, noise_multiplier: 1}", "federation.privacy with the protocol fedvs", "leave it"),
        ("federation.compress.up=8", "federation.compress.up = 8 with the protocol fedvs", "compress.down"),
    ],
)
def test_sections_that_do_not_go_with_it(sets: str, said: str, hint: str) -> None:
    with pytest.raises(ConfigError) as refused:
        config(FEDVS, *NETWORKS, sets)
    assert said in str(refused.value) and hint in refused.value.hint


def test_gradients_may_be_compressed() -> None:
    assert config(FEDVS, *NETWORKS, "federation.compress.down=8").federation.compress.down == 8


@given(more=st.integers(0, 29), stragglers=st.integers(0, 40), masks=st.integers(1, 5))
def test_auto_takes_the_largest_that_allows_the_stragglers_or_refuses(more: int, stragglers: int, masks: int) -> None:
    parties = 2 * masks + 1 + more
    asked = Config(stragglers=stragglers, masks=masks)
    allowed = [k for k in range(1, 41) if parties - (2 * (k + masks - 1) + 1) >= stragglers]
    if allowed:
        assert asked.code(parties).segments == max(allowed)
    else:
        with pytest.raises(ConfigError, match=f"stragglers = {stragglers}"):
            asked.code(parties)


@pytest.mark.parametrize(
    ("sets", "error", "said"),
    [
        (("every_party.model={name: mlp}",), ConfigError, r"parties.party\d.model: fedvs computes on shares"),
        (
            ("federation.protocol.columns=19",),
            ConfigError,
            r"party1 has 21 columns .* federation.protocol.columns is 19",
        ),
        (("federation.protocol.prime=101",), DataError, r"party\d: the data are not all finite, or with 6 bits leave"),
        (
            ("federation.protocol.prime=1048573",),
            DataError,
            r"party\d: its embedding could leave its part of the field",
        ),
        (
            ("federation.rows={validation: 0, test: 1795}", "federation.batch=2", "federation.protocol.segments=3"),
            ConfigError,
            r"federation.protocol.segments = 3: there are 2 training rows",
        ),
    ],
)
def test_conflicts_visible_only_in_the_data_end_a_run(sets: tuple[str, ...], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        federate(config(FEDVS, *NETWORKS, *sets))
