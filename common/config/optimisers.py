"""Optimisers of a configuration: `optimiser: {name: sgd, lr: 0.1}`. They are built in common/models/optimiser.py."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from colonnade.common.section import Section, kind

Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Decay = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Momentum = Annotated[float, Field(ge=0, lt=1)]


class SgdConfig(Section):
    """Stochastic gradient descent; the defaults are those of VIMADMM's local models on MNIST.

    Plain with `momentum: 0`; Nesterov's momentum instead of Polyak's if `nesterov` is true.
    """

    name: Literal["sgd"] = kind("sgd", "the optimiser")
    lr: Rate = Field(default=0.1, description="learning rate")
    momentum: Momentum = Field(default=0.9, description="share of the last step that is added to the next; heads: 0")
    weight_decay: Decay = Field(default=1e-3, description="L2 penalty, added to the gradient as this times a weight")
    nesterov: bool = Field(default=False, description="Nesterov's momentum; needs `momentum` above 0")

    @model_validator(mode="after")
    def _nesterov_needs_momentum(self) -> SgdConfig:
        if self.nesterov and not self.momentum:
            raise ValueError("`nesterov` needs a `momentum` above 0")
        return self


class AdamConfig(Section):
    """Adam; its weight decay is part of the gradient."""

    name: Literal["adam"] = kind("adam", "the optimiser")
    lr: Rate = Field(default=1e-3, description="learning rate")
    betas: tuple[Momentum, Momentum] = Field(
        default=(0.9, 0.999), description="decay of the running means of gradients and of their squares"
    )
    eps: Rate = Field(default=1e-8, description="added to the denominator, for numerical stability")
    weight_decay: Decay = Field(default=0.0, description="L2 penalty, added to the gradient as this times a weight")


class AdamWConfig(Section):
    """Adam with decoupled weight decay."""

    name: Literal["adamw"] = kind("adamw", "the optimiser")
    lr: Rate = Field(default=1e-3, description="learning rate")
    betas: tuple[Momentum, Momentum] = Field(
        default=(0.9, 0.999), description="decay of the running means of gradients and of their squares"
    )
    eps: Rate = Field(default=1e-8, description="added to the denominator, for numerical stability")
    weight_decay: Decay = Field(default=1e-2, description="share of a weight, times `lr`, that a step removes")


class AdagradConfig(Section):
    """Adagrad, one of the optimisers of VFedMH, Section 5.6."""

    name: Literal["adagrad"] = kind("adagrad", "the optimiser")
    lr: Rate = Field(default=1e-2, description="learning rate")
    lr_decay: Decay = Field(
        default=0.0, description="decay of the learning rate: step t has lr / (1 + (t - 1) lr_decay)"
    )
    initial_accumulator_value: Decay = Field(default=0.0, description="initial sum of squared gradients")
    eps: Rate = Field(default=1e-10, description="added to the denominator, for numerical stability")
    weight_decay: Decay = Field(default=0.0, description="L2 penalty, added to the gradient as this times a weight")


class RmspropConfig(Section):
    """RMSprop."""

    name: Literal["rmsprop"] = kind("rmsprop", "the optimiser")
    lr: Rate = Field(default=1e-2, description="learning rate")
    alpha: Momentum = Field(default=0.99, description="decay of the running mean of squared gradients")
    eps: Rate = Field(default=1e-8, description="added to the denominator, for numerical stability")
    momentum: Momentum = Field(default=0.0, description="share of the last step that is added to the next")
    centered: bool = Field(default=False, description="divides by the standard deviation of gradients, not their size")
    weight_decay: Decay = Field(default=0.0, description="L2 penalty, added to the gradient as this times a weight")


class AdadeltaConfig(Section):
    """Adadelta, which adapts its rate: `lr` only scales it."""

    name: Literal["adadelta"] = kind("adadelta", "the optimiser")
    lr: Rate = Field(default=1.0, description="factor of the adapted step")
    rho: Momentum = Field(default=0.9, description="decay of the running mean of squared gradients")
    eps: Rate = Field(default=1e-6, description="added to the denominator, for numerical stability")
    weight_decay: Decay = Field(default=0.0, description="L2 penalty, added to the gradient as this times a weight")


def _expand(value: object) -> object:
    if isinstance(value, dict):
        return {"name": "sgd", **value}
    return {"name": value} if isinstance(value, str) else value


OptimiserConfig = Annotated[
    Annotated[
        SgdConfig | AdamConfig | AdamWConfig | AdagradConfig | RmspropConfig | AdadeltaConfig,
        Field(discriminator="name"),
    ],
    BeforeValidator(_expand),
]
"""`{name: sgd, lr: 0.1}`, or `sgd` for short; sgd if no name is given."""
