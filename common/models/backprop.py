"""Forward and backward through a local model whose gradient comes from elsewhere.

A party never holds the whole loss. It receives the gradient at its embeddings and back-propagates it to its parameters,
often many times for one batch. On a CPU a stack of `Linear` and `ReLU` is differentiated by hand into reused buffers,
which saves a third of autograd's time; other models use autograd. Both leave the gradients in `parameter.grad`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.func import grad_and_value, vmap

from colonnade.common.errors import InputError

_mask = torch.ops.aten.threshold_backward.grad_input


class Backprop(Protocol):
    """One model; `backward` follows `forward`, and parameters may change in place at any time."""

    def forward(self, inputs: Tensor) -> Tensor:
        """The embeddings of a batch, detached; valid until the next `forward`."""
        ...

    def backward(self, gradient: Tensor) -> None:
        """Replaces every parameter's `grad`, given the gradient at the embeddings, which may be overwritten."""
        ...


def backprop(model: nn.Module) -> Backprop:
    """The cheapest exact `Backprop` of this model.

    By hand: an `nn.Sequential` of plain `nn.Linear`, each followed by at most one `nn.ReLU`, with distinct parameters,
    all trained and on the CPU, without hooks, on inputs of shape (b, in) or after an `nn.Flatten` to that shape.
    """
    layers = _stack(model)
    return Autograd(model) if layers is None else Stack(model, layers)


class Autograd:
    """`Backprop` of any module, in the mode (train or eval) it is in."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._embeddings: Tensor | None = None

    def forward(self, inputs: Tensor) -> Tensor:
        with torch.enable_grad():
            self._embeddings = self._model(inputs)
        return self._embeddings.detach()

    def backward(self, gradient: Tensor) -> None:
        if self._embeddings is None:
            raise RuntimeError("backward needs a forward before it, one for each")
        embeddings, self._embeddings = self._embeddings, None
        self._model.zero_grad(set_to_none=True)
        torch.autograd.backward(embeddings, gradient)


class Stack:
    """`Backprop` of `Linear` layers, each with True if a `ReLU` follows, by hand; autograd for inputs of more than two
    axes.
    """

    def __init__(self, model: nn.Module, layers: list[tuple[nn.Linear, bool]]) -> None:
        self._layers = [_Layer(linear, relu) for linear, relu in layers]
        self._flattens, self._graph = _flattens(model), Autograd(model)
        self._by_hand = True

    def forward(self, inputs: Tensor) -> Tensor:
        """The embeddings of the batch; overwrites those of the last `forward`."""
        flat = inputs.flatten(1) if self._flattens else inputs
        self._by_hand = flat.dim() == 2 and not flat.requires_grad and flat.is_cpu
        if not self._by_hand:
            return self._graph.forward(inputs)
        for layer in self._layers:
            flat = layer.forward(flat)
        return flat

    def backward(self, gradient: Tensor) -> None:
        """Back-propagates through the last `forward`; masks `gradient` in place."""
        if not self._by_hand:
            self._graph.backward(gradient)
            return
        first, *others = self._layers
        for layer in reversed(others):
            layer.backward(gradient)
            gradient = layer.pass_on(gradient)
        first.backward(gradient)

    def clipped(self, gradient: Tensor, threshold: float) -> list[Tensor] | None:
        """Sum of per-row gradients at all parameters, each clipped to a norm of `threshold`, in the parameters' order.

        A row's gradient at a `Linear` is the outer product of its inputs and the gradient at its outputs: its norm is
        the product of their norms, and no per-row gradient is materialised. None if the last `forward` used autograd.
        `gradient`, of every row at its embedding, (b, width), is overwritten.
        """
        if not self._by_hand:
            return None
        signals = [gradient]
        for layer, before in zip(reversed(self._layers), [*reversed(self._layers[:-1]), None], strict=True):
            layer.mask(signals[-1])
            if before is not None:
                signals.append(layer.pass_on(signals[-1]))
        signals.reverse()
        squares = sum(layer.squares(signal) for layer, signal in zip(self._layers, signals, strict=True))
        scale = (threshold / torch.as_tensor(squares).sqrt().clamp(min=threshold)).to(gradient.dtype).unsqueeze(1)
        return [
            part for layer, signal in zip(self._layers, signals, strict=True) for part in layer.sums(signal * scale)
        ]


class _Layer:
    """One `Linear`, weight (out, in), with or without a `ReLU`, between buffers of its own."""

    def __init__(self, linear: nn.Linear, relu: bool) -> None:
        self._relu, self._width = relu, linear.out_features
        self._parameters = [parameter for parameter in (linear.weight, linear.bias) if parameter is not None]
        self._weight, *self._bias = [parameter.detach() for parameter in self._parameters]
        self._grads = [torch.empty_like(parameter) for parameter in self._parameters]
        self._inputs = self._inputs_grad = self._outputs = self._weight.new_empty(0, 0)

    def forward(self, inputs: Tensor) -> Tensor:
        if len(inputs) != len(self._outputs):
            self._outputs = inputs.new_empty(len(inputs), self._width)
            self._inputs_grad = torch.empty_like(inputs)
        self._inputs = inputs
        torch.mm(inputs, self._weight.t(), out=self._outputs)
        for bias in self._bias:
            self._outputs.add_(bias)
        return self._outputs.relu_() if self._relu else self._outputs

    def backward(self, gradient: Tensor) -> None:
        """Sets the parameters' `grad` from the gradient at the outputs, which the ReLU masks in place."""
        self.mask(gradient)
        torch.mm(gradient.t(), self._inputs, out=self._grads[0])
        for bias_grad in self._grads[1:]:
            torch.sum(gradient, 0, out=bias_grad)
        for parameter, grad in zip(self._parameters, self._grads, strict=True):
            parameter.grad = grad

    def mask(self, gradient: Tensor) -> None:
        if self._relu:
            _mask(gradient, self._outputs, 0.0, grad_input=gradient)

    def squares(self, signal: Tensor) -> Tensor:
        """Squared norm of every row's gradient at this layer, float64 (b,), from the gradient at its outputs."""
        inputs = _squares(self._inputs) + len(self._bias)  # a bias is the weight of a constant 1
        return _squares(signal) * inputs

    def sums(self, signal: Tensor) -> list[Tensor]:
        return [torch.mm(signal.t(), self._inputs), *(signal.sum(0) for _ in self._bias)]

    def pass_on(self, gradient: Tensor) -> Tensor:
        """The gradient at the inputs, after `backward` has masked that at the outputs."""
        return torch.mm(gradient, self._weight, out=self._inputs_grad)


