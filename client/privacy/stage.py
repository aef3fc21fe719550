"""A party's privacy over a whole run: its policy, its budget, and the stage that every session releases through."""

from __future__ import annotations

from pathlib import Path

import torch

from colonnade.client.privacy.own_codes import OwnCodes, SeededCodes
from colonnade.client.privacy.own_encoder import OwnEncoder
from colonnade.client.privacy.row_places import PlacedRelease, RowPlaces
from colonnade.common.config.compression import form_of
from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.policy import PolicyConfig
from colonnade.common.config.privacy import AdaptivePrivacyConfig
from colonnade.common.data.draws import Draws, SecretDraws
from colonnade.common.data.rows import generator
from colonnade.common.messaging.forms import AS_IS
from colonnade.common.privacy.accounting.budget import Budget
from colonnade.common.privacy.accounting.plan import PrivacyPlan
from colonnade.common.privacy.accounting.row_budget import RowBudget
from colonnade.common.privacy.accounting.step_budget import StepBudget
from colonnade.common.privacy.codes.plan import DiscretePlan
from colonnade.common.privacy.noise import Normals, secure_bytes, secure_normals, seeded_bytes, seeded_normals
from colonnade.common.privacy.release import GaussianRelease, QuantisedRelease, Release, release_clear
from colonnade.common.privacy.rescale import Rescale
from colonnade.common.privacy.rows import NoisySteps, RowRelease, SampledSteps, deviation
from colonnade.common.privacy.sum_noise import NoiseShare, ring
from colonnade.common.run.run_folder import PartyFolder
from colonnade.common.run.state import State


class Privacy:
    """Privacy protection of one party.

    Args:
        ledger: the party's record, from which earlier spending is read; None keeps none.
        rows: number of released rows, where it differs from the plan's; or the places of aligned rows with codes.

    Attributes:
        steps: noise on the bottom model's steps in the newest session; None without.
        encoder: of codes, in the newest session; None without.

    Raises:
        ConfigError: the federation is weaker than the party's policy.
    """

    steps: NoisySteps | SampledSteps | None
    encoder: OwnEncoder | None

    def __init__(
        self,
        party: str,
        federation: FederationConfig,
        policy: PolicyConfig,
        plan: PrivacyPlan | None,
        ledger: Path | None,
        rows: int | RowPlaces | None = None,
    ) -> None:
        policy.refuse(party, federation)
        self._party, self._seed, self.plan = party, federation.seed, plan
        self._local_steps, self.steps, self.encoder = federation.protocol.local_steps_taken, None, None
        self._codes: OwnCodes | None = None
        self._places = rows if isinstance(rows, RowPlaces) else None
        count = rows.total if isinstance(rows, RowPlaces) else rows
        self._counts = torch.zeros(0 if plan is None else count or plan.rows, dtype=torch.float64)
        self._form, self._evaluations = form_of(federation.compress.up), federation.compress.evaluations
        self._budget: Budget | None = None
        self._step_budget: StepBudget | None = None
        self._ring = None if plan is None or plan.config.once is None else ring(federation, plan)
        if plan is None:
            return
        self._limit = _limit(party, policy, plan)
        if not plan.config.seeded:
            self._budget = Budget(ledger, self._limit, plan.releases, noise_multiplier=plan.noise_multiplier)
            if isinstance(plan, DiscretePlan):
                folder = None if ledger is None else PartyFolder(ledger.parent).codes
                later = 0 if self._places is None else self._places.later
                self._codes = OwnCodes(plan, self._budget, len(self._counts), folder, later)
            self._step_budget = None if plan.steps is None else StepBudget(ledger, plan.steps)

    @property
    def releases(self) -> float:
        """Number of matrices released and paid for so far."""
        return 0 if self._budget is None else self._budget.releases

    def stage(self, state: State, draws: Draws | None = None) -> Release:
        """A session's privacy stage. Seeded noise and its count are in the state, and are restored with it."""
        if self._form == self._evaluations == AS_IS:
            return self._protected(state)
        rounding = state.keep("rounding", lambda: (draws or SecretDraws.fresh()).generator("rounding"))
        return QuantisedRelease(self._protected(state), self._form, self._evaluations, rounding)

    def _protected(self, state: State) -> Release:
        if self.plan is None:
            return release_clear
        normals: Normals = secure_normals
        source, counts = secure_bytes, self._counts
        if self.plan.config.seeded:
            draws = state.keep("noise", lambda: generator("noise", self._seed, self._party))
            normals, source = seeded_normals(draws), lambda: seeded_bytes(draws)
            self._budget = Budget(None, self._limit, self.plan.releases, state.keep("spent", dict[str, float]))
            counts = state.keep("row counts", lambda: torch.zeros_like(self._counts))
        assert self._budget is not None  # made with the plan, or just now
        if isinstance(self.plan, DiscretePlan):
            own = self._codes or SeededCodes(self.plan, self._budget, len(self._counts), self._seed, self._party)
            self.encoder = own.encoder
            return own.release if self._places is None else PlacedRelease(self._places, own.release)
        share = None if self._ring is None else NoiseShare(self.plan, self._ring, source)
        if isinstance(self.plan.config, AdaptivePrivacyConfig):
            paid = None
            if self.plan.steps is not None:
                self.steps = SampledSteps(self.plan, self._steps_within(state), normals, source())
            elif self.plan.config.steps is not None:
                self.steps = paid = NoisySteps(self.plan, self._local_steps, normals)
            factor = rescale(state, self.plan.config, deviation(self.plan))
            return RowRelease(self.plan, normals, RowBudget(self._budget, counts), factor, paid, share)
        return GaussianRelease(self.plan, normals, self._budget, share)

    def _steps_within(self, state: State) -> StepBudget:
        """The budget of steps over secretly drawn rows: on the disk, or with seeded noise in the state."""
        if self._step_budget is not None:
            return self._step_budget
        assert self.plan is not None and self.plan.steps is not None  # checked by the caller
        return StepBudget(None, self.plan.steps, state.keep("steps spent", dict[str, float]))

    def close(self) -> None:
        for budget in (self._budget, self._step_budget):
            if budget is not None:
                budget.close()


