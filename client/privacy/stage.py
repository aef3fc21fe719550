"""A party's privacy over a whole run: its policy, its budget, and the stage that every session releases through."""

from __future__ import annotations

from pathlib import Path

from colonnade.client.privacy.answers import Answers, Kind
from colonnade.client.privacy.mechanisms import MECHANISMS, PartyMechanism, Terms
from colonnade.client.privacy.own_encoder import OwnEncoder
from colonnade.client.privacy.row_places import RowPlaces
from colonnade.common.config.compression import form_of
from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.policy import PolicyConfig
from colonnade.common.data.draws import Draws, SecretDraws
from colonnade.common.messaging.forms import AS_IS
from colonnade.common.privacy.accounting.plan import PrivacyPlan
from colonnade.common.privacy.release import QuantisedRelease, Release, release_clear
from colonnade.common.privacy.rows import NoisySteps
from colonnade.common.privacy.sum_noise import ring
from colonnade.common.run.state import State


class Privacy:
    """Privacy protection of one party.

    Args:
        ledger: the party's record, from which earlier spending is read; None keeps none.
        rows: number of released rows, where it differs from the plan's.
        places: of aligned rows with codes.

    Raises:
        ConfigError: the federation is weaker than the party's policy.
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
    ) -> None:
        policy.refuse(party, federation)
        self.plan = plan
        self._party, self._policy, self._ledger = party, policy, ledger
        self._answers: dict[Kind, Answers] = {}
        self._form, self._evaluations = form_of(federation.compress.up), federation.compress.evaluations
        self._mechanism: PartyMechanism | None = None
        if plan is not None:
            over = None if plan.config.once is None else ring(federation, plan)
            terms = Terms(
                party, federation.seed, _limit(party, policy, plan), ledger, rows or plan.rows, places,
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
        """The run's count of answers, of which a run asks for `expected` at most. Errors as of `Answers`."""
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
