"""Privacy plan of a run: sigma, the number of affordable rounds, and their cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from colonnade.common.config.privacy import AdaptivePrivacyConfig, Adjacency, AnyPrivacyConfig, NoisyPrivacyConfig
from colonnade.common.errors import ConfigError
from colonnade.common.privacy.accounting.accountant import affordable, epsilon, find_noise_multiplier
from colonnade.common.privacy.accounting.calibration import gaussian_sigma

if TYPE_CHECKING:  # imported where it is needed: scipy's convolution is half a second, and few runs need it
    from colonnade.common.privacy.accounting.sampled import SampledGaussian

SEEDED = "noise was drawn from the federation's seed, which every member knows"


@dataclass(frozen=True)
class PrivacyPlan:
    """Privacy plan, derived identically at the server and at every party.

    Args:
        config: the agreed settings.
        noise_multiplier: sigma.
        rounds: maximum of the run.
        releases: maximum of one party in them; with row protection, of one row.
        affordable: releases within the budget; None without a budget.
        rows: of the data.
        predictions: releases kept back from training for predictions, beside `releases`.
        present: with noise once, the fewest parties in a sum; 1 where every party adds all of the noise.
        steps: all steps of a party over secretly drawn rows that its budget of steps allows; None without. Every
            epsilon counts them all, so that it holds whenever the run ends.
    """

    config: AnyPrivacyConfig
    noise_multiplier: float
    rounds: int
    releases: int
    affordable: int | None
    rows: int = 0
    predictions: int = 0
    present: int = 1
    steps: SampledGaussian | None = None

    @property
    def honest(self) -> int:
        """Parties whose shares of the noise the guarantee needs in every sum; 1 without noise once."""
        return self.present if self.config.once is None else self.present - self.config.once.colluders

    @property
    def gain(self) -> float:
        """Noise of a party's release over that of its share: sums have so many times less than without noise once."""
        return math.sqrt(self.honest)

    @property
    def void(self) -> str | None:
        """Reason why the accounting's epsilon is not a guarantee; None if it is."""
        if self.config.heuristic:
            return self.config.heuristic
        if self.config.seeded:
            return SEEDED
        if self.config.evaluate == "clean":
            return "evaluations left in the clear (benchmark); the accounting is of the training rounds alone"
        return self.config.unbounded or None

    @property
    def in_words(self) -> str:
        """The releases, where they are of another kind than noised matrices or embeddings; or ""."""
        return ""

    @property
    def most(self) -> int:
        """Maximum number of releases of one party (or row) in training and in predictions."""
        return self.releases + self.predictions

    @property
    def spent_by_training(self) -> bool:
        """True if training may leave no release of the budget for a prediction."""
        return self.affordable is not None and self.affordable <= self.releases

    @property
    def strict(self) -> Adjacency:
        """Adjacency for replaced data, independent of the agreed one: `row` or `replace`."""
        return "row" if self.config.adjacency == "row" else "replace"

    def epsilon(self, releases: float, adjacency: Adjacency | None = None) -> float:
        """Epsilon of a number of releases; under the agreed adjacency by default."""
        config = self.config
        adjacency = adjacency or config.adjacency
        if self.steps is not None:
            return _beside(self.steps, releases, self.noise_multiplier, config.delta)
        return epsilon(releases, self.noise_multiplier, config.delta, adjacency, config.accounting)

    def person_epsilon(self, releases: Iterable[float]) -> float:
        """Epsilon of all parties' releases for a person with a row at each of them.

        They are Gaussian releases of one person's data, so the counts of all parties add up. With noise once n parties
        of a sum move it n times as far as one, against n shares of the noise: each release counts `honest` times.
        Steps over secretly drawn rows are those of all parties.
        """
        if self.steps is not None:
            parties, total = len(counts := list(releases)), self.honest * sum(counts)
            steps = replace(self.steps, steps=parties * self.steps.steps)
            return _beside(steps, total, self.noise_multiplier, self.config.delta)
        return self.epsilon(self.honest * sum(releases), self.strict)

    def within(self, budget: float) -> int:
        """Number of releases within an epsilon between two data sets, or two values of a row."""
        return _affordable(self.config, budget, self.noise_multiplier, self.strict, self.steps)


