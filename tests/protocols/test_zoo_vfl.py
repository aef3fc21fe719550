"""ZOO-VFL against the box, replayed in double precision in the order in which the server answered."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from colonnade.common.contracts.pairs import Difference, Evaluation, Pair
from colonnade.common.errors import ContractError
from colonnade.common.messaging.message import Message
from tests.support.federation import Outcome, config, federate, late, uneven
from tests.support.pairs import SETS, WIDTH, Replica

ZOO = {"name": "zoo_vfl", "embedding": WIDTH, "mu": 0.01}


def run(*sets: str, **how) -> Outcome:
    return federate(config(ZOO, *SETS, "federation.evaluate.every=6", *sets), **how)


paced = uneven(Pair)


def test_every_arrival_is_a_turn_of_the_box_with_the_last_embeddings_of_the_others() -> None:
    outcome = run("federation.rounds=5", "federation.rows.test=1500", "federation.batch=48", delay=paced)
    replica = Replica(outcome, "sphere", mu=0.01)
    last = {name: torch.zeros(len(outcome.server.labels), WIDTH).double() for name in replica.names}
    done = dict.fromkeys(replica.names, 0)
    answered = [to for _, to, m in outcome.messages if isinstance(m, Difference)]
    # Exchanges in flight when the last round calls all parties are dropped: their direction is drawn and not followed.
    asked = {
        name: [m.turn for w, _, m in outcome.messages if w == name and isinstance(m, Pair)] for name in replica.names
    }
    losses = []
    for name in answered:
        done[name] += 1
        rows = outcome.server.schedule.batch(done[name])
        while asked[name].count(done[name]) > 1:
            asked[name].remove(done[name])
            replica.pair(name, rows)
        pair = replica.pair(name, rows)
        last[name][rows] = pair[1]
        losses.append(replica.turn([name], {other: h[rows] for other, h in last.items()}, {name: pair}, rows))
    assert len(answered) == 5 * 4 and done["party1"] > done["party2"] > done["party4"] >= 1
    assert done == {name: ctx.state["turns"]["done"] for name, ctx in outcome.clients.items()}
    assert max(done.values()) > outcome.server.schedule._batches.per_epoch  # rows came twice
    for number, event in enumerate(outcome.of_kind("round")):
        assert abs(sum(losses[number * 4 : number * 4 + 4]) / 4 - event["loss"]) < 1e-4
    replica.assert_ends_as(partial(torch.allclose, atol=1e-3))


def test_only_an_evaluation_waits_for_a_slow_party() -> None:
    def slow(sender: str, _to: str, item: object) -> float:
        if not isinstance(item, Pair):
            return 0.0
        return 10.0 if sender == "party2" else 0.1

    outcome = run("federation.rounds=24", "federation.evaluate.every=12", delay=slow)
    assert 20 <= outcome.seconds < 25  # party2 delays the two evaluations, and nothing else
    assert [event["round"] for event in outcome.of_kind("round")] == list(range(1, 25))
    missed = {event["round"] for event in outcome.of_kind("missing") if event["party"] == "party2"}
    assert missed == set(range(1, 25)) - {12, 24}
    assert outcome.clients["party2"].state["turns"]["done"] == 2
    assert outcome.clients["party1"].state["turns"]["done"] > 24
    assert outcome.late["party2"] == 2  # its exchange in flight when each evaluation called all parties


def test_a_missing_party_is_not_waited_for_beyond_the_quorum() -> None:
    lost = late("party4", others=0.1)
    outcome = run("federation.quorum={need: 3, grace: 1.0}", "federation.evaluate.every=3", delay=lost)
    assert [e["round"] for e in outcome.of_kind("evaluation")] == [3, 6, 6]
    assert "party4" not in {to for _, to, m in outcome.messages if isinstance(m, Difference)}


def test_only_declared_messages_with_exactly_the_declared_bytes() -> None:
    outcome = run(delay=paced)
    for name in outcome.clients:
        up = [m for sender, _, m in outcome.messages if sender == name]
        down = [m for _, to, m in outcome.messages if to == name]
        assert {type(m) for m in up} == {Pair, Evaluation} and {type(m) for m in down} == {Difference}
        for pair in (m for m in up if isinstance(m, Pair)):
            rows = len(outcome.server.schedule.batch(pair.turn))
            assert pair.h.nbytes == pair.perturbed.nbytes == 4 * rows * WIDTH
        assert all(m.slope.nbytes == 4 for m in down)


def test_a_turn_that_does_not_exist_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def zeroth(t: int, _turn: int, h: torch.Tensor, perturbed: torch.Tensor) -> Message:
        return Pair(t, 0, h, perturbed)

    monkeypatch.setattr("colonnade.client.training.pairs.Pair", zeroth)
    with pytest.raises(ContractError, match=r"Pair\.turn: expected at least 1, got 0"):
        run()
