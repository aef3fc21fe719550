"""Names that moved to another module: what imports them from the old one works for one more version, with a warning."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def moved(module: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """A module's `__getattr__`.

    Args:
        module: the old one.
        names: with the module that each is in now.
    """

    def found(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warnings.warn(f"{name} is now in {names[name]}: import it from there", DeprecationWarning, stacklevel=2)
        return getattr(import_module(names[name]), name)

    return found
