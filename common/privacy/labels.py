"""Label differential privacy: noise on the training labels, once before training.

Source: Malek, Mironov, Prasad, Shilov and Tramèr, "Antipodes of label differential privacy: PATE
and ALIBI", 2021 (ALIBI). Laplace noise of scale b is added to every entry of the one-hot vector
of a label. Two one-hot vectors differ by 2 in the L1 norm, so this is epsilon-differentially private with epsilon = 2/b
for every label, under any post-processing. The post-processing is Bayes' rule: the model's own prediction p is the
prior, and the posterior

    q_c  proportional to  p_c exp((|v_c| - |v_c - 1|) / b)

of a noisy vector v replaces the label in the loss.

The noise is drawn on a grid of 2^-20 with integers (common/privacy/laplace.py): every value of v is exact, and epsilon
is that of the discrete distribution, also 2/b.
"""

from __future__ import annotations

import math
import os
import random
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor

from colonnade.common.errors import ConfigError
from colonnade.common.privacy.laplace import Bits, discrete_laplace

_GRID = 2**20  # steps of the noise per unit
_SENSITIVITY = 2  # of a one-hot vector, in the L1 norm

Amount = Annotated[float, Field(ge=1e-6, le=1e6)]


class LabelPrivacyConfig(BaseModel):
    """`server.privacy.labels`: noise on the training labels, given by one of two numbers.

    Args:
        epsilon: of every training label.
        deviation: the noise's standard deviation, the paper's lambda; b = deviation / sqrt 2.
        seeded: draws the noise from the federation's seed, which every member knows: for tests and
            benchmarks. It then protects nothing.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    mechanism: Literal["laplace"] = Field(default="laplace", description="distribution of the noise")
    epsilon: Amount | None = Field(default=None, description="privacy budget of every training label; or `deviation`")
    deviation: Amount | None = Field(
        default=None, description="standard deviation of the noise on a one-hot entry; or `epsilon`"
    )
    seeded: bool = Field(default=False, description="noise from the federation's seed: for tests, protects nothing")

    @model_validator(mode="after")
    def _one_of_two(self) -> LabelPrivacyConfig:
        if (self.epsilon is None) == (self.deviation is None):
            given = "neither epsilon nor deviation is" if self.epsilon is None else "both epsilon and deviation are"
            comes_to = f"; deviation = {self.deviation:g} comes to {_of(self.deviation):.2f}" if self.deviation else ""
            raise ConfigError(
                f"server.privacy.labels: {given} given",
                hint=f"give epsilon, from which the noise follows (2 sqrt(2) / deviation), such as 2{comes_to}",
            )
        return self

    @property
    def steps(self) -> int:
        """b in steps of the grid, rounded up: never less noise than configured."""
        wanted = self.deviation / math.sqrt(2) if self.deviation else _SENSITIVITY / (self.epsilon or math.inf)
        return max(1, math.ceil(wanted * _GRID))

    def bits(self, seed: int) -> Bits:
        """Source of the noise: the operating system, unless the configuration asks for a seed."""
        return random.Random(f"{seed}/labels").randbytes if self.seeded else os.urandom  # noqa: S311  # asked for


def _of(deviation: float) -> float:
    """Epsilon of noise with this standard deviation."""
    return _SENSITIVITY * math.sqrt(2) / deviation


def label_epsilon(config: LabelPrivacyConfig) -> float:
    """Epsilon of every training label, at delta 0, that the configured noise comes to."""
    return _SENSITIVITY * _GRID / config.steps


@dataclass(frozen=True)
class NoisyLabels:
    """Training labels with noise.

    Args:
        values: v, float64 (rows, classes), multiples of 2^-20.
        scale: b of the noise.
        seeded: True if the noise can be reproduced.
    """

    values: Tensor
    scale: float
    seeded: bool = False

    @classmethod
    def draw(cls, labels: Tensor, classes: int, config: LabelPrivacyConfig, seed: int) -> NoisyLabels:
        """Draws the noise, which spends epsilon on every label. Drawing again for the same labels spends it again.

        Args:
            labels: class numbers of the training rows, int64 (rows,).
            classes: number of classes.
            config: the amount of noise.
            seed: of the federation; used only where the configuration says `seeded`.
        """
        noise = discrete_laplace(labels.numel() * classes, config.steps, config.bits(seed))
        values = torch.from_numpy(noise).to(torch.float64).reshape(-1, classes) / _GRID
        values[torch.arange(len(labels)), labels.cpu()] += 1.0
        return cls(values, config.steps / _GRID, config.seeded)

    @property
    def epsilon(self) -> float:
        """Epsilon of every training label."""
        return _SENSITIVITY / self.scale

    def evidence(self) -> Tensor:
        """The log-likelihood of every class, up to a constant per row: float64 (rows, classes)."""
        return (self.values.abs() - (self.values - 1.0).abs()) / self.scale


def posterior(logits: Tensor, evidence: Tensor) -> Tensor:
    """Bayes' rule with softmax(logits) as the prior, shape (rows, classes); no gradient flows through it."""
    return (logits.detach() + evidence).softmax(dim=-1)
