"""Optimisers as a configuration names them (common/config/optimisers.py), in an explicit table."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor, nn

from colonnade.common.config import optimisers as sections
from colonnade.common.moved import moved


def build_optimiser(config: sections.OptimiserConfig, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """The optimiser over these parameters.

    Optimisers that torch can fuse on every device use the fused step: on one CPU thread, for the tower of MNIST
    (56-120-60), SGD takes 60 microseconds instead of 130 and Adam 130 instead of 350.
    """
    values = config.model_dump(exclude={"name"})
    if isinstance(config, sections.SgdConfig | sections.AdamConfig | sections.AdamWConfig):
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
        """The first step is the optimiser's own, which creates the momentum buffers."""
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
    """The optimiser without torch.compile's wrappers, which import the compiler at the first step: 1.3 s per party."""
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


_MOVED = (
    "OptimiserConfig",
    "SgdConfig",
    "AdamConfig",
    "AdamWConfig",
    "AdagradConfig",
    "RmspropConfig",
    "AdadeltaConfig",
)
__getattr__ = moved(__name__, dict.fromkeys(_MOVED, "colonnade.common.config.optimisers"))
