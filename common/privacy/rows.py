"""`mechanism: adaptive`: differential privacy of a row (VFL-AFE, Mi et al. 2023, Eq. 2), over regions.

Every embedding is brought into its region and gets noise; with `steps` so do the gradients of the bottom model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from colonnade.common.config.privacy import PARTS, AdaptivePrivacyConfig, Adjacency, releases_of
from colonnade.common.errors import BudgetSpent, ConfigError, InputError
from colonnade.common.messaging.outgoing import Released
from colonnade.common.privacy.accounting.accountant import (
    SENSITIVITY,
    Event,
    gaussian_epsilon,
    gaussian_sigma,
    least_noise,
)
from colonnade.common.privacy.accounting.budget import Budget, StepBudget
from colonnade.common.privacy.accounting.plan import PrivacyPlan
from colonnade.common.privacy.accounting.sampled import SampledGaussian
from colonnade.common.privacy.laplace import Bits, drawn_rows
from colonnade.common.privacy.noise import Normals, add_normals
from colonnade.common.privacy.release import once_in_words, shared, unpaid
from colonnade.common.privacy.response_noise import RowNoise
from colonnade.common.privacy.shaped import Rescale, Shape, Shaped, bring_into, radius
from colonnade.common.privacy.sum_noise import NoiseShare
from colonnade.common.run.state import State

_COUNTED = 2**63 - 1  # parts of a release, of which 64 bits hold no more


class RowBudget:
    """Counts releases per row, and pays from a budget when the maximum over rows increases.

    Every row is protected separately, so only the maximum counts. Releases paid for by an earlier start count for every
    row.

    Args:
        budget: durable count of the maximum over rows.
        counts: `PARTS` of releases per row since then, int64 (rows,), changed in place.
    """

    def __init__(self, budget: Budget, counts: Tensor) -> None:
        self._budget, self._counts = budget, counts
        self._paid = releases_of(int(counts.max()))

    def spend(self, rows: Tensor, cost: int = PARTS) -> float:
        """Pays for one more release of some rows and returns the maximum over rows, rounded up.

        Args:
            rows: int64 (n,), without repeats.
            cost: in parts of a release, if it includes more than an embedding.

        Raises:
            BudgetSpent: one of them would exceed the limit.
            EnvironmentFault: the payment cannot be recorded.
        """
        before = self._counts.index_select(0, rows.cpu())
        most = int(before.max()) + cost if len(rows) else 0
        if most > _COUNTED:
            raise BudgetSpent(
                f"the privacy budget is spent: a row has {releases_of(most)} releases, more than are counted",
                hint="give federation.privacy.steps a smaller cost",
            )
        if (wanted := releases_of(most)) > self._paid:
            self._budget.spend(wanted - self._paid)
            self._paid = wanted
        self._counts[rows.cpu()] = before + cost
        return self._budget.releases


_ROUNDING = 1e-6  # relative, of float32 norms and sums

_OWN = (
    "a row's own embeddings at one party, with the models that make them held fixed: no bound on what the row leaves "
    "in the models and in other rows' embeddings"
)
_ALL = "a row's embeddings, and all that training on it leaves in the models"


@dataclass(frozen=True)
class RowPlan(PrivacyPlan):
    """The plan of a row's releases.

    Args:
        steps: all of a party's steps over secretly drawn rows within its budget; None without. Every epsilon counts
            them all, so that it holds whenever the run ends.
    """

    config: AdaptivePrivacyConfig
    steps: SampledGaussian | None = None

    @staticmethod
    def _sigma(config: AdaptivePrivacyConfig) -> float | None:
        if config.release_epsilon is not None:
            return gaussian_sigma(config.release_epsilon, config.delta)
        return config.noise_multiplier

    @staticmethod
    def _more(config: AdaptivePrivacyConfig, steps: int) -> dict[str, Any]:
        found = config.steps
        if found is None or found.rate is None or found.noise_multiplier is None:
            return {}
        return {"steps": SampledGaussian(found.rate, found.noise_multiplier, steps)}

    def _find_noise(self, budget: float) -> float:
        if self.steps is None:
            return super()._find_noise(budget)
        found = least_noise(self.event(self.most), budget, self.config.delta)
        if found is None:
            raise ConfigError(
                f"federation.privacy.epsilon = {budget:g}: {self.steps.steps} steps over secretly drawn rows alone "
                f"come to {self.steps.epsilon(self.config.delta):.3g} at delta = {self.config.delta:g}",
                hint="give a larger epsilon or steps.noise_multiplier, or a smaller steps.rate, tau or number of "
                "rounds",
            )
        return found

    @property
    def deviation(self) -> float:
        """2 sigma t."""
        return 2 * self.noise_multiplier * self.config.clip

    @property
    def largest(self) -> float:
        return radius(self.config.release, self.config.clip)

    def event(self, releases: float, adjacency: Adjacency | None = None) -> Event:
        """As for all mechanisms, with all steps; empty before the first release, which precedes all steps."""
        if not releases:
            return Event()
        return Event(releases, self.noise_multiplier, SENSITIVITY[adjacency or "row"], self.steps)

    def person_event(self, releases: list[float]) -> Event:
        """As for all mechanisms; steps over secretly drawn rows are those of all parties."""
        event = super().person_event(releases)
        if event.steps is None:
            return event
        return replace(event, steps=replace(event.steps, steps=len(releases) * event.steps.steps))

    @property
    def _steps_in_words(self) -> str:
        if self.steps is None:
            return ""
        drawn = f"rows that the party draws in secret, each with probability {self.steps.rate:g}"
        return f" and {self.steps.steps} steps over {drawn}, at noise multiplier {self.steps.noise_multiplier:g}"

    def summary(self) -> dict[str, Any]:
        return {
            **super().summary(),
            "release": self.config.release,
            "rescale": self.config.rescale,
            "deviation": self.deviation,
            "release_epsilon": round(gaussian_epsilon(self.noise_multiplier, self.config.delta), 6),
            "about": _ALL if self.config.steps else _OWN,
            **({} if self.steps is None else {"secret_steps": asdict(self.steps)}),
        }

    def rescale(self, state: State) -> Rescale:
        """The factor that the model applies and the privacy stage updates, restored from the state or new."""
        config = self.config
        make = lambda: Rescale(config.rescale, config.clip, self.deviation, shrink=config.shrink)  # noqa: E731
        return state.keep("rescale", make)

    def shaped(self, model: nn.Module, state: State, device: torch.device) -> nn.Module:
        """The model with embeddings brought into their region."""
        config, factor = self.config, self.rescale(state).to(device)
        return Shaped(model, Shape(config.release, config.clip, factor, leaves=config.rescale == "paper"))


class RowRelease:
    """Brings every row into its region and adds N(0, 4 sigma^2 t^2) to every entry.

    Inputs should lie in the region already, since gradients went through the same shape; the guarantee does not depend
    on it. With `rescale: paper` rows keep their distance from the origin, and there is no guarantee.

    Args:
        plan: t, the region, sigma and delta.
        rescale: updated with every release.
        steps: paid for with every training row, if steps have noise.
        share: adds the noise in place of `normals`, where a sum has it once.
    """

    def __init__(
        self,
        plan: RowPlan,
        normals: Normals,
        budget: RowBudget,
        rescale: Rescale,
        steps: NoisySteps | None = None,
        share: NoiseShare | None = None,
    ) -> None:
        config = plan.config
        self._plan, self._config, self._normals, self._budget, self._rescale = plan, config, normals, budget, rescale
        self._deviation, self._steps, self._share = plan.deviation, steps, share
        self._name = _name(plan)
        self._void = plan.void is not None

    def __call__(self, private: Tensor, *, evaluation: bool = False, rows: Tensor | None = None) -> Released:
        """Releases embeddings (rows, width) in their dtype. Raises BudgetSpent."""
        if evaluation and self._config.evaluate != "released":
            return unpaid(self._config.evaluate, private)
        if rows is None or len(rows) != len(private):
            raise InputError("a release that protects rows needs their numbers", hint="pass rows= to release")
        spent = self._budget.spend(rows, PARTS if evaluation or self._steps is None else self._steps.pay())
        epsilon = None if self._void else self._plan.epsilon(spent)
        bounded = self._bounded(private.detach())
        if self._share is not None:
            return shared(self._share, bounded, private, self._name, epsilon)
        value = add_normals(bounded, self._deviation, self._normals).to(private.dtype)
        if not evaluation:
            self._rescale.observe(value)
        return Released(value, self._name, epsilon)

    def _bounded(self, private: Tensor) -> Tensor:
        h = private.double().nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
        return h if self._config.heuristic else bring_into(self._config.release, self._config.clip, h)


class NoisySteps:
    """Gradients of a bottom model as DP-SGD takes them (Abadi et al. 2016, Algorithm 1), paid with the rows' release.

    Args:
        plan: C_0, the cost of a step, and sigma.
        steps: maximum after one release.

    Attributes:
        clip: C_0, slightly below the threshold of the noise, since norms and sums are rounded.
        draw: None, as steps use the announced batch.
    """

    draw: Callable[[Tensor], Tensor] | None = None

    def __init__(self, plan: RowPlan, steps: int, normals: Normals) -> None:
        config = plan.config.steps
        assert config is not None  # ensured by the plan
        self._most, self._left, self._cost = steps, 0, plan.config.training_cost(steps)
        self._noise = RowNoise(config.clip, 2 * plan.noise_multiplier / math.sqrt(config.cost), normals)
        self.clip = config.clip * (1 - _ROUNDING)

    def pay(self) -> int:
        """Returns the cost of a release and its steps, in parts of a release, and permits these steps."""
        self._left = self._most
        return self._cost

    def mean(self, gradients: Sequence[Tensor]) -> list[Tensor]:
        """The mean of the rows' gradients, clipped together and with noise: (rows, *shape) -> (*shape) each.

        Raises InputError if no step of these rows has been paid for.
        """
        divisor = self._taken(len(gradients[0]))
        return [total / divisor for total in self._noise.sums(gradients)]

    def mean_of(self, clipped: Sequence[Tensor], rows: int) -> list[Tensor]:
        """The same for sums of rows already clipped jointly to `clip`, (*shape) each."""
        divisor = self._taken(rows)
        return [total / divisor for total in self._noise.noised(clipped)]

    def _taken(self, rows: int) -> float:
        if not self._left:
            raise InputError(
                "a step was taken that no release has paid for",
                hint="steps on private rows come after their release, and no more than the protocol's config says",
            )
        self._left -= 1
        return rows


class SampledSteps(NoisySteps):
    """The same over rows that this party draws in secret.

    The rows' sum is divided by the expected number of rows: the drawn number is as secret as the rows.

    Args:
        plan: C_0, the rate and sigma_0.
        budget: charged before a step's rows are drawn.
    """

    def __init__(self, plan: RowPlan, budget: StepBudget, normals: Normals, bits: Bits) -> None:
        super().__init__(plan, 1, normals)
        assert plan.steps is not None and plan.config.steps is not None  # ensured by the plan
        self._budget, self._bits, self._rate, self._expected = budget, bits, plan.steps.rate, 0.0
        self._noise = RowNoise(plan.config.steps.clip, plan.steps.noise_multiplier, normals)

    def draw(self, held: Tensor) -> Tensor:
        """Pays for a step and draws its rows.

        Args:
            held: numbers of the rows that can be drawn, int64 (rows,): all training rows with duals.

        Returns int64 (drawn,), possibly empty. Raises BudgetSpent and EnvironmentFault as `StepBudget.spend`.
        """
        self._budget.spend()
        self._expected = max(1.0, self._rate * len(held))
        return held[torch.from_numpy(drawn_rows(len(held), self._rate, self._bits)).to(held.device)]

    def _taken(self, rows: int) -> float:  # noqa: ARG002
        if not self._expected:
            raise InputError("a step was taken of rows that were not drawn", hint="draw the rows of every step anew")
        expected, self._expected = self._expected, 0.0
        return expected


def _name(plan: RowPlan) -> str:
    config = plan.config
    noise = f"sigma={plan.noise_multiplier:g} delta={config.delta:g}"
    rescale = "" if config.rescale == "none" else f" rescale={config.rescale}"
    said = f" ({config.heuristic})" if config.heuristic else ""
    seeded = " seeded" if config.seeded else ""
    steps = "" if config.steps is None else f" steps C={config.steps.clip:g} cost={config.steps.cost:g}"
    if plan.steps is not None and config.steps is not None:
        how = f"rate={plan.steps.rate:g} sigma={plan.steps.noise_multiplier:g} of {plan.steps.steps}"
        steps = f" secret steps C={config.steps.clip:g} {how}"
    return f"adaptive {config.release} t={config.clip:g} {noise} row{steps}{rescale}{seeded}{said}{once_in_words(plan)}"
