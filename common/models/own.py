"""User-defined modules: `model: ./tower.py:Tower`.

The file is code and runs with all rights of the process. It is accepted from the local part of a configuration only,
never from the shared part, and never from a message.
"""

from __future__ import annotations

import ast
import datetime
import importlib.util
import math
import sys
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Annotated, Self, cast

from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import nn

from colonnade.common.errors import ColonnadeError, ConfigError, nearest
from colonnade.common.runtime.user_code import in_place, interrupts, note_file


class UserModule(BaseModel):
    """Base of configs whose module is code from outside Colonnade. Its arguments are values that JSON has too."""

    @model_validator(mode="after")
    def _arguments_are_plain(self) -> Self:
        """Refuses what would be another value once the configuration is written and read again, as `up` does."""
        for key, value in (self.model_extra or {}).items():
            if said := _not_plain(value, key):
                raise ValueError(
                    f"{said}: an argument is text, a finite number, true, false, null, or lists and sections"
                )
        return self

    @abstractmethod
    def module(self, base: Path, *sizes: object) -> nn.Module:
        """Makes the module.

        Args:
            base: the configuration's folder.
            sizes: the input's shape for a tower; inputs and classes for a head.

        Raises:
            ConfigError: the code cannot be imported, fails or returns no module.
        """


def _not_plain(value: object, where: str) -> str:
    """Says what of an argument a configuration cannot hold; "" if it can hold all of it."""
    if value is None or isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value)):
        return ""
    if isinstance(value, list):
        return next(filter(None, (_not_plain(one, f"{where}[{at}]") for at, one in enumerate(value))), "")
    if isinstance(value, dict):
        if wrong := [key for key in value if not isinstance(key, str)]:
            return f"{where} has the key {wrong[0]!r}, which is no text (put it in quotes)"
        return next(filter(None, (_not_plain(one, f"{where}.{key}") for key, one in value.items())), "")
    quotes = " (put it in quotes)" if isinstance(value, datetime.date) else ""
    return f"{where} = {str(value)[:40]} is {type(value).__name__}{quotes}"


class OwnConfig(UserModule):
    """A class, or a function that returns a module, and its arguments.

    Args:
        file: `PATH:NAME`, the path relative to the configuration's folder. All other keys are keyword
            arguments of NAME.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    file: Annotated[
        str,
        Field(
            pattern=r"^.+\.py:\w+$",
            examples=["./FILE.py:NAME"],
            description="a class or function of yours, ./FILE.py:NAME; other keys are its arguments",
        ),
    ]

    def find(self, base: Path) -> None:
        """Looks for NAME in the file without running anything of it.

        Raises:
            ConfigError: there is no such file, it is not Python, or nothing in it defines NAME.
        """
        path, name = self.file.rsplit(":", 1)
        file = base / Path(path).expanduser()
        _refuse_missing(file)
        try:
            tree = ast.parse(file.read_bytes(), str(file))
        except (SyntaxError, ValueError, RecursionError, MemoryError) as wrong:
            raise ConfigError(f"{file} is not Python: {' '.join(str(wrong).split())}", hint="mend the file") from None
        if name not in (defined := set(_defined(tree.body))):
            raise _no_such(str(file), name, defined)

    def module(self, base: Path, *sizes: object) -> nn.Module:
        """Calls NAME with the sizes, in order, and the configured keyword arguments.

        Args:
            base: the configuration's folder.
            sizes: the input's shape for a tower; inputs and classes for a head.

        Raises:
            ConfigError: the file cannot be imported, NAME is not in it, fails or returns no module.
        """
        path, name = self.file.rsplit(":", 1)
        make = _member(_imported(base / Path(path).expanduser()), name)
        try:
            module = make(*sizes, **(self.model_extra or {}))
        except ColonnadeError:
            raise
        except BaseException as error:  # sys.exit too: it would end the process without a word
            if interrupts(error):
                raise
            raise ConfigError(
                f"{self.file} failed: {in_place(error)}",
                hint=f"{name} is called with {', '.join(map(str, sizes))} and the keys beside `file`",
            ) from error
        if not isinstance(module, nn.Module):
            raise ConfigError(
                f"{self.file} made a {type(module).__name__}, not a torch.nn.Module",
                hint=f"derive {name} from torch.nn.Module",
            )
        if not any(parameter.requires_grad for parameter in module.parameters()):
            raise ConfigError(
                f"{self.file} has nothing to train: no parameter of it requires a gradient",
                hint="put a layer that is trained behind the frozen ones, such as nn.Linear; or write into the table "
                "what they compute",
            )
        return module


def _imported(path: Path) -> ModuleType:
    _refuse_missing(path)
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
        raise _no_such(str(module.__file__), name, vars(module))
    return make  # type: ignore[no-any-return]


def _refuse_missing(path: Path) -> None:
    if not path.is_file():
        raise ConfigError(f"there is no file {path}", hint="the path is relative to the configuration's folder")


def _no_such(file: str, name: str, there: Iterable[str]) -> ConfigError:
    said = f"{file} has no class or function {name!r}{nearest(name, there)}"
    return ConfigError(said, hint="name it after the colon")


def _defined(body: Iterable[ast.stmt]) -> Iterator[str]:
    """Names that statements define in their module, also under conditions."""
    for statement in body:
        match statement:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                yield from (each.asname or each.name.split(".")[0] for each in names)
            case ast.Assign() | ast.AnnAssign():
                targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
                yield from (each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name))
            case ast.If() | ast.Try() | ast.With() | ast.For() | ast.While():
                for part in ("body", "orelse", "finalbody"):
                    yield from _defined(getattr(statement, part, ()))
                for handler in getattr(statement, "handlers", ()):
                    yield from _defined(handler.body)
