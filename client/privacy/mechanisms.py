"""A party's privacy over a whole run: policy and budget, the mechanism of `federation.privacy`, and a session's
stage.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from colonnade.client.privacy.answers import Answers, Kind
from colonnade.client.privacy.codes import OwnCodes, OwnEncoder, PlacedRelease, RowPlaces, SeededCodes
from colonnade.common.aggregation.fixed_point import Ring
from colonnade.common.config.compression import form_of
from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.policy import PolicyConfig
from colonnade.common.config.privacy import PARTS
from colonnade.common.data.draws import Draws, SecretDraws
from colonnade.common.data.rows import generator
from colonnade.common.errors import BudgetSpent
from colonnade.common.messaging.forms import AS_IS
from colonnade.common.privacy.accounting.budget import Budget, StepBudget, least_noise_paid_for
from colonnade.common.privacy.accounting.plan import PrivacyPlan
from colonnade.common.privacy.codes import DiscretePlan
from colonnade.common.privacy.gaussian import GaussianRelease
from colonnade.common.privacy.laplace import Bits
from colonnade.common.privacy.noise import Normals, secure_bytes, secure_normals, seeded_bytes, seeded_normals
from colonnade.common.privacy.release import QuantisedRelease, Release, release_clear
from colonnade.common.privacy.rows import NoisySteps, RowBudget, RowPlan, RowRelease, SampledSteps
from colonnade.common.privacy.sum_noise import NoiseShare, ring
from colonnade.common.run.run_folder import PartyFolder
from colonnade.common.run.state import State


@dataclass(frozen=True)
class Terms:
    """Arguments of a party's mechanism.

    Args:
        seed: the federation's, for seeded noise.
        limit: releases within the plan's budget and the party's policy; None without.
        ledger: the party's record; None keeps none.
        rows: number of released rows.
        places: those of aligned rows with codes.
        steps: most steps of the party after a release.
        ring: ring of blinded sums with noise once.
    """

    party: str
    seed: int
    limit: int | None
    ledger: Path | None
    rows: int
    places: RowPlaces | None = None
    steps: int = 1
    ring: Ring | None = None


class _RowCounts:
    """`PARTS` of releases by row, int64 (rows,). Checkpoints of 0.2 have releases, float64."""

    def __init__(self, rows: int) -> None:
        self.parts = torch.zeros(rows, dtype=torch.int64)

    def state(self) -> Tensor:
        return self.parts

    def restore(self, saved: Tensor) -> None:
        if saved.shape != self.parts.shape:
            raise ValueError(f"{tuple(saved.shape)} for {tuple(self.parts.shape)}")
        self.parts.copy_((saved * PARTS).round() if saved.is_floating_point() else saved)


class PartyMechanism:
    """One mechanism over a run. Seeded noise and its count are in the state, anything else is on the disk."""

    plan: Any
    steps: NoisySteps | None = None
    encoder: OwnEncoder | None = None

    def __init__(self, plan: PrivacyPlan, terms: Terms) -> None:
        self.plan, self._terms, self._counts = plan, terms, torch.zeros(terms.rows, dtype=torch.int64)
        path = None if plan.config.seeded else terms.ledger
        planned = None if path is None or plan.void else plan.epsilon(plan.planned(terms.party))
        self._budget = Budget(
            path, terms.limit, plan.releases, noise_multiplier=plan.noise_multiplier, planned=planned
        )  # fmt: skip
        self._normals: Normals = secure_normals
        self._bits: Callable[[], Bits] = secure_bytes

    @property
    def releases(self) -> float:
        return self._budget.releases

    def stage(self, state: State) -> Release:
        if self.plan.config.seeded:
            draws = state.keep("noise", lambda: generator("noise", self._terms.seed, self._terms.party))
            self._normals, self._bits = seeded_normals(draws), lambda: seeded_bytes(draws)
            spent = state.keep("spent", dict[str, float])
            self._budget = Budget(None, self._terms.limit, self.plan.releases, spent)
            self._counts = state.keep("row counts", lambda: _RowCounts(len(self._counts))).parts
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


class Privacy:
    """Privacy protection of one party. Raises ConfigError if the federation is weaker than the party's policy.

    Args:
        ledger: the party's record, from which earlier spending is read; None keeps none.
        rows: number of released rows, if other than the plan's.
        places: those of aligned rows with codes.
        predicts: True for predictions, for which training leaves the plan's `predictions`.
    """

    def __init__(
        self,
        party: str,
        federation: FederationConfig,
        policy: PolicyConfig,
        plan: PrivacyPlan | None,
        ledger: Path | None,
        *,
        rows: int | None = None,
        places: RowPlaces | None = None,
        predicts: bool = False,
    ) -> None:
        self.plan, limit = plan, allowed(party, federation, policy, plan)
        self._party, self._policy, self._ledger = party, policy, ledger
        self._answers: dict[Kind, Answers] = {}
        self._form, self._evaluations = form_of(federation.compress.up), federation.compress.evaluations
        self._mechanism: PartyMechanism | None = None
        if plan is not None:
            over = None if plan.config.once is None else ring(federation, plan)
            left = limit if limit is None or predicts else limit - plan.predictions
            terms = Terms(
                party, federation.seed, left, ledger, rows or plan.rows, places,
                federation.protocol.local_steps_taken, over,
            )  # fmt: skip
            self._mechanism = MECHANISMS[plan.config.mechanism](plan, terms)

    @property
    def releases(self) -> float:
        """Number of matrices released and paid for so far."""
        return 0 if self._mechanism is None else self._mechanism.releases

    @property
    def steps(self) -> NoisySteps | None:
        """Noise on the bottom model's steps in the newest session; None without."""
        return None if self._mechanism is None else self._mechanism.steps

    @property
    def encoder(self) -> OwnEncoder | None:
        """Encoder of codes in the newest session; None without."""
        return None if self._mechanism is None else self._mechanism.encoder

    def answers(self, kind: Kind, expected: int) -> Answers:
        """Count of answers in the run, which asks for at most `expected`. Raises as `Answers`."""
        if kind not in self._answers:
            self._answers[kind] = Answers(self._ledger, self._party, self._policy, kind, expected)
        return self._answers[kind]

    def stage(self, state: State, draws: Draws | None = None) -> Release:
        """A session's privacy stage. Seeded noise and its count are in the state, and are restored with it."""
        release = release_clear if self._mechanism is None else self._mechanism.stage(state)
        if self._form == self._evaluations == AS_IS:
            return release
        rounding = state.keep("rounding", lambda: (draws or SecretDraws.fresh()).generator("rounding"))
        return QuantisedRelease(release, self._form, self._evaluations, rounding)

    def close(self) -> None:
        for each in self._answers.values():
            each.close()
        if self._mechanism is not None:
            self._mechanism.close()


