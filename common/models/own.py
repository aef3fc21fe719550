"""User-defined modules: `model: ./tower.py:Tower` (common/config/models.py), and modules of other packages."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import cast

from torch import Tensor, nn

from colonnade.common.config.models import MODELS, OutsideModel, OwnConfig, UserModule, no_such, refuse_missing
from colonnade.common.errors import ColonnadeError, ConfigError
from colonnade.common.run.user_code import in_place, interrupts, note_file


def users_module(config: UserModule, base: Path, *sizes: object) -> nn.Module:
    """Calls the code with the sizes, in order, and the configured keyword arguments.

    Args:
        config: names a file's class or function, or a package's model.
        base: the configuration's folder.
        sizes: the input's shape for a tower; inputs and classes for a head.

    Raises:
        ConfigError: the code cannot be imported, fails or returns no module; the message names the file or package.
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
    """A module of a package, whose errors name the package.

    Args:
        inner: the module.
        name: of its entry point.
    """

    def __init__(self, inner: nn.Module, name: str) -> None:
        super().__init__()
        self.inner, self._name = inner, name

    def forward(self, rows: Tensor) -> Tensor:
        """The inner module's output. Raises ConfigError if it fails."""
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
