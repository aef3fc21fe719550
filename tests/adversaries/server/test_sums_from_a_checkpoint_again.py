"""A server that goes back to a checkpoint and sends one party another gradient: two sums of a round over the same set.

Their difference is the change at that party, and nothing else.

Bounds: blinded sums (server).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from colonnade.common.checkpointing.run_cache import RunCache
from colonnade.common.crypto.told import TranscriptError
from colonnade.common.protocols.fdml import Aggregate
from colonnade.common.protocols.split_avg import AverageGradient
from colonnade.common.protocols.vimadmm_j import Signal
from colonnade.common.secure_aggregation.masked_sums import Masked
from colonnade.common.secure_aggregation.masks import Blinder
from tests.protocols.test_blinded import disks, run
from tests.support.federation import Outcome

__all__ = ["disks"]  # a fixture
VICTIM, OTHERS = "party1", ("party2", "party3", "party4")
AFTER, LIED, SEEN = 1, 2, 3  # rounds: of the checkpoint, of the other gradient, and of the two sums
SETS = ("federation.rounds=3", "federation.evaluate.every=99")
UNSEEN = "federation.transcript.every=0"


@pytest.fixture
def values(monkeypatch: pytest.MonkeyPatch) -> dict[str, Tensor]:
    """Every party's words of the round before its masks."""
    found, blind = dict[str, Tensor](), Blinder.blind

    def watched(self: Blinder, words: Tensor, round: int, stage: int, *more: Any) -> Any:
        if (round, stage) == (SEEN, 0):
            found[self._name] = words.clone()
        return blind(self, words, round, stage, *more)

    monkeypatch.setattr(Blinder, "blind", watched)
    return found


def lie(cohort: Any) -> None:
    """One party gets another answer of the round than all others."""
    carry = cohort[VICTIM]._carry

    def told(item: Any) -> None:
        for kind, name in ((AverageGradient, "dh"), (Signal, "g"), (Aggregate, "o")):
            if isinstance(item, kind) and item.round == LIED:
                item = replace(item, **{name: -5 * getattr(item, name)})
        carry(item)

    cohort[VICTIM]._carry = told


def total(outcome: Outcome) -> Tensor:
    """The words of the round that the server unmasks, modulo 2^32."""
    parts = [
        m.words.long() for _, _, m in outcome.messages if isinstance(m, Masked) and (m.round, m.stage) == (SEEN, 0)
    ]
    assert len(parts) == 4
    return torch.stack(parts).sum(0) % 2**32


def test_the_difference_of_the_sums_is_the_change_at_that_party(
    disks: dict[str, RunCache], values: dict[str, Tensor]
) -> None:
    before = run("split_avg", *SETS, UNSEEN, save=True)
    first = dict(values)
    again = run("split_avg", *SETS, UNSEEN, start=(AFTER, before.saved[AFTER]), on_cohort=lie)
    assert all(torch.equal(first[name], values[name]) for name in OTHERS)  # it has nothing more of these
    change = values[VICTIM].long() - first[VICTIM].long()
    assert change.any() and torch.equal((total(again) - total(before)) % 2**32, change % 2**32)


def test_the_same_gradient_gives_the_same_sum_again(disks: dict[str, RunCache]) -> None:
    before = run("split_avg", *SETS, UNSEEN, save=True)
    again = run("split_avg", *SETS, UNSEEN, start=(AFTER, before.saved[AFTER]))
    assert torch.equal(total(again), total(before))


@pytest.mark.parametrize(("name", "kind"), [("split_avg", AverageGradient), ("vimadmm_j", Signal), ("fdml", Aggregate)])
def test_the_parties_find_it_in_their_next_statement(disks: dict[str, RunCache], name: str, kind: type) -> None:
    """The answer is the same for all by contract: the server has the two sums of the rounds until then."""
    before = run(name, *SETS, save=True)
    with pytest.raises(TranscriptError, match=f"round {LIED}: .* was told another {kind.__name__} than we were"):
        run(name, *SETS, start=(AFTER, before.saved[AFTER]), on_cohort=lie)
