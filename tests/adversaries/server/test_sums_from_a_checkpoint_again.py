"""A server that goes back to a checkpoint and sends one party another gradient: two sums of a round over the same set.

Their difference would be the change at that party, and nothing else. The masks are bound to all that the parties were
told alike, so that it is noise; where parties may miss rounds (`need: K`) they are not, and the difference shows.

Bounds: blinded sums (server).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from colonnade.common.aggregation.masks import Blinder
from colonnade.common.aggregation.messages import Masked
from colonnade.common.crypto.sealing import TranscriptError
from colonnade.common.errors import ColonnadeError, PartyLost
from colonnade.common.protocols.fdml import Aggregate
from colonnade.common.protocols.fedvs import Answer
from colonnade.common.protocols.fedvs import Gradient as CodedGradient
from colonnade.common.protocols.split_avg import AverageGradient
from colonnade.common.protocols.vfedmh import Global
from colonnade.common.protocols.vimadmm_j import Signal
from colonnade.common.run.run_cache import RunCache
from colonnade.server.aggregation.masked_sums import Blinded, Found
from colonnade.simulation.federation import Simulation
from tests.protocols.test_blinded import BLIND, disks
from tests.protocols.test_prediction import ask
from tests.support.altered_lines import change_each
from tests.support.federation import Outcome, config

__all__ = ["disks"]  # a fixture
VICTIM, OTHERS = "party1", ("party2", "party3", "party4")
AFTER, LIED, SEEN = 1, 2, 3  # rounds: of the checkpoint, of the other gradient, and of the two sums
UNSEEN = "federation.transcript.every=0"
MAY_MISS = "federation.quorum={need: 3, grace: 0.2}"
PROTOCOLS: dict[str, dict[str, Any]] = {
    **{name: {**cfg, "aggregate": "blinded"} for name, cfg in BLIND.items()},
    "vfedmh": {"name": "vfedmh", "embedding": 8},
    "fedvs": {"name": "fedvs", "embedding": 8},
}
ANSWERS = {AverageGradient: "dh", Signal: "g", Aggregate: "o", CodedGradient: "dh", Global: "e"}
SHORT = ("federation.rounds=3", "federation.epochs=0", "federation.batch=400", "federation.evaluate.every=99")


class Sums:
    """A run of a server that may lie in it.

    Args:
        name: of the protocol.
        sets: settings, as on the command line.
        lied: round in which the first party is told something else; 0 for none.
        start: round and states to go on from.
    """

    def __init__(self, name: str, *sets: str, lied: int = 0, start: Any = (0, {})) -> None:
        self._lied = lied
        self.run = Simulation(
            config(PROTOCOLS[name], *SHORT, *sets), record=True, save=True, start=start,
            on_cohort=self._lie,
        )  # fmt: skip
        self.error: ColonnadeError | None = None
        try:
            self.run.run()
        except ColonnadeError as error:
            self.error = error

    @property
    def outcome(self) -> Outcome:
        assert self.run.outcome is not None
        return self.run.outcome

    def total(self, round: int, stage: int = 0) -> Tensor:
        """The words that the server unmasks, modulo 2^32."""
        heard = [m for _, _, m in self.outcome.messages if isinstance(m, Masked)]
        parts = [m.words.long() for m in heard if (m.round, m.stage) == (round, stage)]
        assert len(parts) == 4
        return torch.stack(parts).sum(0) % 2**32

    def _lie(self, cohort: Any) -> None:
        def told(item: Any) -> Any:
            name = ANSWERS.get(type(item))
            lied = name is not None and item.round == self._lied
            return replace(item, **{name: -5 * getattr(item, name)}) if lied else item

        change_each(cohort[VICTIM], told)


def content_with_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that lies goes on, whatever its sums are."""
    monkeypatch.setattr(
        Blinded, "finding", lambda self, total, there, *_: Found(self._ring.decode(total[:-1]).float(), there)
    )


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


