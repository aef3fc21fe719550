"""Vertical federated learning as a distributed program: labels at a server, columns at parties, gRPC between them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from colonnade.common.errors import ColonnadeError
    from colonnade.common.version import VERSION as __version__  # noqa: N811
    from colonnade.runs import Run, load
    from colonnade.search.found import Search
    from colonnade.search.tuning import tune
    from colonnade.search.validation import Validation, cv

__all__ = ["ColonnadeError", "Run", "Search", "Validation", "__version__", "cv", "load", "tune"]

_PLACES = {
    "ColonnadeError": ("colonnade.common.errors", "ColonnadeError"),
    "Run": ("colonnade.runs", "Run"),
    "Search": ("colonnade.search.found", "Search"),
    "Validation": ("colonnade.search.validation", "Validation"),
    "__version__": ("colonnade.common.version", "VERSION"),
    "cv": ("colonnade.search.validation", "cv"),
    "load": ("colonnade.runs", "load"),
    "tune": ("colonnade.search.tuning", "tune"),
}


def __getattr__(name: str) -> Any:
    """Imports a public name at its first use: `import colonnade` alone imports neither torch nor pyarrow."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _PLACES[name]
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
