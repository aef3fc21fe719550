"""`server.privacy`: differential privacy of the server's labels."""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable
from typing import Annotated, Literal

from pydantic import Field, model_validator

from colonnade.common.config.privacy import Accounting
from colonnade.common.errors import ConfigError
from colonnade.common.section import Section

SENSITIVITY = 2  # of a one-hot vector, in the L1 norm
CONVEX = 0.5  # largest eigenvalue of the covariance of a one-hot vector: above, z of the likelihood is unique

Amount = Annotated[float, Field(ge=1e-6, le=1e6)]


class LabelPrivacyConfig(Section):
    """`server.privacy.labels`: noise on the training labels, given by one of two numbers."""

    mechanism: Literal["laplace", "subset"] = Field(
        default="laplace",
        description="laplace: noise on one-hot labels, as in papers; subset: a random set of classes that leans "
        "towards the label, more informative at the same epsilon",
    )
    epsilon: Amount | None = Field(default=None, description="privacy budget of every training label; or `deviation`")
    deviation: Amount | None = Field(
        default=None, description="laplace: standard deviation of the noise on a one-hot entry; or `epsilon`"
    )
    size: int | None = Field(
        default=None, ge=1, description="subset: number of classes in a set; left out, the most informative"
    )
    prior: bool = Field(
        default=False,
        description="subset: releases a label when its row is first used, still once, as a set that the model's "
        "prediction makes more informative; a tenth of the rows at the start",
    )
    auxiliary: Literal["likelihood", "posterior"] | None = Field(
        default=None,
        description="z of VIMADMM, VIMADMM-J and linear ADMM. likelihood: minimises the loss of the released value; "
        "posterior: cross-entropy to the posterior at the sum, as in papers; left out, likelihood with subset and "
        "rho above .5",
    )
    seeded: bool = Field(default=False, description="noise from the federation's seed: for tests, protects nothing")

    def likelihood(self, rho: float) -> bool:
        """True if z minimises the loss of the released value; by default only where that is convex."""
        if self.auxiliary is None:
            return self.mechanism == "subset" and rho > CONVEX
        return self.auxiliary == "likelihood"

    @model_validator(mode="after")
    def _one_of_two(self) -> LabelPrivacyConfig:
        if self.mechanism == "subset":
            self._refuse_deviation()
        elif self.prior:
            raise ConfigError(
                "server.privacy.labels.prior = true with mechanism = laplace, which draws no sets of classes",
                hint="give mechanism: subset, or leave prior out",
            )
        elif self.size is not None:
            raise ConfigError(
                f"server.privacy.labels.size = {self.size} with mechanism = laplace, which draws no sets of classes",
                hint="give mechanism: subset, or leave size out",
            )
        if self.prior and self.size is not None:
            raise ConfigError(
                f"server.privacy.labels.size = {self.size} with prior = true, which finds a size for every row",
                hint="leave one of the two out",
            )
        if (self.epsilon is None) == (self.deviation is None):
            given = "neither epsilon nor deviation is" if self.epsilon is None else "both epsilon and deviation are"
            comes_to = f"; deviation = {self.deviation:g} comes to {_of(self.deviation):.2f}" if self.deviation else ""
            raise ConfigError(
                f"server.privacy.labels: {given} given",
                hint=f"give epsilon, from which the noise follows (2 sqrt(2) / deviation), such as 2{comes_to}",
            )
        return self

    def _refuse_deviation(self) -> None:
        if self.deviation is not None:
            raise ConfigError(
                f"server.privacy.labels.deviation = {self.deviation:g} with mechanism = subset, which has no deviation",
                hint=f"give epsilon: {_of(self.deviation):.4g} is that of Laplace noise with this deviation",
            )

    def bits(self, seed: int, after: int = 0) -> Callable[[int], bytes]:
        """Source of the noise after this many releases: the operating system, or the seed."""
        if not self.seeded:
            return os.urandom
        return random.Random(f"{seed}/labels/{after}" if after else f"{seed}/labels").randbytes  # noqa: S311  # asked for


def _of(deviation: float) -> float:
    """Epsilon of noise with this standard deviation."""
    return SENSITIVITY * math.sqrt(2) / deviation


class ResponseNoiseConfig(Section):
    """`server.privacy.answers`: noise on responses to the parties."""

    clip: Amount = Field(description="C, the largest L2 norm of a row's share of a response")
    head_clip: Amount = Field(description="C_0, the largest L2 norm of a row's gradient at the server's parameters")
    noise_multiplier: Amount = Field(description="sigma, standard deviation of the noise in units of C and of C_0")
    delta: float = Field(default=1e-6, gt=0, lt=1, description="probability beside epsilon; below 1 / training rows")
    accounting: Accounting = Field(default="exact", description="how releases add up: exactly, or by Renyi's bound")
    seeded: bool = Field(default=False, description="noise from the federation's seed: for tests, protects nothing")


class ServerPrivacyConfig(Section):
    """Privacy of the server's own data."""

    labels: LabelPrivacyConfig | None = Field(default=None, description="noise on the training labels, drawn once")
    answers: ResponseNoiseConfig | None = Field(
        default=None, description="noise on all responses to the parties, in protocols that support it"
    )

    @model_validator(mode="after")
    def _one_of_two(self) -> ServerPrivacyConfig:
        if self.labels is not None and self.answers is not None:
            raise ConfigError(
                "server.privacy: both labels and answers are given; results of noisy labels are already protected",
                hint="take one of the two: a second noise on the same labels costs accuracy and protects no other",
            )
        return self