def _squares(rows: Tensor) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64)
    return norms.square()


def _stack(model: nn.Module) -> list[tuple[nn.Linear, bool]] | None:
    """The layers of a model that `Stack` can differentiate, or None."""
    if type(model) is not nn.Sequential or any(map(_hooked, model.modules())):
        return None
    layers: list[tuple[nn.Linear, bool]] = []
    for module in list(model)[_flattens(model) :]:
        if type(module) is nn.Linear:
            layers.append((module, False))
        elif type(module) is nn.ReLU and layers and not layers[-1][1]:
            layers[-1] = (layers[-1][0], True)
        else:
            return None
    parameters = [parameter for linear, _ in layers for parameter in linear.parameters()]
    tied = len(set(parameters)) < len(parameters)
    return layers if layers and not tied and all(map(_trained, parameters)) else None


def _flattens(model: nn.Module) -> bool:
    """True if a stack begins with a `Flatten` of all axes but the rows."""
    first = model[0] if type(model) is nn.Sequential and len(model) else None
    return type(first) is nn.Flatten and (first.start_dim, first.end_dim) == (1, -1)


def _hooked(module: nn.Module) -> bool:
    return bool(
        module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
    )


def _trained(parameter: nn.Parameter) -> bool:
    """True if autograd would write this parameter's gradient without calling a hook."""
    return parameter.requires_grad and parameter.device.type == "cpu" and not parameter._backward_hooks


Parameters = Mapping[str, Tensor]
RowLoss = Callable[[Parameters, Tensor, Tensor], Tensor]
"""(parameters by name, one row's inputs, its target) -> its loss, a scalar."""


def row_gradients(
    loss: RowLoss, parameters: Parameters, inputs: Tensor, targets: Tensor
) -> tuple[Tensor, dict[str, Tensor], Tensor]:
    """Losses and gradients of a batch, row by row. Dropout draws anew for every row.

    `loss` takes one row; `torch.func.functional_call` passes a module its parameters.

    Returns:
        The losses, (rows,); the gradients at the parameters, (rows, *shape) by name; at the inputs, (rows, ...).
    """
    each = vmap(grad_and_value(loss, argnums=(0, 1)), in_dims=(None, 0, 0), randomness="different")
    plain = {name: parameter.detach() for name, parameter in parameters.items()}
    try:
        (at_parameters, at_inputs), losses = each(plain, inputs.detach(), targets)
    except RuntimeError as failed:
        reason = str(failed).splitlines()[0]
        raise InputError(
            f"the model's gradients cannot be taken row by row: {reason}",
            hint="take a model, or head, without branches on values and without in-place changes of buffers",
        ) from failed
    return losses, at_parameters, at_inputs


def refuse_batch_norm(model: nn.Module, where: str) -> None:
    """Rejects layers in which rows interact: no row's share could be clipped. `where` is the model's key."""
    for name, layer in model.named_modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            raise InputError(
                f"{where}: layer {name or '0'} is a batch norm, in which one row's label changes all rows' gradients",
                hint="take a head without one, linear or mlp, or leave out server.privacy.answers",
            )
