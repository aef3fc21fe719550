"""What the agreed privacy comes to in a run: sigma, how many rounds it pays for, and what they cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from colonnade.common.errors import ConfigError
from colonnade.common.privacy.accounting.accountant import affordable, epsilon, find_noise_multiplier
from colonnade.common.privacy.adaptive import AdaptivePrivacyConfig
from colonnade.common.privacy.settings import Adjacency, PrivacyConfig

AnyPrivacyConfig = PrivacyConfig | AdaptivePrivacyConfig

SEEDED = "noise was drawn from the federation's seed, which every member knows"


@dataclass(frozen=True)
class PrivacyPlan:
    """Derived alike at the server and at every party.

    Args:
        config: what was agreed.
        noise_multiplier: sigma.
        rounds: that the run may have.
        releases: that one party makes in them, at most; where rows are protected each by itself, of one row.
        affordable: releases that the budget allows; None without a budget.
        rows: of the data.
    """

    config: AnyPrivacyConfig
    noise_multiplier: float
    rounds: int
    releases: int
    affordable: int | None
    rows: int = 0

    @property
    def void(self) -> str | None:
        """Why the accounting's epsilon is no guarantee, if it is none."""
        if self.config.heuristic:
            return self.config.heuristic
        if self.config.seeded:
            return SEEDED
        if self.config.evaluate == "clean":
            return "evaluations left in the clear (benchmark); the accounting is of the training rounds alone"
        return self.config.unbounded or None

    @property
    def strict(self) -> Adjacency:
        """Who is a neighbour where other data are meant, whatever was agreed: a row's other features among them."""
        return "row" if self.config.adjacency == "row" else "replace"

    def epsilon(self, releases: float, adjacency: Adjacency | None = None) -> float:
        """What so many releases cost; under the agreed adjacency if none is named."""
        config = self.config
        adjacency = adjacency or config.adjacency
        return epsilon(releases, self.noise_multiplier, config.delta, adjacency, config.accounting)

    def person_epsilon(self, releases: Iterable[float]) -> float:
        """What the releases of all parties cost a person whose row lies at each of them.

        They are Gaussian releases of one person's data, whoever made them, so their counts add up as one party's do.
        """
        return self.epsilon(sum(releases), self.strict)

    def within(self, budget: float) -> int:
        """How many releases stay within an epsilon between two data sets, or two values of a row."""
        return affordable(budget, self.noise_multiplier, self.config.delta, self.strict, self.config.accounting)


def plan(
    config: AnyPrivacyConfig, rows: int, rounds: int, releases: Callable[[int], int], *, benchmark: bool = False
) -> PrivacyPlan:
    """Finds sigma where only a budget is given, and the rounds that a budget pays for.

    Args:
        config: `federation.privacy`.
        rows: of the data.
        rounds: that the federation asks for.
        releases: rounds -> how many releases one party (or row) makes in a run of so many, evaluations among them.
        benchmark: whether nobody's secrets are in the data, so that delta may be as in a paper.

    Raises:
        ConfigError: delta means nothing for so many rows, or the budget pays for no round.
    """
    if config.delta >= 1 / rows and not benchmark:
        raise ConfigError(
            f"federation.privacy.delta = {config.delta:g}: with {rows} rows it must be below "
            f"1/{rows} = {1 / rows:.2g}, or publishing a row at random would count as private",
            hint="give a smaller delta, a tenth of 1 / rows is usual; or, where nobody's secrets are in the data, set "
            "federation.benchmark to true",
        )
    wanted = min(rounds, config.rounds or rounds)
    sigma = config.sigma if isinstance(config, AdaptivePrivacyConfig) else config.noise_multiplier
    budget = config.epsilon
    if sigma is None:
        assert budget is not None  # one of the two is there
        sigma = find_noise_multiplier(budget, config.delta, releases(wanted), config.adjacency, config.accounting)
    allowed = None
    if budget is not None:
        allowed = affordable(budget, sigma, config.delta, config.adjacency, config.accounting)
    paid = wanted if allowed is None else _paid(wanted, allowed, releases)
    if paid == 0:
        raise ConfigError(
            f"federation.privacy.epsilon = {budget:g}: at noise_multiplier = {sigma:g} it pays for {allowed} "
            f"releases, and a run of one round makes {releases(1)}, its evaluations among them",
            hint="give more noise, a larger epsilon, a larger batch or smaller test parts",
        )
    return PrivacyPlan(config, sigma, paid, releases(paid), allowed, rows)


def _paid(rounds: int, allowed: int, releases: Callable[[int], int]) -> int:
    """The largest number of rounds with no more releases than allowed; a longer run never makes fewer."""
    low, high = 0, rounds + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if releases(middle) <= allowed else (low, middle)
    return low
