"""What a round of each synchronous protocol exchanges: kinds and bytes by hand, also with a straggler."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from torch import Tensor

from colonnade.common.conversation.conversation import SERVER
from tests.support.federation import Outcome, config, federate

ROUNDS = 6
WIDTH = {"embedding": 16}
MLP = {"head": {"name": "mlp", "hidden": 12, "dropout": 0}}
EVALUATED = 144 + 359  # validation and test rows
EMBEDDING, LOGITS = 4 * 16, 4 * 10  # bytes of a row

# name: (keys, bytes of all tensors of a kind that a party sends or is sent in a round of n rows)
EXCHANGES: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Callable[[int], int]]]] = {
    "agg_vfl": (WIDTH, {"Prediction": lambda n: LOGITS * n, "Gradient": lambda n: LOGITS * n}),
    "c_vfl": (
        {**WIDTH, **MLP, "local_steps": 3},
        {
            "Embedding": lambda n: EMBEDDING * n,
            "Labels": lambda n: 8 * n,
            "Other": lambda n: 3 * EMBEDDING * n,
            "Head": lambda _n: 4 * (65 * 12 + 13 * 10),
        },
    ),
    "centralized": ({}, {"Features": lambda n: 4 * 16 * n}),
    "fdml": (
        WIDTH,
        {"Logits": lambda n: LOGITS * n, "Aggregate": lambda n: LOGITS * n, "Labels": lambda n: 8 * n},
    ),
    "fedbcd": ({**WIDTH, "tau": 3}, {"Embedding": lambda n: EMBEDDING * n, "Gradient": lambda n: EMBEDDING * n}),
    "linear_admm": ({}, {"Logits": lambda n: LOGITS * n, "Update": lambda n: LOGITS * n}),
    "split": (WIDTH, {"Embedding": lambda n: EMBEDDING * n, "Gradient": lambda n: EMBEDDING * n}),
    "split_avg": (WIDTH, {"Embedding": lambda n: EMBEDDING * n, "AverageGradient": lambda n: EMBEDDING * n}),
    # 2 d_h B + 1 numbers: VFL-CZOFO, Table 1.
    "syn_zoo_vfl": ({**WIDTH, "mu": 0.01}, {"Pair": lambda n: 2 * EMBEDDING * n, "Difference": lambda _n: 4}),
    "vafl": (WIDTH, {"Embedding": lambda n: EMBEDDING * n, "Gradient": lambda n: EMBEDDING * n}),
    "vfl_afe": (WIDTH, {"Embedding": lambda n: EMBEDDING * n, "Gradient": lambda n: EMBEDDING * n}),
    "vimadmm": ({**WIDTH, "tau": 5}, {"Embedding": lambda n: EMBEDDING * n, "Update": lambda n: 4 * (2 * n + 16) * 10}),
    "vimadmm_j": ({**WIDTH, "tau": 5}, {"Logits": lambda n: LOGITS * n, "Update": lambda n: 2 * LOGITS * n}),
}

every_exchange = pytest.mark.parametrize("name", EXCHANGES)


def run(name: str, rounds: int, *sets: str, **how: Any) -> Outcome:
    protocol = {"name": name, **EXCHANGES[name][0]}
    return federate(config(protocol, f"federation.rounds={rounds}", "federation.epochs=0", *sets), **how)


@every_exchange
def test_only_declared_messages_with_exactly_the_declared_bytes(name: str) -> None:
    kinds = EXCHANGES[name][1]
    outcome = run(name, ROUNDS, f"federation.evaluate.every={ROUNDS}")
    rows = [len(outcome.server.schedule.batch(t)) for t in range(1, ROUNDS + 1)]
    for party in outcome.clients:
        sizes: dict[str, list[int]] = {kind: [0] * ROUNDS for kind in (*kinds, "Evaluation")}
        for sender, to, message in outcome.messages:
            if party in (sender, to):
                tensors = [value for value in vars(message).values() if isinstance(value, Tensor)]
                sizes[type(message).__name__][message.round - 1] += sum(tensor.nbytes for tensor in tensors)
        a_row = LOGITS if kinds.keys() & {"Logits", "Prediction"} else EMBEDDING
        assert sum(sizes.pop("Evaluation")) == EVALUATED * a_row
        assert sizes == {kind: [count(n) for n in rows] for kind, count in kinds.items()}


@every_exchange
def test_a_straggler_is_missed_and_catches_up(name: str) -> None:
    first = next(iter(EXCHANGES[name][1]))

    def slow(sender: str, _to: str, item: object) -> float:
        return 5.0 if sender == "party2" and type(item).__name__ == first and getattr(item, "round", 0) == 3 else 0.5

    outcome = run(name, 12, "federation.quorum={need: 3, grace: 0.2}", delay=slow)
    missed = [event["round"] for event in outcome.of_kind("missing")]
    assert {event["party"] for event in outcome.of_kind("missing")} == {"party2"}
    assert missed[0] == 3 and max(missed) < 12
    assert outcome.late["party2"] >= 1


@pytest.mark.parametrize("name", [name for name in EXCHANGES if name != "centralized"])  # which sends nothing down
def test_a_lost_party_is_sent_nothing(name: str) -> None:
    outcome = run(
        name, 1, "federation.quorum={need: 3}", delay=lambda sender, _to, _item: 1e6 if sender == "party4" else 0.0
    )
    assert {to for sender, to, _ in outcome.messages if sender == SERVER} == {"party1", "party2", "party3"}
