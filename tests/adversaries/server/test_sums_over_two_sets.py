"""A server that keeps parameters unchanged and sums the same rows in two rounds, over all parties and over all but one.

`quorum: {need: K}` allows it, and it happens to honest servers too: the difference of the sums is one party's values.
Only noise in every part protects it.

Bounds: blinded sums (server).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from colonnade.common.aggregation.masks import Blinder
from colonnade.common.aggregation.messages import Masked
from colonnade.common.privacy.sum_noise import ring
from colonnade.common.protocols.split_avg import AverageGradient
from colonnade.server.aggregation.masked_sums import Blinded
from tests.protocols.test_blinded import LATE, run, sets_of
from tests.support.altered_lines import change_each
from tests.support.federation import Outcome

NAMES = ["party1", "party2", "party3", "party4"]
ALL, WITHOUT = 1, 2  # rounds
SETS = (
    *LATE, "federation.rounds=2", "federation.batch=1294", "federation.protocol.embedding=16",
    "every_party.optimiser={name: sgd, lr: 0.1, momentum: 0, weight_decay: 0}",
)  # fmt: skip
CLIP, NOISE = 0.5, 2.0
PRIVATE = f"federation.privacy={{clip: {CLIP}, noise_multiplier: {NOISE}}}"

Values = dict[tuple[int, str], Tensor]
"""Words of each party before its masks, by round and party."""


@pytest.fixture
def values(monkeypatch: pytest.MonkeyPatch) -> Values:
    found, blind = Values(), Blinder.blind

    def watched(self: Blinder, words: Tensor, round: int, stage: int, *more: Any) -> Any:
        if stage == 0:
            found[round, self._name] = words.long()
        return blind(self, words, round, stage, *more)

    monkeypatch.setattr(Blinder, "blind", watched)
    return found


@pytest.fixture
def lie(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Gradients of zero, and a set without the last party in the second round."""
    monkeypatch.setattr(Blinded, "set_of", lambda _self, round: NAMES[:3] if round == WITHOUT else NAMES)

    def alter(cohort: Any) -> None:
        for name in NAMES:
            change_each(
                cohort[name],
                lambda item: replace(item, dh=torch.zeros_like(item.dh)) if isinstance(item, AverageGradient) else item,
            )

    return alter


def difference(outcome: Outcome) -> Tensor:
    """Of the two sums that the server unmasks, in steps of the ring."""
    assert sets_of(outcome) == {ALL: [1, 1, 1, 1], WITHOUT: [1, 1, 1, 0]}
    sums = []
    for round in (ALL, WITHOUT):
        parts = [m.words for _, _, m in outcome.messages if isinstance(m, Masked) and (m.round, m.stage) == (round, 0)]
        sums.append(torch.stack([words.long() for words in parts if len(words)]).sum(0))
    found = (sums[0] - sums[1]) % 2**32
    return torch.where(found < 2**31, found, found - 2**32)


def test_the_difference_of_the_sums_is_the_values_of_the_one_that_was_left_out(values: Values, lie: Any) -> None:
    outcome = run("split_avg", *SETS, on_cohort=lie)
    assert all(torch.equal(values[ALL, name], values[WITHOUT, name]) for name in NAMES[:3])
    assert torch.equal(difference(outcome), values[ALL, NAMES[3]])


@pytest.mark.parametrize(
    ("once", "least"),
    [("", math.sqrt(4 + 3)), (".once={colluders: 1}", math.sqrt((4 + 3) / 2))],
    ids=["of each party", "once"],
)
def test_noise_in_every_part_is_in_the_difference(
    values: Values, lie: Any, monkeypatch: pytest.MonkeyPatch, once: str, least: float
) -> None:
    """The two sums have noise of their own: as much as seven releases, of which each sum of three has the promised."""
    sets = (PRIVATE, *([f"federation.privacy{once}"] if once else []))
    outcome = run("split_avg", *SETS, *sets, on_cohort=lie)
    scale = ring(outcome.server.federation, outcome.server.schedule.privacy).scale
    seen = difference(outcome).double() / scale
    # A matrix that was clipped to C adds at most C^2 to the sum of squares.
    assert float(seen.square().mean().sqrt()) > NOISE * CLIP * least * 0.98 > NOISE * CLIP
