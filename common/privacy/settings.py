"""Agreed privacy settings of a federation."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from colonnade.common.errors import ConfigError

Adjacency = Literal["participation", "replace", "row"]
Accounting = Literal["exact", "renyi"]

LEAST_DELTA = 1e-9
"""The smallest delta of steps over secretly drawn rows, whose privacy losses are added up by convolution."""

BEFORE = {"accounting": "renyi", "adjacency": "participation"}
"""Defaults of `federation.privacy` in version 0.1.0."""


class OnceConfig(BaseModel):
    """`federation.privacy.once`: the noise is in a blinded sum once, and not once for each party in it.

    Every party adds its share, of sigma / sqrt(present - colluders), before its part is blinded: the sum over any
    `present` parties less any `colluders` of them has at least the noise of sigma.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    present: int | None = Field(
        default=None,
        ge=1,
        description="parties that are in every sum at least; left out, all that federation.quorum and blinding ensure",
    )
    colluders: int = Field(
        default=1,
        ge=0,
        description="parties of a sum that may tell the server their noise, or add none, without weakening the "
        "guarantee; 1 also covers what each party reads itself; 0 protects against the server alone",
    )


class NoiseConfig(BaseModel):
    """Settings common to every mechanism of `federation.privacy`: noise and budget."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    noise_multiplier: float | None = Field(
        default=None, description="sigma, standard deviation of the noise in units of `clip` (adaptive: of 2 `clip`)"
    )
    epsilon: float | None = Field(
        default=None, gt=0, description="privacy budget of every party; the run ends before it is exceeded"
    )
    delta: float = Field(default=1e-5, gt=0, lt=1, description="probability beside epsilon")
    accounting: Accounting = Field(
        default="exact", description="how releases add up: exactly, or by Renyi's bound as in papers, which is larger"
    )
    rounds: int | None = Field(
        default=None, ge=1, description="rounds over which epsilon is spent; left out, all of the run"
    )
    predictions: int = Field(
        default=0, ge=0, description="releases of every party kept back from training, for predictions with the model"
    )
    seeded: bool = Field(default=False, description="noise from the federation's seed: for tests, protects nothing")
    evaluate: Literal["released", "clean", "none"] = Field(
        default="released",
        description="clean: evaluations without noise, which voids the guarantee; none: zeros in their place, which "
        "shows what the model predicts without the parties, and costs nothing",
    )
    once: OnceConfig | None = Field(
        default=None, description="noise once on a blinded sum, in shares of the parties; left out, each adds all of it"
    )

    @property
    def heuristic(self) -> str:
        """Description of unproven settings, or ""."""
        return ""

    @property
    def unbounded(self) -> str:
        """Reason why no epsilon bounds all releases together, though each has one; or ""."""
        return ""

    @model_validator(mode="after")
    def _reserved(self) -> Self:
        if self.predictions and self.epsilon is None:
            raise ConfigError(
                f"federation.privacy.predictions = {self.predictions}: without epsilon there is no budget to keep them "
                "of",
                hint="give federation.privacy.epsilon, or leave predictions out: nothing limits them then",
            )
        if self.predictions and self.evaluate != "released":
            raise ConfigError(
                f"federation.privacy.predictions = {self.predictions}: with evaluate = {self.evaluate} predictions are "
                "no releases, and take nothing of the budget",
                hint="leave predictions or evaluate out",
            )
        return self

    @field_validator("noise_multiplier")
    @classmethod
    def _some_noise(cls, value: float | None) -> float | None:
        if value is not None and value <= 0:
            raise ConfigError(
                f"federation.privacy.noise_multiplier = {value:g}: without noise no epsilon is finite",
                hint="leave it out and give epsilon, from which it is found; without `privacy` nothing is protected",
            )
        return value


class PrivacyConfig(NoiseConfig):
    """Client-level differential privacy of what parties send (Xie et al. 2024, Section V).

    Every released matrix is clipped to C in its Frobenius norm; every entry gets noise from
    N(0, (sigma C)^2). Give sigma, or a budget from which it is found, or both: the run then ends before the budget is
    exceeded.
    """

    mechanism: Literal["gaussian"] = Field(
        default="gaussian", description="the mechanism, which decides the other keys of this section"
    )
    clip: float = Field(gt=0, description="C, the largest Frobenius norm of a message")
    adjacency: Literal["participation", "replace"] = Field(
        default="replace",
        description="neighbours of the guarantee: a party that has other data (replace, sensitivity 2C), or that is "
        "absent (participation, C)",
    )

    @model_validator(mode="after")
    def _enough_said(self) -> PrivacyConfig:
        if self.noise_multiplier is None and self.epsilon is None:
            raise ConfigError(
                "federation.privacy: neither noise_multiplier nor epsilon is there",
                hint="give epsilon, from which the noise is found, such as 8; `colonnade check` prints what a "
                "noise_multiplier comes to",
            )
        return self
