"""Every mechanism of `federation.privacy` at one party: what it keeps over a run, and its release in a session."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

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
from colonnade.common.privacy.gaussian import GaussianPlan, GaussianRelease
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


@dataclass(frozen=True)
class Randomness:
    """What a session's release draws on, and what it pays from.

    Args:
        normals: of the noise.
        bits: makes a source of random bytes.
        budget: to pay from.
        counts: releases of every row, float64 (rows,).
    """

    normals: Normals
    bits: Callable[[], Bits]
    budget: Budget
    counts: Tensor


class PartyMechanism:
    """One mechanism over a run. Seeded noise and its count are in the state, anything else is on the disk."""

    steps: NoisySteps | None = None
    encoder: OwnEncoder | None = None

    def __init__(self, plan: PrivacyPlan, terms: Terms) -> None:
        self._seeded, self._expected, self._terms = plan.config.seeded, plan.releases, terms
        self._counts = torch.zeros(terms.rows, dtype=torch.float64)
        self._budget = Budget(
            None if self._seeded else terms.ledger, terms.limit, plan.releases, noise_multiplier=plan.noise_multiplier
        )

    @property
    def releases(self) -> float:
        return self._budget.releases

    def stage(self, state: State) -> Release:
        """A session's release."""
        if not self._seeded:
            return self._release(state, Randomness(secure_normals, secure_bytes, self._budget, self._counts))
        draws = state.keep("noise", lambda: generator("noise", self._terms.seed, self._terms.party))
        self._budget = Budget(None, self._terms.limit, self._expected, state.keep("spent", dict[str, float]))
        counts = state.keep("row counts", lambda: torch.zeros_like(self._counts))
        return self._release(
            state, Randomness(seeded_normals(draws), lambda: seeded_bytes(draws), self._budget, counts)
        )

    def close(self) -> None:
        self._budget.close()

    def _release(self, state: State, source: Randomness) -> Release:
        raise NotImplementedError

    def _share(self, plan: PrivacyPlan, source: Randomness) -> NoiseShare | None:
        return None if self._terms.ring is None else NoiseShare(plan, self._terms.ring, source.bits)


class Gaussian(PartyMechanism):
    def __init__(self, plan: GaussianPlan, terms: Terms) -> None:
        super().__init__(plan, terms)
        self._plan = plan

    def _release(self, state: State, source: Randomness) -> Release:  # noqa: ARG002
        return GaussianRelease(self._plan, source.normals, source.budget, self._share(self._plan, source))


class Rows(PartyMechanism):
    def __init__(self, plan: RowPlan, terms: Terms) -> None:
        super().__init__(plan, terms)
        self._plan = plan
        secret = plan.steps is not None and not self._seeded
        self._step_budget = StepBudget(terms.ledger, plan.steps) if secret and plan.steps is not None else None

    def _release(self, state: State, source: Randomness) -> Release:
        plan, paid = self._plan, None
        if plan.steps is not None:
            budget = self._step_budget or StepBudget(None, plan.steps, state.keep("steps spent", dict[str, float]))
            self.steps = SampledSteps(plan, budget, source.normals, source.bits())
        elif plan.config.steps is not None:
            self.steps = paid = NoisySteps(plan, self._terms.steps, source.normals)
        budget_of_rows = RowBudget(source.budget, source.counts)
        return RowRelease(plan, source.normals, budget_of_rows, plan.rescale(state), paid, self._share(plan, source))

    def close(self) -> None:
        super().close()
        if self._step_budget is not None:
            self._step_budget.close()


class Codes(PartyMechanism):
    def __init__(self, plan: DiscretePlan, terms: Terms) -> None:
        super().__init__(plan, terms)
        self._plan, self._rows = plan, terms.rows if terms.places is None else terms.places.total
        self._own: OwnCodes | None = None
        if not self._seeded:
            folder = None if terms.ledger is None else PartyFolder(terms.ledger.parent).codes
            later = 0 if terms.places is None else terms.places.later
            self._own = OwnCodes(plan, self._budget, self._rows, folder, later)

    def _release(self, state: State, source: Randomness) -> Release:  # noqa: ARG002
        seed, party, places = self._terms.seed, self._terms.party, self._terms.places
        own = self._own or SeededCodes(self._plan, source.budget, self._rows, seed, party)
        self.encoder = own.encoder
        return own.release if places is None else PlacedRelease(places, own.release)


MECHANISMS: Mapping[str, Callable[[Any, Terms], PartyMechanism]] = {
    "gaussian": Gaussian,
    "adaptive": Rows,
    "discrete": Codes,
}
