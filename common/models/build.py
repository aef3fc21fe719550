"""Construction of models as a configuration names them (common/config/models.py): first weights, shape checks."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from colonnade.common.config.data.columns import Shape
from colonnade.common.config.models import (
    CnnConfig,
    HeadConfig,
    LenetConfig,
    LinearConfig,
    LinearHeadConfig,
    MlpConfig,
    MlpHeadConfig,
    ModelConfig,
    PolynomialConfig,
    ResnetConfig,
    TowerConfig,
    UserModule,
    user_parts,
)
from colonnade.common.errors import ColonnadeError, ConfigError
from colonnade.common.models.heads import head_module
from colonnade.common.models.own import users_module
from colonnade.common.models.towers.images import cnn, lenet
from colonnade.common.models.towers.norm import take_single_rows
from colonnade.common.models.towers.polynomial import Polynomial
from colonnade.common.models.towers.resnet import resnet
from colonnade.common.run.user_code import UserCodeFault, in_place, interrupts

_FLOATS = (torch.float32, torch.bfloat16, torch.float16)  # the short ones under autocast, which the caller widens


def tower(config: TowerConfig, input_shape: Shape) -> nn.Module:
    """A built-in tower with weights from torch's own generator: (batch, *input_shape) -> (batch, embedding).

    Raises:
        ConfigError: rows are no images, and the tower is for images.
    """
    match config:
        case MlpConfig():  # nowhere negative, or `signed`
            last = () if config.signed else (nn.ReLU(),)
            return nn.Sequential(
                nn.Flatten(),  # (batch, d)
                nn.Linear(math.prod(input_shape), config.hidden),  # (batch, hidden)
                nn.ReLU(),
                nn.Linear(config.hidden, config.embedding),  # (batch, embedding)
                *last,
            )
        case LinearConfig():
            layers = [nn.Flatten(), nn.Linear(math.prod(input_shape), config.embedding)]
            return nn.Sequential(*layers, *([nn.ReLU()] if config.activation == "relu" else []))
        case PolynomialConfig():
            return Polynomial(math.prod(input_shape), config.layers, config.embedding, config.clip)
        case CnnConfig():
            return cnn(config, input_shape)
        case LenetConfig():
            return lenet(config, input_shape)
        case ResnetConfig():
            return resnet(config, input_shape)


def build_model(config: ModelConfig, input_shape: Shape, start: torch.Generator, base: Path = Path()) -> nn.Module:
    """A party's tower: (batch, *input_shape) float32 -> (batch, embedding).

    Args:
        config: the party's `model`.
        input_shape: of one row.
        start: draws the weights, also those of a user's module. Torch's own generator is left as it was.
        base: the folder that a file is relative to.

    Raises:
        ConfigError: the model does not fit the input, or its file is not usable.
    """

    def make() -> nn.Module:
        return users_module(config, base, input_shape) if isinstance(config, UserModule) else tower(config, input_shape)

    model, width = _started(make, input_shape, start)
    return _checked(model, config, width)


def build_head(config: HeadConfig, inputs: int, classes: int, start: torch.Generator, base: Path = Path()) -> nn.Module:
    """The server's head: (batch, inputs) float32 -> (batch, classes).

    Args:
        config: the server's `head`.
        inputs: width of one embedding, or of all concatenated.
        classes: number of classes.
        start: draws the weights, also those of a user's module. Torch's own generator is left as it was.
        base: the folder that a file is relative to.

    Raises:
        ConfigError: the head does not give one score per class, or its file is not usable.
    """

    def make() -> nn.Module:
        if isinstance(config, UserModule):
            return users_module(config, base, inputs, classes)
        return head_module(config, inputs, classes)

    head, width = _started(make, (inputs,), start)
    if width != classes:
        raise ConfigError(f"the head gives {width} scores for {classes} classes", hint="it must give (batch, classes)")
    return _checked(head, config, width)


def build_agreed_head(
    config: LinearHeadConfig | MlpHeadConfig,
    inputs: int,
    classes: int,
    draws: torch.Generator,
    start: torch.Generator | None = None,
) -> nn.Module:
    """A head that the server sends, so that both sides build it: (batch, inputs) float32 -> (batch, classes).

    Args:
        config: as agreed in the federation.
        inputs: width of the party's embedding, or of all concatenated.
        classes: number of classes.
        draws: generator of its dropout.
        start: draws the weights; None at a party, whose weights are those that it receives.
    """
    make = lambda: head_module(config, inputs, classes, draws)  # noqa: E731
    return _started(make, (inputs,), start or torch.Generator())[0]


def output_width(model: nn.Module, input_shape: Shape) -> int:
    """Output width of a model, from two rows of zeros; mode and state do not change.

    Args:
        model: anything that should map (batch, *input_shape) to (batch, width).
        input_shape: of one row.

    Raises:
        ConfigError: the model fails, or its output has another shape; the message names both shapes.
    """
    rows = torch.zeros(2, *input_shape, device=next((p.device for p in model.parameters()), None))
    modes = [(module, module.training) for module in model.modules()]
    try:
        # Evaluation mode: batch norm keeps its statistics and dropout draws nothing.
        with torch.no_grad():
            output = model.eval()(rows)
    except ColonnadeError:
        raise
    except BaseException as error:  # sys.exit too: it would end the process without a word
        if interrupts(error):
            raise
        raise ConfigError(
            f"the model fails on rows of shape {tuple(rows.shape)}: {in_place(error)}",
            hint="its first layer must fit the party's part of a row",
        ) from error
    finally:
        for module, training in modes:
            module.training = training
    if isinstance(output, Tensor) and output.dtype not in _FLOATS:
        raise ConfigError(f"the model makes {_dtype(output)}, expected float32", hint="end it with `.float()`")
    if not isinstance(output, Tensor) or output.ndim != 2 or len(output) != 2:
        shown = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
        raise ConfigError(
            f"the model makes {shown} of rows of shape {tuple(rows.shape)}, expected (2, width)",
            hint="a tower or head must give one vector a row",
        )
    return output.shape[1]


def _checked(model: nn.Module, config: object, width: int) -> nn.Module:
    """The same; a user's own checks the form of its outputs each time, which the rows may change."""
    if isinstance(config, UserModule):
        (what,) = user_parts(model=config)
        model.register_forward_hook(partial(_check_output, what.removeprefix("its model "), width))
    return model


def _check_output(name: str, width: int, _model: nn.Module, given: tuple[Tensor, ...], output: object) -> None:
    rows = len(given[0])
    got = type(output).__name__
    if isinstance(output, Tensor):
        dense = output.layout == torch.strided
        if dense and output.dtype in _FLOATS and output.shape[-1:] == (width,) and len(output) == rows:
            return
        got = f"{'' if dense else 'a sparse '}{_dtype(output)} of shape {tuple(output.shape)}"
    raise UserCodeFault(
        f"{name} made {got}, expected float32 of shape ({rows}, {width})",
        hint="it must give one vector of this width a row, whatever the rows are",
    )


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _started(make: Callable[[], nn.Module], input_shape: Shape, start: torch.Generator) -> tuple[nn.Module, int]:
    # Layers initialise from the global CPU generator, which other code may be using; lazy layers do so at the first
    # rows.
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.set_state(start.get_state())
        model = make()
        width = output_width(model, input_shape)
        start.set_state(torch.default_generator.get_state())
        take_single_rows(model)  # after the first rows, at which a lazy layer becomes what it is
        return model, width
