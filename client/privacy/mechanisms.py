"""Every mechanism of `federation.privacy` at one party: what it keeps over a run, and its release in a session."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from colonnade.client.privacy.own_codes import OwnCodes, SeededCodes
from colonnade.client.privacy.own_encoder import OwnEncoder
from colonnade.client.privacy.row_places import PlacedRelease, RowPlaces
from colonnade.common.aggregation.ring import Ring
from colonnade.common.data.rows import generator
from colonnade.common.privacy.accounting.budget import Budget
from colonnade.common.privacy.accounting.plan import PrivacyPlan
from colonnade.common.privacy.accounting.row_budget import RowBudget
from colonnade.common.privacy.accounting.step_budget import StepBudget
from colonnade.common.privacy.codes.plan import DiscretePlan
from colonnade.common.privacy.gaussian import GaussianRelease
from colonnade.common.privacy.laplace import Bits
from colonnade.common.privacy.noise import Normals, secure_bytes, secure_normals, seeded_bytes, seeded_normals
from colonnade.common.privacy.release import Release
from colonnade.common.privacy.rows import NoisySteps, RowPlan, RowRelease, SampledSteps
from colonnade.common.privacy.sum_noise import NoiseShare
from colonnade.common.run.run_folder import PartyFolder
from colonnade.common.run.state import State


@dataclass(frozen=True)
class Terms:
    """What a party opens its mechanism with.

    Args:
        seed: the federation's, for seeded noise.
        limit: releases within the plan's budget and the party's policy; None without.
        ledger: the party's record; None keeps none.
        rows: number of released rows.
        places: of aligned rows with codes.
        steps: of the party after a release, at most.
        ring: of blinded sums with noise once.
    """

    party: str
    seed: int
    limit: int | None
    ledger: Path | None
    rows: int
    places: RowPlaces | None = None
    steps: int = 1
    ring: Ring | None = None


class PartyMechanism:
    """One mechanism over a run. Seeded noise and its count are in the state, anything else is on the disk."""

    plan: Any
    steps: NoisySteps | None = None
    encoder: OwnEncoder | None = None

    def __init__(self, plan: PrivacyPlan, terms: Terms) -> None:
        self.plan, self._terms, self._counts = plan, terms, torch.zeros(terms.rows, dtype=torch.float64)
        path = None if plan.config.seeded else terms.ledger
        self._budget = Budget(path, terms.limit, plan.releases, noise_multiplier=plan.noise_multiplier)
        self._normals: Normals = secure_normals
        self._bits: Callable[[], Bits] = secure_bytes

    @property
    def releases(self) -> float:
        return self._budget.releases

    def stage(self, state: State) -> Release:
        """A session's release."""
        if self.plan.config.seeded:
            draws = state.keep("noise", lambda: generator("noise", self._terms.seed, self._terms.party))
            self._normals, self._bits = seeded_normals(draws), lambda: seeded_bytes(draws)
            spent = state.keep("spent", dict[str, float])
            self._budget = Budget(None, self._terms.limit, self.plan.releases, spent)
            self._counts = state.keep("row counts", lambda: torch.zeros_like(self._counts))
        return self._release(state)

    def close(self) -> None:
        self._budget.close()

    def _release(self, state: State) -> Release:
        raise NotImplementedError

    def _share(self) -> NoiseShare | None:
        return None if self._terms.ring is None else NoiseShare(self.plan, self._terms.ring, self._bits)


class Gaussian(PartyMechanism):
    def _release(self, state: State) -> Release:  # noqa: ARG002
        return GaussianRelease(self.plan, self._normals, self._budget, self._share())


class Rows(PartyMechanism):
    plan: RowPlan

    def __init__(self, plan: RowPlan, terms: Terms) -> None:
        super().__init__(plan, terms)
        kept = plan.steps is not None and not plan.config.seeded
        self._step_budget = StepBudget(terms.ledger, plan.steps) if kept and plan.steps is not None else None

    def _release(self, state: State) -> Release:
        plan, paid = self.plan, None
        if plan.steps is not None:
            budget = self._step_budget or StepBudget(None, plan.steps, state.keep("steps spent", dict[str, float]))
            self.steps = SampledSteps(plan, budget, self._normals, self._bits())
        elif plan.config.steps is not None:
            self.steps = paid = NoisySteps(plan, self._terms.steps, self._normals)
        counts = RowBudget(self._budget, self._counts)
        return RowRelease(plan, self._normals, counts, plan.rescale(state), paid, self._share())

    def close(self) -> None:
        super().close()
        if self._step_budget is not None:
            self._step_budget.close()


class Codes(PartyMechanism):
    plan: DiscretePlan

    def __init__(self, plan: DiscretePlan, terms: Terms) -> None:
        super().__init__(plan, terms)
        self._rows, later = (terms.rows, 0) if terms.places is None else (terms.places.total, terms.places.later)
        self._own: OwnCodes | None = None
        if not plan.config.seeded:
            folder = None if terms.ledger is None else PartyFolder(terms.ledger.parent).codes
            self._own = OwnCodes(plan, self._budget, self._rows, folder, later)

    def _release(self, state: State) -> Release:  # noqa: ARG002
        terms = self._terms
        own = self._own or SeededCodes(self.plan, self._budget, self._rows, terms.seed, terms.party)
        self.encoder = own.encoder
        return own.release if terms.places is None else PlacedRelease(terms.places, own.release)


MECHANISMS: Mapping[str, Callable[[Any, Terms], PartyMechanism]] = {
    "gaussian": Gaussian,
    "adaptive": Rows,
    "discrete": Codes,
}
