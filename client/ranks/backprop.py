"""Forward and backward through a bottom model by all ranks of a party.

Rank 0 sends every other rank its rows of a batch and, if they have changed, the model's parameters; it receives the
embeddings. It then sends the gradient at these rows, and receives the sum over ranks of the parameters' gradients,
which its optimiser uses. The other ranks keep nothing after a batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from enum import IntEnum
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn

from colonnade.client.ranks.group import Group
from colonnade.common.config.members import PartyConfig
from colonnade.common.config.models import OwnConfig, UserModule
from colonnade.common.errors import ColonnadeError, ConfigError
from colonnade.common.models.backprop import backprop
from colonnade.common.models.build import bottom_model
from colonnade.common.models.probes import mixing
from colonnade.common.version import VERSION

_TOLERANCE = 1e-5  # of the largest output: kernels sum a share of the rows in another order
_AXES = 8  # of a row, at most


class _Order(IntEnum):
    """Rank 0's orders and their numbers."""

    END = 0
    BUILD = 1  # width, axes of a row, their sizes
    FORWARD = 2  # rows of the batch, with them; new parameters follow
    BACKWARD = 3  # rows of the batch, with the gradient at them
    EVALUATE = 4  # rows, with them, and whether new parameters follow


class RankedBackprop:
    """`Backprop` of a batch by all ranks; rank 0 computes a batch with fewer rows than ranks alone.

    Args:
        model: float32 on the CPU, (rows, ...) -> (rows, width); no row may depend on others.
        rows: at least one row per rank, on which the other ranks are tested.

    Raises ConfigError if the model mixes rows or draws, or another rank computes another result.
    """

    def __init__(self, owner: str, group: Group, config: PartyConfig, model: nn.Module, rows: Tensor) -> None:
        _refuse_unsuited(owner, config, model, rows)
        self._group, self.model, self._inner = group, model, backprop(model)
        self._alone = False
        self._state, self._flat = _bytes(model), torch.cat([torch.empty(0), *map(_zeros, _trained(model))])
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            expected = model(rows)
        if expected.dtype != torch.float32:
            raise ConfigError(
                f"{owner}.model makes {expected.dtype}: ranks exchange float32", hint="end it with .float()"
            )
        self._h = rows.new_empty(0, expected.shape[1])
        group.post(_Order.BUILD, expected.shape[1], rows.dim() - 1, *rows.shape[1:])()
        group.agree(_parameters(model))
        with torch.random.fork_rng(devices=[]):
            made = self.forward(rows)
        if not torch.allclose(made, expected, rtol=0.0, atol=_TOLERANCE * _scale(expected), equal_nan=True):
            at = [rank for rank in range(group.size) if _differ(made, expected, group.share(len(rows), rank))]
            raise ConfigError(
                f"{owner}.model: rank {', '.join(map(str, at))} makes other embeddings of the same rows",
                hint="a model of several ranks draws nothing (no dropout), keeps all that it learns in parameters and "
                "buffers, and is the same code at all ranks; or set workers to 1",
            )

    def forward(self, inputs: Tensor) -> Tensor:
        """The embeddings of a batch in its order; overwrites those of the last `forward`."""
        group, rows = self._group, len(inputs)
        self._alone = rows < group.size
        if self._alone:
            return self._inner.forward(inputs)
        if rows != len(self._h):
            self._h = self._h.new_empty(rows, self._h.shape[1])
        sending = group.post(_Order.FORWARD, rows, rows=inputs)
        bringing = group.broadcast(_bytes(self.model, self._state))
        own = self._inner.forward(inputs[group.share(rows, 0)])
        sending()
        bringing()
        group.gather(self._h, own)
        return self._h

    @torch.no_grad()
    def evaluate(self, inputs: Tensor) -> Tensor:
        """The embeddings of rows without a gradient, in memory of their own."""
        group, rows = self._group, len(inputs)
        if rows < group.size:
            return cast("Tensor", self.model(inputs))
        found = inputs.new_empty(rows, self._h.shape[1])
        changed = not torch.equal(state := _bytes(self.model), self._state)
        sending = group.post(_Order.EVALUATE, rows, changed, rows=inputs)
        if changed:
            self._state = state
            group.broadcast(state)()
        own = self.model(inputs[group.share(rows, 0)])
        sending()
        group.gather(found, own)
        return found

    def backward(self, gradient: Tensor) -> None:
        if self._alone:
            self._inner.backward(gradient)
            return
        group, rows = self._group, len(gradient)
        sending = group.post(_Order.BACKWARD, rows, rows=gradient)
        self._inner.backward(gradient[group.share(rows, 0)])
        flat = _gradients(self.model, self._flat)
        sending()
        group.add_up(flat)
        for parameter, part in _parts(self.model, flat):
            # A parameter that took no part has no gradient, and an optimiser leaves it as it is.
            parameter.grad = None if parameter.grad is None and not part.any() else part


def meet(group: Group, config: PartyConfig, base: Path) -> None:
    """Compares the inputs of model building at all ranks. Raises ConfigError."""
    code = b""
    if isinstance(config.model, OwnConfig):
        file = base / Path(config.model.file.rsplit(":", 1)[0]).expanduser()
        code = file.read_bytes() if file.is_file() else code
    group.agree({
        "version of Colonnade or torch": f"{VERSION} {torch.__version__}".encode(),
        "model section": config.model.model_dump_json().encode(),
        "file of the model": code,
    })  # fmt: skip