def refuse_longer(plan: PrivacyPlan, ledger: Path | None, rounds: Callable[[float], int]) -> None:
    """Refuses a plan with more noise than the releases in the ledger had: they have cost more than it allows for.

    Args:
        rounds: the rounds that the budget pays for with a noise multiplier.

    Raises BudgetSpent.
    """
    if ledger is None or plan.config.seeded or not plan.derived:
        return
    begun = least_noise_paid_for(ledger)
    if begun is None or begun >= plan.noise_multiplier:
        return
    most = rounds(begun)
    raise BudgetSpent(
        f"the privacy budget is spent: earlier releases had noise multiplier {begun:g}, at which federation.privacy."
        f"epsilon = {plan.config.epsilon:g} pays for at most {most} rounds; {plan.releases} releases in {plan.rounds} "
        f"rounds need {plan.noise_multiplier:g} from the first release on",
        hint=f"resume with federation.rounds: {most} and epochs: 0 at most, or begin a new run of the longer length; "
        "one with noise_multiplier beside epsilon can be resumed with any length, and ends where the budget does",
    )


def allowed(party: str, federation: FederationConfig, policy: PolicyConfig, plan: PrivacyPlan | None) -> int | None:
    """Releases within the plan's budget and the party's policy; None without a limit.

    Raises ConfigError if the federation, or its plan for the run's rows, is weaker than the policy.
    """
    policy.refuse(party, federation)
    if plan is None:
        return None
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
