"""Per-row differential privacy of embeddings: VFL-AFE (Mi et al. 2023), Eq. 2, over regions of known diameter."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from colonnade.common.config.privacy import AdaptivePrivacyConfig
from colonnade.common.errors import InputError
from colonnade.common.messaging.outgoing import Released
from colonnade.common.privacy.accounting.plan import PrivacyPlan, release_cost
from colonnade.common.privacy.accounting.row_budget import RowBudget
from colonnade.common.privacy.accounting.step_budget import StepBudget
from colonnade.common.privacy.laplace import Bits, drawn_rows
from colonnade.common.privacy.noise import Normals, add_normals
from colonnade.common.privacy.regions import bring_into
from colonnade.common.privacy.release import once_in_words, shared, unpaid
from colonnade.common.privacy.rescale import Rescale
from colonnade.common.privacy.response_noise import RowNoise
from colonnade.common.privacy.sum_noise import NoiseShare

_ROUNDING = 1e-6  # relative, of float32 norms and sums


class RowRelease:
    """Brings every row into its region and adds N(0, 4 sigma^2 t^2) to every entry.

    Inputs should lie in the region already, since gradients went through the same shape; the guarantee does not depend
    on it. With `rescale: paper` rows keep their distance from the origin, and there is no guarantee.

    Args:
        plan: t, the region, sigma and delta.
        normals: source of the noise.
        budget: charged per row.
        rescale: updated with every release.
        steps: paid for with every training row, if steps have noise.
        share: adds the noise in place of `normals`, where a sum has it once.
    """

    def __init__(
        self,
        plan: PrivacyPlan,
        normals: Normals,
        budget: RowBudget,
        rescale: Rescale,
        steps: NoisySteps | None = None,
        share: NoiseShare | None = None,
    ) -> None:
        config = plan.config
        assert isinstance(config, AdaptivePrivacyConfig)  # the plan selects this release
        self._plan, self._config, self._normals, self._budget, self._rescale = plan, config, normals, budget, rescale
        self._deviation, self._steps, self._share = deviation(plan), steps, share
        self._name = _name(plan, config)
        self._void = plan.void is not None

    def __call__(self, private: Tensor, *, evaluation: bool = False, rows: Tensor | None = None) -> Released:
        """Releases embeddings (rows, width) in their dtype. Raises BudgetSpent."""
        if evaluation and self._config.evaluate != "released":
            return unpaid(self._config.evaluate, private)
        if rows is None or len(rows) != len(private):
            raise InputError("a release that protects rows needs their numbers", hint="pass rows= to release")
        spent = self._budget.spend(rows, 1.0 if evaluation or self._steps is None else self._steps.pay())
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
        normals: source of the noise.
    """

    def __init__(self, plan: PrivacyPlan, steps: int, normals: Normals) -> None:
        config = plan.config
        assert isinstance(config, AdaptivePrivacyConfig) and config.steps is not None  # ensured by the plan
        self._most, self._left, self._cost = steps, 0, release_cost(config, steps)
        multiplier = 2 * plan.noise_multiplier / math.sqrt(config.steps.cost)
        self._clip, self._noise = config.steps.clip, RowNoise(config.steps.clip, multiplier, normals)

    def pay(self) -> float:
        """Returns the cost of a release and its steps, in releases, and permits these steps."""
        self._left = self._most
        return self._cost

    def mean(self, gradients: Sequence[Tensor]) -> list[Tensor]:
        """The mean of the rows' gradients, clipped together and with noise: (rows, *shape) -> (*shape) each.

        Raises:
            InputError: no step of these rows has been paid for.
        """
        self._take()
        return [total / len(rows) for total, rows in zip(self._noise.sums(gradients), gradients, strict=True)]

    def mean_of(self, clipped: Sequence[Tensor], rows: int) -> list[Tensor]:
        """The same for sums of rows already clipped jointly to `clip`, (*shape) each."""
        self._take()
        return [total / rows for total in self._noise.noised(clipped)]

    @property
    def clip(self) -> float:
        """C_0, slightly below the threshold of the noise, since norms and sums are rounded."""
        return self._clip * (1 - _ROUNDING)

    def _take(self) -> None:
        if not self._left:
            raise InputError(
                "a step was taken that no release has paid for",
                hint="steps on private rows come after their release, and no more than the protocol's config says",
            )
        self._left -= 1