def dismiss(group: Group) -> None:
    """Rank 0: lets the others end."""
    group.post(_Order.END)()


def work(owner: str, group: Group, config: PartyConfig, base: Path) -> None:
    """Computes for rank 0 until it dismisses this rank.

    Raises:
        ConfigError: this rank runs with another configuration or code, or cannot build the model.
        EnvironmentFault: rank 0 is gone.
    """
    model: nn.Module = nn.Identity()
    inner, state = backprop(model), torch.empty(0, dtype=torch.uint8)
    inputs = flat = torch.empty(0)
    shape: tuple[int, ...] = ()
    width = 0
    while True:
        (order, *numbers), sent = group.await_post()
        match _Order(order):
            case _Order.END:
                return
            case _Order.BUILD:
                width, axes, *sizes = numbers
                shape = tuple(sizes[:axes])
                model = _built(owner, group, config, base, shape, width)
                state, inner, inputs = _joined(model), backprop(model), torch.empty(0)
                flat = torch.cat([torch.empty(0), *map(_zeros, _trained(model))])
            case _Order.FORWARD:
                group.broadcast(state)()
                rows = group.own(sent, numbers[0], shape)
                inputs = rows.clone() if rows.shape != inputs.shape else inputs.copy_(rows)
                group.give(inner.forward(inputs), numbers[0])
            case _Order.BACKWARD:
                inner.backward(group.own(sent, numbers[0], (width,)))
                group.add_up(_gradients(model, flat))
            case _Order.EVALUATE:
                if numbers[1]:
                    group.broadcast(state)()
                with torch.no_grad():
                    group.give(model.eval()(group.own(sent, numbers[0], shape)), numbers[0])
                model.train()


def _built(owner: str, group: Group, config: PartyConfig, base: Path, shape: tuple[int, ...], width: int) -> nn.Module:
    try:
        model = bottom_model(owner, config.model, shape, width, torch.Generator(), base)
    except ColonnadeError:
        with suppress(ConfigError):  # rank 0 says which rank differs, and this one why
            group.agree(_parameters(None))
        raise
    group.agree(_parameters(model))
    return model.train()


def _parameters(model: nn.Module | None) -> dict[str, bytes]:
    shapes = [] if model is None else [(name, (*tensor.shape,), tensor.dtype) for name, tensor in _named(model)]
    return {"set of parameters": repr((model is None, shapes)).encode()}


def _refuse_unsuited(owner: str, config: PartyConfig, model: nn.Module, rows: Tensor) -> None:
    """Refuses a model that ranks cannot share. Dropout and the like show when ranks are compared."""
    said = ""
    if any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in model.modules()):
        said = "normalises over the rows of a batch"
    elif any(isinstance(module, nn.modules.dropout._DropoutNd) for module in model.modules()):
        said = "has dropout, which each rank would draw for itself"
    elif any(p.requires_grad and p.dtype != torch.float32 for p in model.parameters()) or rows.dim() > _AXES:
        said = "has parameters other than float32, or rows of many axes"
    elif isinstance(config.model, UserModule):
        said = mixing(model, rows)
    if said:
        raise ConfigError(f"{owner}.model, with several ranks: {said}", hint="set workers to 1, or take another model")


def _differ(made: Tensor, expected: Tensor, rows: slice) -> bool:
    scale = _TOLERANCE * _scale(expected)
    return not torch.allclose(made[rows], expected[rows], rtol=0.0, atol=scale, equal_nan=True)


def _scale(tensor: Tensor) -> float:
    return float(tensor.nan_to_num(0.0, 0.0, 0.0).abs().max()) if tensor.numel() else 0.0


def _named(model: nn.Module) -> list[tuple[str, Tensor]]:
    """All parameters and buffers in an order that equal models share, large elements first."""
    found = [*model.named_parameters(), *model.named_buffers()]
    return sorted(found, key=lambda named: -named[1].element_size())


def _bytes(model: nn.Module, out: Tensor | None = None) -> Tensor:
    """A copy of all parameters and buffers in one tensor of bytes."""
    parts = [tensor.detach().contiguous().reshape(-1).view(torch.uint8) for _, tensor in _named(model)]
    return torch.cat([torch.empty(0, dtype=torch.uint8), *parts], out=out)  # of no parameters, too


def _joined(model: nn.Module) -> Tensor:
    """Moves all parameters and buffers into one tensor of bytes, which then is the model's memory."""
    flat = _bytes(model)
    at = 0
    for _, tensor in _named(model):
        size = tensor.numel() * tensor.element_size()
        tensor.data = flat[at : at + size].view(tensor.dtype).view(tensor.shape)  # aligned, by their order
        at += size
    return flat


def _trained(model: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def _gradients(model: nn.Module, into: Tensor) -> Tensor:
    """All gradients in one tensor; zeros where there is none."""
    found = [_zeros(p) if p.grad is None else p.grad.reshape(-1) for p in _trained(model)]
    return torch.cat([torch.empty(0), *found], out=into)


def _zeros(parameter: nn.Parameter) -> Tensor:
    return parameter.new_zeros(parameter.numel())


def _parts(model: nn.Module, flat: Tensor) -> Iterator[tuple[nn.Parameter, Tensor]]:
    """Every trained parameter and its part of such a tensor."""
    at = 0
    for parameter in _trained(model):
        yield parameter, flat[at : at + parameter.numel()].view(parameter.shape)
        at += parameter.numel()
