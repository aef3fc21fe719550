"""A server and three parties that know all their own draws subtract what they can from the fourth one's releases.

The worst case for the fourth: all of them hold the same rows, and release the same values.

Bounds: a party's noise (both); a row's noise (both); one code a row (party, both).
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from colonnade.client.privacy.mechanisms import Privacy
from colonnade.common.config.policy import PolicyConfig
from colonnade.common.contracts.schedule import Schedule
from colonnade.common.privacy.codes import DiscretePlan
from colonnade.common.run.state import State
from tests.support.federation import config

PARTIES, VICTIM = ("party1", "party2", "party3", "party4"), 3
SHORT = ("federation.rounds=8", "federation.epochs=0", "federation.batch=200")
CLIP, WIDTH, RELEASES = 0.5, 16, 8
MECHANISMS = {
    "a party's": ("gaussian", 2 * CLIP),
    "a row's": ("adaptive", 2 * 2 * CLIP),  # two rows clipped to C are 2 C apart
}


def released(protocol: dict[str, Any], mechanism: str, values: Tensor, *sets: str) -> tuple[Any, list[Tensor]]:
    """Releases of each party of the same values, as often as `values` has matrices; and the plan."""
    cfg = config(protocol, *SHORT, f"federation.privacy={{mechanism: {mechanism}}}", *sets)
    plan, found = Schedule(cfg.federation, 1797, 0).privacy, []
    for name in PARTIES:
        release = Privacy(name, cfg.federation, PolicyConfig(), plan, None, rows=1797).stage(State())
        each = [release(matrix, evaluation=False, rows=torch.arange(len(matrix))) for matrix in values]
        found.append(torch.stack([one.as_subclass(Tensor) for one in each]).double())
    return plan, found


def left_of(victim: Tensor, known: list[Tensor]) -> Tensor:
    """The victim's noise less the best linear guess at it from the colluders'."""
    theirs = torch.stack([noise.flatten() for noise in known], 1)
    weights = torch.linalg.lstsq(theirs, victim.flatten()[:, None]).solution
    return victim.flatten() - (theirs @ weights).flatten()


@pytest.mark.parametrize("whose", MECHANISMS)
def test_noise_of_an_honest_party_stays_whole(whose: str) -> None:
    mechanism, promised = MECHANISMS[whose]
    settings = (f"federation.privacy.clip={CLIP}", "federation.privacy.noise_multiplier=2")
    true = torch.full((RELEASES, 200, WIDTH), CLIP / 2 / math.sqrt(200 * WIDTH))  # below every clip
    _, found = released(
        {"name": "split", "embedding": WIDTH}, mechanism, true, *settings, "federation.privacy.delta=1e-5"
    )
    noise = [release - true.double() for release in found]
    left = left_of(noise[VICTIM], [each for place, each in enumerate(noise) if place != VICTIM])
    allowed = 5 / math.sqrt(2 * left.numel())
    assert abs(float(left.std()) / promised - 1) < allowed + 3 / left.numel()
    averaged = left.view(RELEASES, -1).mean(0)  # of equal values in all releases, which epsilon counts as so many
    assert abs(float(averaged.std()) * math.sqrt(RELEASES) / promised - 1) < 5 / math.sqrt(2 * averaged.numel())


def test_of_noise_that_all_can_draw_nothing_is_left() -> None:
    """The check above finds it: seeded noise of a party is drawn again by anybody, and no epsilon is named."""
    cfg = ("federation.benchmark=true", "federation.privacy.seeded=true", "federation.privacy.noise_multiplier=2")
    true = torch.zeros(RELEASES, 200, WIDTH)
    settings = (f"federation.privacy.clip={CLIP}", *cfg)
    (_, one), (plan, two) = (released({"name": "split", "embedding": WIDTH}, "gaussian", true, *settings) for _ in "12")
    assert float(left_of(one[VICTIM], [two[VICTIM]]).std()) < 1e-6 and plan.void


def test_a_code_of_an_honest_party_is_no_more_certain_where_all_others_have_the_same() -> None:
    """Rows of one code at all parties: where all colluders' sets have it, the victim's has as often as promised."""
    rows = torch.arange(1797)
    codes = torch.eye(10)[rows % 10][None]
    protocol = {"name": "codes", "steps": 2, "drawn": 10}
    sets = ("federation.privacy.epsilon=6", "federation.privacy.delta=1e-4", "federation.privacy.codes=10")
    plan, found = released(protocol, "discrete", codes, *sets, "federation.rounds=0", "federation.epochs=1")
    assert isinstance(plan, DiscretePlan)
    inside = torch.stack([(release[0] * codes[0]).sum(1) for release in found]).bool()
    for mechanism, part in (
        (plan.training, torch.isin(rows, plan.train)),
        (plan.held_out, ~torch.isin(rows, plan.train)),
    ):
        for agree in (True, False):
            chosen = part & (inside[:VICTIM] == agree).all(0)
            count = int(chosen.sum())
            kept = float(inside[VICTIM][chosen].double().mean()) if count else mechanism.kept
            assert abs(kept - mechanism.kept) <= 4.5 * math.sqrt(mechanism.kept * (1 - mechanism.kept) / max(count, 1))
        assert int((part & inside[:VICTIM].all(0)).sum()) > 50
