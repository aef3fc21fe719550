"""A server that decodes a sum of too few parties' embeddings in FedVS: parties answer for no such set.

Bounds: FedVS's shares (server).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from colonnade.common.config.members import Config
from colonnade.common.config.run_options import QuorumConfig
from colonnade.common.errors import ConfigError, ContractError
from colonnade.common.protocols.fedvs import Answer, Senders
from tests.support.altered_lines import change_each
from tests.support.federation import config, federate

PROTOCOL = {"name": "fedvs", "embedding": 8, "segments": 1}
SHORT = ("federation.rounds=3", "federation.epochs=0", "federation.evaluate.every=99")
SLOW = tuple(f"parties.party{number}.chaos.delay={{Shares: 3s}}" for number in (2, 3, 4))


def said(*sets: str) -> Config:
    """Four parties; any three responses decode."""
    return config(PROTOCOL, *SHORT, *sets)


def never_checked(cfg: Config, need: int, grace: float) -> Config:
    """The same with a quorum that was not validated."""
    quorum = QuorumConfig(need=need, grace=grace)
    return cfg.model_copy(update={"federation": cfg.federation.model_copy(update={"quorum": quorum})})


def announcing(members: list[int]) -> Callable[[Any], None]:
    """A server that announces this set of senders from round 2 on, regardless of who has shared."""

    def alter(cohort: Any) -> None:
        for link in cohort.values():
            change_each(link, lie)

    def lie(item: object) -> object:
        if isinstance(item, Senders) and item.round >= 2:
            item = replace(item, senders=torch.tensor(members, dtype=torch.uint8))
        return item

    return alter


def answered(sent: list[Answer]) -> Callable[[str, str, object], float]:
    """Records every `Answer` that leaves a party."""

    def delay(_sender: str, _to: str, item: object) -> float:
        sent.extend([item] if isinstance(item, Answer) and len(item.h) else [])
        return 0.0

    return delay


@pytest.mark.parametrize("quorum", ["{deadline: 0.5}", "{fastest: 2}", "{need: 1, grace: 0.5}"])
def test_a_configuration_that_allows_such_sums_is_refused(quorum: str) -> None:
    with pytest.raises(ConfigError, match=r"federation\.quorum\.need = \d: a sum is of at least 3 parties") as refused:
        said(f"federation.quorum={quorum}", *SLOW)
    assert "{need: 3, grace: SECONDS}" in refused.value.hint


def test_our_server_computes_no_sum_if_only_one_party_is_in_time() -> None:
    """The decoded sum was one party's embeddings, in every round."""
    sent: list[Answer] = []
    outcome = federate(never_checked(said(*SLOW), 0, 0.5), delay=answered(sent))
    assert sent == []
    assert [event["round"] for event in outcome.of_kind("skipped")] == [1, 2, 3]
    assert {event["party"] for event in outcome.of_kind("abandoned")} == {"party2", "party3", "party4"}


@pytest.mark.parametrize("members", [[1, 0, 0, 0], [0, 1, 0, 1]], ids=["one", "two"])
def test_parties_respond_for_sets_of_at_least_three(members: list[int]) -> None:
    sent: list[Answer] = []
    with pytest.raises(ContractError, match=r"server sent Senders\.senders: expected at least 3 parties"):
        federate(said("federation.quorum={need: 3, grace: 1}"), delay=answered(sent), on_cohort=announcing(members))
    assert {answer.round for answer in sent} == {1}


def test_parties_answer_for_the_whole_roster_only_if_no_quorum_is_set() -> None:
    """A server cannot pretend that a party has shared nothing."""
    sent: list[Answer] = []
    with pytest.raises(ContractError, match=r"Senders\.senders: expected at least 4 parties, .* got 3"):
        federate(said(), delay=answered(sent), on_cohort=announcing([1, 1, 1, 0]))
    assert {answer.round for answer in sent} == {1}


def test_three_of_four_in_time_are_enough_where_that_was_agreed() -> None:
    """Shows that the tests above can fail."""
    outcome = federate(said("federation.quorum={need: 3, grace: 0.5}", SLOW[2]))
    assert [event["without"] for event in outcome.of_kind("partial_sum")][:3] == [["party4"]] * 3
    assert len(outcome.of_kind("round")) == 3 and not outcome.of_kind("skipped")


def test_answers_are_masked_by_default() -> None:
    assert said().federation.protocol.masked_answers