def plan(
    config: NoisyPrivacyConfig,
    rows: int,
    rounds: int,
    releases: Callable[[int], int],
    *,
    benchmark: bool = False,
    present: int = 1,
    steps: int = 1,
) -> PrivacyPlan:
    """Finds sigma if only a budget is given, and the rounds within a budget.

    Args:
        config: `federation.privacy`.
        rows: of the data.
        rounds: configured for the federation.
        releases: function of rounds: releases of one party (or row) in a run of that length, evaluations included.
        benchmark: True if the data are public, so that delta may be as in a paper.
        present: fewest parties in a sum, if the noise is in it once.
        steps: of a round.

    Raises:
        ConfigError: delta is too large for the number of rows, or the budget does not allow one round.
    """
    refuse_large_delta(config.delta, rows, benchmark=benchmark)
    wanted = min(rounds, config.rounds or rounds)
    sigma = release_sigma(config)
    budget, sampled = config.epsilon, _sampled(config, wanted * steps)
    if sigma is None:
        assert budget is not None  # one of the two is set
        count = releases(wanted) + config.predictions
        if sampled is not None:
            from colonnade.common.privacy.accounting.sampled import find_release_noise  # noqa: PLC0415  # above

            sigma = find_release_noise(budget, config.delta, count, sampled)
        else:
            sigma = find_noise_multiplier(budget, config.delta, count, config.adjacency, config.accounting)
    allowed = None if budget is None else _affordable(config, budget, sigma, config.adjacency, sampled)
    paid = wanted if allowed is None else _paid(wanted, allowed - config.predictions, releases)
    if paid == 0:
        kept = f"; {config.predictions} are kept for predictions" if config.predictions else ""
        raise ConfigError(
            f"federation.privacy.epsilon = {budget:g}: at noise_multiplier = {sigma:g} it pays for {allowed} "
            f"releases, and a run of one round makes {releases(1)}, its evaluations among them{kept}",
            hint="leave noise_multiplier out, so that it is found from epsilon; or give a larger epsilon, a larger "
            "batch or smaller test parts",
        )
    least = 1 if config.once is None else config.once.present or present
    return PrivacyPlan(config, sigma, paid, releases(paid), allowed, rows, config.predictions, least, sampled)


def _sampled(config: AnyPrivacyConfig, count: int) -> SampledGaussian | None:
    """The mechanism of so many steps over secretly drawn rows; None where there are none of these."""
    found = config.steps if isinstance(config, AdaptivePrivacyConfig) else None
    if found is None or found.rate is None or found.noise_multiplier is None:
        return None
    from colonnade.common.privacy.accounting.sampled import SampledGaussian  # noqa: PLC0415  # above

    return SampledGaussian(found.rate, found.noise_multiplier, count)


def _beside(steps: SampledGaussian, releases: float, noise_multiplier: float, delta: float) -> float:
    """Epsilon of releases and of all steps over secretly drawn rows; 0 before the first release, which steps follow."""
    from colonnade.common.privacy.accounting.sampled import joint_epsilon  # noqa: PLC0415  # above

    return joint_epsilon(steps, releases, noise_multiplier, delta) if releases else 0.0


def _affordable(
    config: AnyPrivacyConfig, budget: float, sigma: float, adjacency: Adjacency, steps: SampledGaussian | None
) -> int:
    """Number of releases within an epsilon, beside all steps over secretly drawn rows."""
    if steps is not None:
        from colonnade.common.privacy.accounting.sampled import releases_within  # noqa: PLC0415  # above

        return releases_within(budget, config.delta, sigma, steps)
    return affordable(budget, sigma, config.delta, adjacency, config.accounting)


def refuse_large_delta(delta: float, rows: int, *, benchmark: bool) -> None:
    """Refuses a delta that would let rows be published at random. Raises ConfigError."""
    if delta >= 1 / rows and not benchmark:
        raise ConfigError(
            f"federation.privacy.delta = {delta:g}: with {rows} rows it must be below "
            f"1/{rows} = {1 / rows:.2g}, or publishing a row at random would count as private",
            hint="give a smaller delta, a tenth of 1 / rows is usual; or, where nobody's secrets are in the data, set "
            "federation.benchmark to true",
        )


def _paid(rounds: int, allowed: int, releases: Callable[[int], int]) -> int:
    """The largest number of rounds with at most the allowed releases; releases never decrease with rounds."""
    low, high = 0, rounds + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if releases(middle) <= allowed else (low, middle)
    return low


def release_sigma(config: NoisyPrivacyConfig) -> float | None:
    """The noise multiplier if it does not follow from a budget over the whole run."""
    if isinstance(config, AdaptivePrivacyConfig) and config.release_epsilon is not None:
        return gaussian_sigma(config.release_epsilon, config.delta)
    return config.noise_multiplier


def release_cost(config: AdaptivePrivacyConfig, steps: int) -> float:
    """Cost of a training row's release in releases of an embedding, including the steps that follow it.

    Renyi costs are proportional to 1 / sigma^2, so that they add up in this unit.
    """
    if config.steps is None or config.steps.rate is not None:  # secretly drawn rows are counted by themselves
        return 1.0
    return 1.0 + steps * config.steps.cost