def rescale(state: State, config: AdaptivePrivacyConfig, deviation: float) -> Rescale:
    """The factor that the model applies and the privacy stage updates, restored from the state or newly initialised."""
    make = lambda: Rescale(config.rescale, config.clip, deviation, shrink=config.shrink)  # noqa: E731
    return state.keep("rescale", make)


def _limit(party: str, policy: PolicyConfig, plan: PrivacyPlan) -> int | None:
    sigma = plan.noise_multiplier
    if policy.min_noise_multiplier is not None and sigma < policy.min_noise_multiplier:
        cost = f"epsilon = {plan.epsilon(plan.most, plan.strict):.2f} at delta = {plan.config.delta:g}"
        has = f"a noise multiplier of {sigma:g} ({cost})"
        policy.object(party, "min_noise_multiplier", policy.min_noise_multiplier, has)
    wanted = [policy.max_row_epsilon] if plan.strict == "row" else [policy.max_epsilon, policy.max_row_epsilon]
    limits = [] if plan.affordable is None else [plan.affordable]
    for most in wanted:
        if most is not None:
            limits.append(_affordable(party, policy, plan, most))
    return min(limits, default=None)


def _affordable(party: str, policy: PolicyConfig, plan: PrivacyPlan, most: float) -> int:
    """Number of releases within the policy's epsilon. "Other data" means other features in one row."""
    own = plan.within(most)
    if own < plan.most:
        cost = f"epsilon = {plan.epsilon(plan.most, plan.strict):.2f} at delta = {plan.config.delta:g}"
        between = "two values of a row" if plan.strict == "row" else "two data sets"
        has = f"{plan.most} releases at sigma = {plan.noise_multiplier:g}: {cost} between {between}"
        policy.object(party, "max_epsilon" if most == policy.max_epsilon else "max_row_epsilon", most, has)
    return own
