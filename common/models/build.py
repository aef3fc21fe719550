"""Construction of models as a configuration names them (common/config/models.py): first weights, shape checks."""

from __future__ import annotations

import importlib.util
import math
import sys
from collections.abc import Callable
from functools import partial
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import cast

import torch
from torch import Tensor, nn

from colonnade.common.config.data.columns import Shape
from colonnade.common.config.models import (
    MODELS,
    CnnConfig,
    HeadConfig,
    LenetConfig,
    LinearConfig,
    LinearHeadConfig,
    MlpConfig,
    MlpHeadConfig,
    ModelConfig,
    OutsideModel,
    OwnConfig,
    PolynomialConfig,
    PretrainedConfig,
    ResnetConfig,
    TowerConfig,
    UserModule,
    no_such,
    precision_of,
    refuse_missing,
    user_parts,
)
from colonnade.common.data.pretrained.opening import open_tower
from colonnade.common.errors import ColonnadeError, ConfigError
from colonnade.common.models.heads import head_module
from colonnade.common.models.images import cnn, lenet, resnet
from colonnade.common.models.norm import take_single_rows
from colonnade.common.models.polynomial import Polynomial
from colonnade.common.run.plug_ins import UserCodeFault, in_place, interrupts, note_file

_FLOATS = (torch.float32, torch.bfloat16, torch.float16)  # the short ones under autocast, which the caller widens


def tower(config: TowerConfig, input_shape: Shape) -> nn.Module:
    """A built-in tower with weights from torch's own generator: (batch, *input_shape) -> (batch, embedding). Raises
    ConfigError.
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

    `start` draws the weights, also those of a user's module; torch's own generator does not change. Paths are relative
    to `base`. Raises ConfigError if the model does not fit the input, or its file is not usable.
    """

    def make() -> nn.Module:
        match config:
            case UserModule():
                return users_module(config, base, input_shape)
            case PretrainedConfig():
                return _pretrained(config, input_shape, base)
            case _:
                return tower(config, input_shape)

    model, width = _started(make, input_shape, start)
    if precision_of(config) == "bfloat16":
        return InBfloat16(*cast(nn.Sequential, model))  # all built-in towers with this key are one
    return _checked(model, config, width)


class InBfloat16(nn.Sequential):
    """Layers that compute in bfloat16 where autocast considers it safe, with float32 weights: float32 (rows, ...) ->
    float32 (rows, width). Checkpoints fit the same layers in float32. Exported programs compute in float32, since ONNX
    runtimes lack bfloat16 on CPUs.
    """

    def forward(self, rows: Tensor) -> Tensor:
        if torch.compiler.is_exporting():
            return cast(Tensor, super().forward(rows))  # type: ignore[no-untyped-call]
        with torch.autocast(rows.device.type, torch.bfloat16):
            return cast(Tensor, super().forward(rows)).float()  # type: ignore[no-untyped-call]


def _pretrained(config: PretrainedConfig, input_shape: Shape, base: Path) -> nn.Module:
    """A linear layer after a tower; for a frozen tower the layer alone, as its embeddings are the party's columns."""
    if not config.tune:
        return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(input_shape), config.embedding))
    found = open_tower(config, base)
    if found.shape != input_shape:
        raise ConfigError(
            f"{config.name}/{config.architecture} takes rows of shape {found.shape}, and the columns are {input_shape}",
            hint=f"give it one column of type {config.reads}",
        )
    return nn.Sequential(found.module, nn.Linear(found.width, config.embedding))


def build_head(config: HeadConfig, inputs: int, classes: int, start: torch.Generator, base: Path = Path()) -> nn.Module:
    """The server's head: (batch, inputs) float32 -> (batch, classes). Other arguments and errors as for
    `build_model`.
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

    `draws` is the generator of its dropout, `start` of its weights; None at a party, which receives them.
    """
    make = lambda: head_module(config, inputs, classes, draws)  # noqa: E731
    return _started(make, (inputs,), start or torch.Generator())[0]


def output_width(model: nn.Module, input_shape: Shape) -> int:
    """Output width of a model, from two rows of zeros; mode and state do not change. Raises ConfigError."""
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
    """Checks the shape of a user model's outputs at every call, since it may depend on the rows."""
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
        hint="it must return one vector of this width per row, for any rows",
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


