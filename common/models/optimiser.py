"""Optimisers of a configuration, in an explicit table."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Literal

import torch
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from torch import Tensor, nn

Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Decay = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Momentum = Annotated[float, Field(ge=0, lt=1)]


class _OptimiserBase(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SgdConfig(_OptimiserBase):
    """Stochastic gradient descent; the defaults are those of VIMADMM's local models on MNIST.

    Plain with `momentum: 0`; Nesterov's momentum instead of Polyak's if `nesterov` is true.
    """

    name: Literal["sgd"] = Field(
        default="sgd", description="the optimiser, which decides the other keys of this section"
    )
    lr: Rate = Field(default=0.1, description="learning rate")
    momentum: Momentum = Field(default=0.9, description="share of the last step that is added to the next; heads: 0")
    weight_decay: Decay = Field(default=1e-3, description="L2 penalty, added to the gradient as this times a weight")
    nesterov: bool = Field(default=False, description="Nesterov's momentum; needs `momentum` above 0")

    @model_validator(mode="after")
    def _nesterov_needs_momentum(self) -> SgdConfig:
        if self.nesterov and not self.momentum:
            raise ValueError("`nesterov` needs a `momentum` above 0")
        return self


class AdamConfig(_OptimiserBase):
    """Adam; its weight decay is part of the gradient."""

    name: Literal["adam"] = Field(
        default="adam", description="the optimiser, which decides the other keys of this section"
    )
    lr: Rate = Field(default=1e-3, description="learning rate")
    betas: tuple[Momentum, Momentum] = Field(
        default=(0.9, 0.999), description="decay of the running means of gradients and of their squares"
    )
    eps: Rate = Field(default=1e-8, description="added to the denominator, for numerical stability")
    weight_decay: Decay = Field(default=0.0, description="L2 penalty, added to the gradient as this times a weight")


class AdamWConfig(_OptimiserBase):
    """Adam with decoupled weight decay."""

    name: Literal["adamw"] = Field(
        default="adamw", description="the optimiser, which decides the other keys of this section"
    )
    lr: Rate = Field(default=1e-3, description="learning rate")
    betas: tuple[Momentum, Momentum] = Field(
        default=(0.9, 0.999), description="decay of the running means of gradients and of their squares"
    )
    eps: Rate = Field(default=1e-8, description="added to the denominator, for numerical stability")
    weight_decay: Decay = Field(default=1e-2, description="share of a weight, times `lr`, that a step removes")


class AdagradConfig(_OptimiserBase):
    """Adagrad, one of the optimisers of VFedMH, Section 5.6."""

    name: Literal["adagrad"] = Field(
        default="adagrad", description="the optimiser, which decides the other keys of this section"
    )
    lr: Rate = Field(default=1e-2, description="learning rate")
    lr_decay: Decay = Field(
        default=0.0, description="decay of the learning rate: step t has lr / (1 + (t - 1) lr_decay)"
    )
    initial_accumulator_value: Decay = Field(default=0.0, description="initial sum of squared gradients")
    eps: Rate = Field(default=1e-10, description="added to the denominator, for numerical stability")
    weight_decay: Decay = Field(default=0.0, description="L2 penalty, added to the gradient as this times a weight")


class RmspropConfig(_OptimiserBase):
    """RMSprop."""

    name: Literal["rmsprop"] = Field(
        default="rmsprop", description="the optimiser, which decides the other keys of this section"
    )
    lr: Rate = Field(default=1e-2, description="learning rate")
    alpha: Momentum = Field(default=0.99, description="decay of the running mean of squared gradients")
    eps: Rate = Field(default=1e-8, description="added to the denominator, for numerical stability")
    momentum: Momentum = Field(default=0.0, description="share of the last step that is added to the next")
    centered: bool = Field(default=False, description="divides by the standard deviation of gradients, not their size")
    weight_decay: Decay = Field(default=0.0, description="L2 penalty, added to the gradient as this times a weight")


class AdadeltaConfig(_OptimiserBase):
    """Adadelta, which adapts its rate: `lr` only scales it."""

    name: Literal["adadelta"] = Field(
        default="adadelta", description="the optimiser, which decides the other keys of this section"
    )
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


def build_optimiser(config: OptimiserConfig, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """The optimiser over these parameters.

    Optimisers that torch can fuse on every device use the fused step: on one CPU thread, for the tower of MNIST
    (56-120-60), SGD takes 60 microseconds instead of 130 and Adam 130 instead of 350.
    """
    values = config.model_dump(exclude={"name"})
    if isinstance(config, SgdConfig | AdamConfig | AdamWConfig):
        values["fused"] = True
    return _LEAN[config.name](parameters, **values)


def stepper(optimiser: torch.optim.Optimizer) -> Callable[[], None]:
    """`optimiser.step`; for fused SGD on the CPU, without its bookkeeping.

    The bookkeeping takes 0.3 ms: for the tower of MNIST (56-120-60), five times the step itself.
    """
    group, *more = optimiser.param_groups
    kinds = {(parameter.device.type, parameter.dtype) for parameter in group["params"]}
    if isinstance(optimiser, torch.optim.SGD) and not more and group["fused"] and len(kinds) == 1:
        return _FusedSgd(optimiser).step if kinds.pop()[0] == "cpu" else optimiser.step
    return optimiser.step


class _FusedSgd:
    """The kernel of `torch.optim.SGD(..., fused=True).step`, on that optimiser's state."""

    def __init__(self, optimiser: torch.optim.Optimizer) -> None:
        self._optimiser, (group,) = optimiser, optimiser.param_groups
        self._parameters: list[Tensor] = group["params"]
        self._buffers: list[Tensor] = []
        names = ("lr", "momentum", "weight_decay", "dampening", "nesterov", "maximize")
        self._settings = {name: group[name] for name in names}

    def step(self) -> None:
        """Takes a step: the first by the optimiser itself, which creates the momentum buffers."""
        grads = [parameter.grad for parameter in self._parameters if parameter.grad is not None]
        needed = len(grads) if self._settings["momentum"] else 0
        if len(self._buffers) == needed and len(grads) == len(self._parameters):
            with torch.no_grad():
                torch._fused_sgd_(self._parameters, grads, self._buffers, is_first_step=False, **self._settings)
            return
        self._optimiser.step()
        states = [self._optimiser.state.get(parameter, {}) for parameter in self._parameters]
        self._buffers = [state["momentum_buffer"] for state in states if "momentum_buffer" in state]


_GUARDED = ("add_param_group", "zero_grad", "state_dict", "load_state_dict")


def _lean(kind: type[torch.optim.Optimizer]) -> Callable[..., torch.optim.Optimizer]:
    """The same optimiser without the torch.compile wrappers.

    They import the compiler at the first step: 1.3 s of processor time in every party, for uncompiled code.
    """
    methods = {name: inspect.unwrap(getattr(kind, name)) for name in _GUARDED}
    methods["step"] = torch.no_grad()(inspect.unwrap(kind.step))
    return type(kind.__name__, (kind,), methods)


_LEAN: Mapping[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": _lean(torch.optim.SGD),
    "adam": _lean(torch.optim.Adam),
    "adamw": _lean(torch.optim.AdamW),
    "adagrad": _lean(torch.optim.Adagrad),
    "rmsprop": _lean(torch.optim.RMSprop),
    "adadelta": _lean(torch.optim.Adadelta),
}
