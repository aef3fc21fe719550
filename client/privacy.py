"""A party's privacy over a whole run: its policy, its budget, and the stage that every session releases through."""

from __future__ import annotations

from pathlib import Path

from common.compress import form_of
from common.config import FederationConfig
from common.data.rows import generator
from common.numerics.quantise import AS_IS
from common.privacy.accountant import affordable
from common.privacy.budget import Budget
from common.privacy.noise import secure_normals, seeded_normals
from common.privacy.plan import Plan
from common.privacy.release import GaussianRelease, QuantisedRelease, Release, release_clear
from common.privacy.settings import PolicyConfig
from common.state import State


class Privacy:
    """What protects one party.

    Args:
        party: its name.
        federation: the agreed section.
        policy: what the party insists on.
        plan: what the agreed privacy comes to; None without any.
        ledger: the party's record, from which what was spent before is read; None keeps none.

    Raises:
        ConfigError: the federation is weaker than the party's policy.
    """

    def __init__(
        self, party: str, federation: FederationConfig, policy: PolicyConfig, plan: Plan | None, ledger: Path | None
    ) -> None:
        policy.refuse(party, federation)
        self._party, self._seed, self._plan = party, federation.seed, plan
        self._form, self._evaluations = form_of(federation.compress.up), federation.compress.evaluations
        self._budget: Budget | None = None
        if plan is None:
            return
        self._limit = _limit(party, policy, plan)
        if not plan.config.seeded:
            self._budget = Budget(ledger, self._limit, plan.releases, noise_multiplier=plan.noise_multiplier)

    @property
    def releases(self) -> float:
        """Matrices released and paid for so far."""
        return 0 if self._budget is None else self._budget.releases

    def stage(self, state: State) -> Release:
        """What a session releases through. Seeded noise and its count live in the state, and go back with it."""
        if self._form == self._evaluations == AS_IS:
            return self._protected(state)
        draws = state.keep("rounding", lambda: generator("rounding", self._seed, self._party))
        return QuantisedRelease(self._protected(state), self._form, self._evaluations, draws)

    def _protected(self, state: State) -> Release:
        if self._plan is None:
            return release_clear
        if not self._plan.config.seeded:
            assert self._budget is not None  # made with the plan
            return GaussianRelease(self._plan, secure_normals, self._budget)
        draws = state.keep("noise", lambda: generator("noise", self._seed, self._party))
        counts = state.keep("spent", dict[str, float])
        self._budget = Budget(None, self._limit, self._plan.releases, counts)
        return GaussianRelease(self._plan, seeded_normals(draws), self._budget)

    def close(self) -> None:
        """Gives back what was reserved and not used."""
        if self._budget is not None:
            self._budget.close()


def _limit(party: str, policy: PolicyConfig, plan: Plan) -> int | None:
    """The releases that both the agreed budget and the party's policy allow."""
    sigma = plan.noise_multiplier
    if policy.min_noise_multiplier is not None and sigma < policy.min_noise_multiplier:
        policy.object(party, "min_noise_multiplier", policy.min_noise_multiplier, f"a noise multiplier of {sigma:g}")
    if policy.max_epsilon is None:
        return plan.affordable
    own = affordable(policy.max_epsilon, sigma, plan.config.delta, "replace")
    if own < plan.releases:
        has = f"{plan.releases} releases at sigma = {sigma:g}: epsilon = {plan.epsilon(plan.releases, 'replace'):.2f}"
        policy.object(party, "max_epsilon", policy.max_epsilon, f"{has} between two data sets")
    return own if plan.affordable is None else min(own, plan.affordable)
