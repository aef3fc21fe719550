"""Models of other installed packages: `model: {name: NAME, ...}` and `head: {name: NAME, ...}`.

An entry of `colonnade.models` names a class, or a function that returns a module, as `./tower.py:Tower` does: own.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, create_model
from torch import Tensor, nn

from colonnade.common.models.own import UserModule
from colonnade.common.runtime.plug_ins import Extended, PlugIns

MODELS = PlugIns(
    "models", ("mlp", "cnn", "lenet", "resnet18", "resnet50", "linear", "polynomial", "normed", "product", "own")
)
"""Models of installed packages; the names of built-in towers and heads are taken in both places."""


class OutsideModel(UserModule):
    """A model of another package, and its arguments.

    Args:
        name: of the entry point. All other keys are keyword arguments of its object.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    name: str

    def module(self, base: Path, *sizes: object) -> nn.Module:  # noqa: ARG002  # a package has no configuration folder
        """Calls the entry's object with the sizes, in order, and the configured keyword arguments.

        Args:
            base: ignored.
            sizes: the input's shape for a tower; inputs and classes for a head.

        Raises:
            ConfigError: it cannot be imported, fails or returns no module; the message names the package.
        """
        make = MODELS.load(self.name)
        if not callable(make):
            raise MODELS.unfit(self.name, f"it is {type(make).__name__}, expected a class or a function")
        with MODELS.blamed(self.name):
            module = make(*sizes, **(self.model_extra or {}))
        if not isinstance(module, nn.Module):
            raise MODELS.unfit(self.name, f"it made {type(module).__name__}, expected a torch.nn.Module")
        return NamedModule(module, self.name)


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


def is_outside(name: object) -> bool:
    """True if a package registers a model of this name. Raises ConfigError if two parts have it."""
    if not isinstance(name, str):
        return False
    MODELS.refuse_clash(name)
    return name in MODELS.entries


class ModelOutside(Extended):
    """Annotation of the built-in models' union."""

    @property
    def plug_ins(self) -> PlugIns:
        """The models."""
        return MODELS

    def options(self) -> list[type[BaseModel]]:
        """A stand-in for each."""
        fields: list[dict[str, Any]] = [{"name": (Literal[name], ...)} for name in MODELS.entries]
        return [create_model("_Outside", **field) for field in fields]