def users_module(config: UserModule, base: Path, *sizes: object) -> nn.Module:
    """Calls a user's code with the sizes, in order, and the configured keyword arguments.

    `sizes` are the input's shape for a tower; inputs and classes for a head. Raises ConfigError that names the file or
    package.
    """
    match config:
        case OwnConfig():
            return _of_file(config, base, *sizes)
        case OutsideModel():
            return _of_package(config, *sizes)
        case _:
            raise TypeError(f"{type(config).__name__} is no user's module")


def _of_file(config: OwnConfig, base: Path, *sizes: object) -> nn.Module:
    path, name = config.file.rsplit(":", 1)
    make = _member(_imported(base / Path(path).expanduser()), name)
    try:
        module = make(*sizes, **(config.model_extra or {}))
    except ColonnadeError:
        raise
    except BaseException as error:  # sys.exit too: it would end the process without a word
        if interrupts(error):
            raise
        raise ConfigError(
            f"{config.file} failed: {in_place(error)}",
            hint=f"{name} is called with {', '.join(map(str, sizes))} and the keys beside `file`",
        ) from error
    if not isinstance(module, nn.Module):
        raise ConfigError(
            f"{config.file} made a {type(module).__name__}, not a torch.nn.Module",
            hint=f"derive {name} from torch.nn.Module",
        )
    if not any(parameter.requires_grad for parameter in module.parameters()):
        raise ConfigError(
            f"{config.file} has nothing to train: no parameter of it requires a gradient",
            hint="put a layer that is trained behind the frozen ones, such as nn.Linear; or write into the table "
            "what they compute",
        )
    return module


def _of_package(config: OutsideModel, *sizes: object) -> nn.Module:
    make = MODELS.load(config.name)
    if not callable(make):
        raise MODELS.unfit(config.name, f"it is {type(make).__name__}, expected a class or a function")
    with MODELS.blamed(config.name):
        module = make(*sizes, **(config.model_extra or {}))
    if not isinstance(module, nn.Module):
        raise MODELS.unfit(config.name, f"it made {type(module).__name__}, expected a torch.nn.Module")
    return NamedModule(module, config.name)


class NamedModule(nn.Module):
    """A module of a package, whose errors name the package."""

    def __init__(self, inner: nn.Module, name: str) -> None:
        super().__init__()
        self.inner, self._name = inner, name

    def forward(self, rows: Tensor) -> Tensor:
        with MODELS.blamed(self._name):
            found: Tensor = self.inner(rows)
        return found


def _imported(path: Path) -> ModuleType:
    refuse_missing(path)
    # None for files of an unknown kind only; this one ends in .py.
    spec = cast(ModuleSpec, importlib.util.spec_from_file_location(f"own_{path.stem}", path))
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and others look up their own module
    note_file(path)
    try:
        cast(Loader, spec.loader).exec_module(module)
    except BaseException as error:
        if interrupts(error):
            raise
        raise ConfigError(f"{path} does not import: {in_place(error)}", hint="mend the file") from error
    return module


def _member(module: ModuleType, name: str) -> Callable[..., object]:
    make = getattr(module, name, None)
    if not callable(make):
        raise no_such(str(module.__file__), name, vars(module))
    return make  # type: ignore[no-any-return]


def bottom_model(
    owner: str, config: ModelConfig, input_shape: tuple[int, ...], width: int, start: torch.Generator, base: Path
) -> nn.Module:
    """A member's model, (rows, *input_shape) -> (rows, width); `owner` is its section, for the ConfigError if it does
    not fit.
    """
    try:
        model = build_model(config, input_shape, start, base)
    except ConfigError as error:
        raise ConfigError(f"{owner}.model: {error}", hint=error.hint) from error
    if (made := output_width(model, input_shape)) != width:
        raise ConfigError(
            f"{owner}.model makes {made} numbers of a row, and the protocol takes {width}",
            hint=f"let its last layer make {width}"
            if isinstance(config, UserModule)
            else f"write `embedding: {width}` there",
        )
    return model
