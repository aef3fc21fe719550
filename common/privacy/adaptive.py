"""Settings of per-row differential privacy of embeddings: VFL-AFE (Mi et al. 2023, Section 3)."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from colonnade.common.errors import ConfigError
from colonnade.common.privacy.accounting.calibration import gaussian_sigma
from colonnade.common.privacy.regions import RegionName
from colonnade.common.privacy.settings import LEAST_DELTA, NoiseConfig

UNBOUNDED = (
    "no bound for a row: without federation.privacy.steps it moves the models, and by them the embeddings of all other "
    "rows"
)


PROPOSED_EPSILON, PROPOSED_DELTA = 8.0, 1e-5

PROPOSED = (
    f"{{mechanism: adaptive, clip: 1, epsilon: {PROPOSED_EPSILON:g}, delta: {PROPOSED_DELTA:.1e}, steps: {{clip: 1}}}}"
)
"""`federation.privacy` as hints and new configurations propose it: the noise follows from epsilon, on any rows."""


class StepsConfig(BaseModel):
    """`federation.privacy.steps`: noise on the steps of bottom models, so that other rows' embeddings reveal nothing.

    Every row's share of a gradient is clipped to C_0, and their sum gets N(0, (2 sigma C_0)^2 / cost) in every entry:
    the Gaussian mechanism (Abadi et al. 2016), with sensitivity 2 C_0 if a row has other features.

    With `rate` the rows of a step are not those of the announced batch: each party draws them in secret among all rows
    whose duals it holds, and the noise is N(0, (sigma_0 C_0)^2) (common/privacy/accounting/sampled.py).
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    clip: float = Field(gt=0, description="C_0, the largest L2 norm of a row's gradient at all of a bottom model")
    cost: float = Field(default=0.1, gt=0, le=1e6, description="privacy cost of a step, in releases of an embedding")
    rate: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="q, probability that a step draws a row, which nobody but the party learns; left out, steps are on "
        "the announced batch",
    )
    noise_multiplier: float | None = Field(
        default=None, ge=0.1, le=1e4, description="with rate: sigma_0, the steps' noise in units of `clip`; not `cost`"
    )

    @model_validator(mode="after")
    def _enough_said(self) -> StepsConfig:
        where = "federation.privacy.steps"
        if (self.rate is None) != (self.noise_multiplier is None):
            given, other = ("rate", "noise_multiplier") if self.rate is not None else ("noise_multiplier", "rate")
            raise ConfigError(
                f"{where}.{given} without {other}",
                hint="give both, and steps draw their rows in secret; or cost, and they are on the announced batch",
            )
        if self.rate is not None and "cost" in self.model_fields_set:
            raise ConfigError(
                f"{where}.cost with rate: what a step over secretly drawn rows costs follows from rate and "
                "noise_multiplier",
                hint="leave one of the two out",
            )
        return self

    @property
    def left_out(self) -> frozenset[str]:
        """Keys that are not written beside the others: `cost`, where `rate` sets what a step costs."""
        return frozenset() if self.rate is None else frozenset({"cost"})


class AdaptivePrivacyConfig(NoiseConfig):
    """Every embedding is brought into a region of diameter 2t and gets noise from N(0, 4 sigma^2 t^2): Eq. 2.

    Neighbours differ in the features of one row. With `steps` epsilon covers everything that is sent. Without, it
    covers that row's own embeddings, given the models that made them, and the rest is unbounded: a row changes the
    models, and through them the embeddings of all other rows. One of `noise_multiplier`, `release_epsilon` and
    `epsilon` sets the noise; `epsilon` next to another is a budget, at which the run ends.
    """

    mechanism: Literal["adaptive"] = Field(description="the mechanism, which decides the other keys of this section")
    clip: float = Field(gt=0, description="t, half the diameter of the region that embeddings are brought into")
    release: RegionName = Field(default="ball", description="region that embeddings are brought into")
    rescale: Literal["none", "paper", "released"] = Field(
        default="none",
        description="growth of embeddings that crowd together: by their own distances (Eq. 4, a heuristic without "
        "a proof), or by those of what was released before",
    )
    shrink: bool = Field(default=False, description="whether rescale: paper may also make embeddings smaller, as Eq. 4")
    release_epsilon: float | None = Field(
        default=None, gt=0, description="the paper's epsilon, of a single release; sigma is found from it"
    )
    delta: float = Field(gt=0, lt=1, description="probability beside epsilon and release_epsilon")
    steps: StepsConfig | None = Field(default=None, description="noise on the steps of bottom models; left out, none")

    @property
    def adjacency(self) -> Literal["row"]:
        """Neighbours: the same data with other features in one row."""
        return "row"

    @property
    def sigma(self) -> float | None:
        """The noise multiplier if it does not follow from a budget over the whole run."""
        if self.release_epsilon is not None:
            return gaussian_sigma(self.release_epsilon, self.delta)
        return self.noise_multiplier

    @property
    def heuristic(self) -> str:
        """Unproven settings: the paper's factor depends on private rows, and lets embeddings leave the region."""
        return "rescale = paper, a heuristic without a proof" if self.rescale == "paper" else ""

    @property
    def unbounded(self) -> str:
        """Without noise on the steps, models leak a row through other rows' embeddings."""
        return "" if self.steps else UNBOUNDED

    @model_validator(mode="after")
    def _enough_said(self) -> AdaptivePrivacyConfig:
        if self.noise_multiplier is None and self.release_epsilon is None and self.epsilon is None:
            raise ConfigError(
                "federation.privacy: none of noise_multiplier, release_epsilon and epsilon is there",
                hint="give epsilon, that of the whole run, from which the noise is found, such as 8; `colonnade check` "
                "prints what the others come to",
            )
        if self.noise_multiplier is not None and self.release_epsilon is not None:
            raise ConfigError(
                "federation.privacy: both noise_multiplier and release_epsilon are there",
                hint="one follows from the other",
            )
        if self.rescale != "none" and not self.release.endswith("ball"):
            raise ConfigError(
                f"federation.privacy.rescale = {self.rescale} with release = {self.release}: on a sphere every "
                "embedding has its full length already",
                hint="leave rescale out, or take release: ball",
            )
        if self.steps is not None and self.heuristic:
            raise ConfigError(
                f"federation.privacy.steps: it proves nothing beside {self.heuristic}", hint="leave it out"
            )
        if self.steps is not None and self.steps.rate is not None:
            if self.accounting != "exact":
                raise ConfigError(
                    f"federation.privacy.steps.rate with accounting = {self.accounting}: steps over secretly drawn "
                    "rows are added up exactly",
                    hint="leave accounting out",
                )
            if self.delta < LEAST_DELTA:
                raise ConfigError(
                    f"federation.privacy.delta = {self.delta:g} with steps.rate: expected at least {LEAST_DELTA:g}, "
                    "which convolutions still resolve",
                    hint="give a larger delta, or leave steps.rate out",
                )
        if self.shrink and self.rescale != "paper":
            raise ConfigError("federation.privacy.shrink: it belongs to rescale: paper", hint="leave it out")
        return self


def release_cost(config: AdaptivePrivacyConfig, steps: int) -> float:
    """Cost of a training row's release in releases of an embedding, including the steps that follow it.

    Renyi costs are proportional to 1 / sigma^2, so that they add up in this unit.
    """
    if config.steps is None or config.steps.rate is not None:  # secretly drawn rows are counted by themselves
        return 1.0
    return 1.0 + steps * config.steps.cost
