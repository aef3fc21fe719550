"""A party that goes on from another state than the one that it saved: an older one, or that of another run.

Nothing compares a checkpoint with what its owner did before. The scenes show that it gains no more so than by the same
false embeddings with its true state, which it could send at any time.

Bounds: checkpoints, sessions (party).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch

from colonnade.common.protocols.split import Embedding
from colonnade.common.run.state import Snapshot
from colonnade.simulation.federation import Outcome
from tests.support.federation import config, federate, parameters

LIAR, SAVED, ROUNDS = "party1", 3, 6
HONEST = ("party2", "party3", "party4", "server")


def run(*sets: str, **how: Any) -> Outcome:
    short = (
        f"federation.rounds={ROUNDS}",
        "federation.epochs=0",
        "federation.batch=100",
        "federation.evaluate.every=99",
    )
    return federate(config({"name": "split"}, *short, *sets), **how)


@cache
def before() -> Outcome:
    return run(save=True)


@cache
def elsewhere() -> Outcome:
    return run("federation.seed=1", save=True)


def sent(outcome: Outcome, party: str = LIAR) -> dict[int, Embedding]:
    return {m.round: m for by, _, m in outcome.messages if isinstance(m, Embedding) and by == party}


def sending(said: dict[int, Embedding]) -> Callable[[Any], None]:
    """The liar sends these embeddings, whatever its state is."""

    def alter(cohort: Any) -> None:
        deliver = cohort[LIAR].deliver
        cohort[LIAR].deliver = lambda item: deliver(
            replace(item, h=said[item.round].h) if isinstance(item, Embedding) else item
        )

    return alter


def resumed(false: Snapshot | None = None, **how: Any) -> Outcome:
    """From the checkpoint, with what the liar hands in."""
    saved = before().saved[SAVED]
    return run(start=(SAVED, saved if false is None else {**saved, LIAR: false}), **how)


@pytest.mark.parametrize("state", ["older", "of another run"])
def test_it_goes_unnoticed_and_is_worth_as_much_as_false_embeddings(state: str) -> None:
    lied = resumed(before().saved[1][LIAR] if state == "older" else elsewhere().saved[SAVED][LIAR])
    assert not {"warning", "finding", "failed"} & {event["kind"] for event in lied.events}
    honest, forged = resumed(), resumed(on_cohort=sending(sent(lied)))
    for member in HONEST:
        assert torch.equal(parameters(lied)[member], parameters(forged)[member])
        assert not torch.equal(parameters(lied)[member], parameters(honest)[member])


def test_the_others_go_on_from_their_own_states() -> None:
    """Their first embeddings after the checkpoint are those of a run without a liar."""
    lied = resumed(elsewhere().saved[SAVED][LIAR])
    for name in HONEST[:3]:
        assert torch.equal(*(sent(outcome, name)[SAVED + 1].h for outcome in (lied, before())))