class SampledSteps:
    """Gradients of a bottom model as DP-SGD takes them over rows that this party draws in secret.

    The rows' sum is divided by the number that is expected: the number that was drawn is as secret as the rows.

    Args:
        plan: C_0, the rate and sigma_0.
        budget: charged before a step's rows are drawn.
        normals: source of the noise.
        bits: source of the draws.
    """

    def __init__(self, plan: PrivacyPlan, budget: StepBudget, normals: Normals, bits: Bits) -> None:
        config = plan.config
        assert isinstance(config, AdaptivePrivacyConfig) and config.steps is not None  # ensured by the plan
        assert plan.steps is not None  # likewise
        self._budget, self._bits, self._rate, self._clip = budget, bits, plan.steps.rate, config.steps.clip
        self._noise, self._expected = RowNoise(config.steps.clip, plan.steps.noise_multiplier, normals), 0.0

    def draw(self, held: Tensor) -> Tensor:
        """Pays for a step and draws its rows.

        Args:
            held: numbers of the rows that can be drawn, int64 (rows,): all training rows whose duals are there.

        Returns:
            Numbers of rows, int64 (drawn,); perhaps none.

        Raises:
            BudgetSpent, EnvironmentFault: as `StepBudget.spend`.
        """
        self._budget.spend()
        self._expected = max(1.0, self._rate * len(held))
        return held[torch.from_numpy(drawn_rows(len(held), self._rate, self._bits)).to(held.device)]

    def mean(self, gradients: Sequence[Tensor]) -> list[Tensor]:
        """The rows' gradients, clipped together, summed, with noise, over the expected number: (*shape) each.

        Raises:
            InputError: no step of these rows has been paid for.
        """
        return self._over_expected(self._noise.sums(gradients))

    def mean_of(self, clipped: Sequence[Tensor], rows: int) -> list[Tensor]:  # noqa: ARG002
        """The same for sums of rows already clipped jointly to `clip`, (*shape) each."""
        return self._over_expected(self._noise.noised(clipped))

    @property
    def clip(self) -> float:
        """C_0, slightly below the threshold of the noise, since norms and sums are rounded."""
        return self._clip * (1 - _ROUNDING)

    def _over_expected(self, sums: list[Tensor]) -> list[Tensor]:
        if not self._expected:
            raise InputError("a step was taken of rows that were not drawn", hint="draw the rows of every step anew")
        expected, self._expected = self._expected, 0.0
        return [total / expected for total in sums]


def deviation(plan: PrivacyPlan) -> float:
    """2 sigma t, the noise's deviation in every entry."""
    return 2 * plan.noise_multiplier * plan.config.clip


def _name(plan: PrivacyPlan, config: AdaptivePrivacyConfig) -> str:
    noise = f"sigma={plan.noise_multiplier:g} delta={config.delta:g}"
    rescale = "" if config.rescale == "none" else f" rescale={config.rescale}"
    said = f" ({config.heuristic})" if config.heuristic else ""
    seeded = " seeded" if config.seeded else ""
    steps = "" if config.steps is None else f" steps C={config.steps.clip:g} cost={config.steps.cost:g}"
    if plan.steps is not None and config.steps is not None:
        how = f"rate={plan.steps.rate:g} sigma={plan.steps.noise_multiplier:g} of {plan.steps.steps}"
        steps = f" secret steps C={config.steps.clip:g} {how}"
    return f"adaptive {config.release} t={config.clip:g} {noise} row{steps}{rescale}{seeded}{said}{once_in_words(plan)}"
