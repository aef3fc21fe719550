"""Per-row differential privacy of embeddings: VFL-AFE (Mi et al. 2023), Eq. 2, over the regions of a known diameter."""

from __future__ import annotations

from torch import Tensor

from common.errors import InputError
from common.numerics.regions import bring_into
from common.privacy.adaptive import AdaptivePrivacyConfig
from common.privacy.noise import Normals, add_normals
from common.privacy.plan import Plan
from common.privacy.release import Released
from common.privacy.rescale import Rescale
from common.privacy.row_budget import RowBudget


class RowRelease:
    """Brings every row into its region and adds N(0, 4 sigma^2 t^2) to every entry.

    What comes in should lie in the region already, since gradients went through the same shape; the guarantee does
    not rest on it. With `rescale: paper` rows leave as far from the origin as they come, and there is no guarantee.

    Args:
        plan: t, the region, sigma and delta.
        normals: where the noise comes from.
        budget: pays, row by row.
        rescale: is shown what leaves.
    """

    def __init__(self, plan: Plan, normals: Normals, budget: RowBudget, rescale: Rescale) -> None:
        config = plan.config
        assert isinstance(config, AdaptivePrivacyConfig)  # who made the plan chose this release
        self._plan, self._config, self._normals, self._budget, self._rescale = plan, config, normals, budget, rescale
        self._deviation = deviation(plan)
        self._name = _name(plan, config)
        self._void = config.seeded or config.evaluate == "clean" or bool(config.heuristic)

    def __call__(self, private: Tensor, *, evaluation: bool = False, rows: Tensor | None = None) -> Released:
        """Releases embeddings (rows, width) in their dtype. Raises BudgetSpent."""
        if evaluation and self._config.evaluate == "clean":
            return Released(private.detach(), "none (benchmark)", None)
        if rows is None or len(rows) != len(private):
            raise InputError("a release that protects rows was not told which they are", hint="pass rows= to release")
        spent = self._budget.spend(rows)
        value = add_normals(self._bounded(private.detach()), self._deviation, self._normals).to(private.dtype)
        if not evaluation:
            self._rescale.observe(value)
        return Released(value, self._name, None if self._void else self._plan.epsilon(spent))

    def _bounded(self, private: Tensor) -> Tensor:
        h = private.double().nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
        return h if self._config.heuristic else bring_into(self._config.release, self._config.clip, h)


def deviation(plan: Plan) -> float:
    """2 sigma t, of the noise in every entry."""
    return 2 * plan.noise_multiplier * plan.config.clip


def _name(plan: Plan, config: AdaptivePrivacyConfig) -> str:
    rescale = "" if config.rescale == "none" else f" rescale={config.rescale}"
    said = f" ({config.heuristic})" if config.heuristic else ""
    seeded = " seeded" if config.seeded else ""
    return f"adaptive {config.release} t={config.clip:g} sigma={plan.noise_multiplier:g} row{rescale}{seeded}{said}"