def test_where_parties_may_miss_rounds_the_difference_of_the_sums_is_the_change_at_that_party(
    disks: dict[str, RunCache], values: dict[str, Tensor]
) -> None:
    before = Sums("split_avg", UNSEEN, MAY_MISS)
    first = dict(values)
    again = Sums("split_avg", UNSEEN, MAY_MISS, start=(AFTER, before.outcome.saved[AFTER]), lied=LIED)
    assert all(torch.equal(first[name], values[name]) for name in OTHERS)  # it has nothing more of these
    change = values[VICTIM].long() - first[VICTIM].long()
    assert change.any() and torch.equal((again.total(SEEN) - before.total(SEEN)) % 2**32, change % 2**32)


@pytest.mark.parametrize("name", ["split_avg", "vimadmm_j", "fdml", "vfedmh"])
def test_the_sum_after_another_answer_is_noise(
    disks: dict[str, RunCache], values: dict[str, Tensor], name: str
) -> None:
    before = Sums(name, UNSEEN)
    first = dict(values)
    again = Sums(name, UNSEEN, start=(AFTER, before.outcome.saved[AFTER]), lied=LIED)
    assert "masks that cancel" in str(again.error)
    difference = (again.total(SEEN) - before.total(SEEN) - values[VICTIM].long() + first[VICTIM].long()) % 2**32
    assert (difference != 0).float().mean() > 0.99


def test_so_is_that_of_a_later_session_from_a_checkpoint_behind_the_lie(disks: dict[str, RunCache]) -> None:
    """Whatever statements the server withholds by ending the session."""
    before = Sums("split_avg", UNSEEN, lied=LIED)
    again = Sums("split_avg", UNSEEN, start=(LIED, before.outcome.saved[LIED]))
    assert "masks that cancel" in str(again.error) and again.total(SEEN)[-1].any()


def test_so_is_an_evaluation_of_the_round(disks: dict[str, RunCache]) -> None:
    lied = Sums("split_avg", UNSEEN, f"federation.evaluate.every={LIED}", lied=LIED)
    assert "masks that cancel" in str(lied.error)
    assert lied.total(LIED, 1)[-1].any()


def test_so_is_a_prediction_by_the_model(disks: dict[str, RunCache], monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as lying:
        content_with_noise(lying)
        lied = Sums("split_avg", UNSEEN, lied=SEEN)
    assert lied.error is None
    with pytest.raises(ColonnadeError, match="masks that cancel"):
        ask(lied.run.config, lied.outcome, torch.arange(20, 60))


def test_parties_of_fedvs_open_no_share_of_one_that_was_told_otherwise(disks: dict[str, RunCache]) -> None:
    before = Sums("fedvs", UNSEEN)
    again = Sums("fedvs", UNSEEN, start=(AFTER, before.outcome.saved[AFTER]), lied=LIED)
    assert isinstance(again.error, PartyLost) or again.error is None
    answers = [m for _, _, m in again.outcome.messages if isinstance(m, Answer) and m.round == SEEN]
    assert not any(len(m.h) for m in answers)


@pytest.mark.parametrize("name", ["split_avg", "vfedmh", "fedvs"])
def test_the_same_answers_give_the_same_sum_again(disks: dict[str, RunCache], name: str) -> None:
    before = Sums(name, UNSEEN)
    again = Sums(name, UNSEEN, start=(AFTER, before.outcome.saved[AFTER]))
    assert before.error is None and again.error is None
    if name != "fedvs":
        assert torch.equal(again.total(SEEN), before.total(SEEN))


@pytest.mark.parametrize(("name", "kind"), [("split_avg", AverageGradient), ("vimadmm_j", Signal), ("fdml", Aggregate)])
def test_the_parties_find_it_in_their_next_statement(
    disks: dict[str, RunCache], monkeypatch: pytest.MonkeyPatch, name: str, kind: type
) -> None:
    content_with_noise(monkeypatch)
    lied = Sums(name, lied=LIED)
    assert isinstance(lied.error, TranscriptError)
    assert f"was told another {kind.__name__} than we were" in str(lied.error)
