"""Vertical federated learning as a distributed program: labels at a server, columns at parties, gRPC between them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from colonnade.common.moved import accept_old_places

if TYPE_CHECKING:
    from colonnade import protocols
    from colonnade.common.config.federation import FederationConfig as Federation
    from colonnade.common.config.members import Config
    from colonnade.common.config.members import PartyConfig as Party
    from colonnade.common.config.members import ServerConfig as Server
    from colonnade.common.errors import ColonnadeError, ConfigError, DataError, MemberFailed
    from colonnade.common.version import VERSION as __version__  # noqa: N811
    from colonnade.estimators import ColonnadeClassifier, ColonnadeRegressor
    from colonnade.reports.explanation.write import Explanation
    from colonnade.runs import Run, load, simulate, up
    from colonnade.search.comparison.compared import Comparison, compare
    from colonnade.search.found import Search
    from colonnade.search.tuning import tune
    from colonnade.search.validation import Validation, cv

accept_old_places()

__all__ = [
    "ColonnadeClassifier",
    "ColonnadeError",
    "ColonnadeRegressor",
    "Comparison",
    "Config",
    "ConfigError",
    "DataError",
    "Explanation",
    "Federation",
    "MemberFailed",
    "Party",
    "Run",
    "Search",
    "Server",
    "Validation",
    "__version__",
    "compare",
    "cv",
    "load",
    "protocols",
    "simulate",
    "tune",
    "up",
]

_PLACES = {
    "ColonnadeClassifier": ("colonnade.estimators", "ColonnadeClassifier"),
    "ColonnadeError": ("colonnade.common.errors", "ColonnadeError"),
    "ColonnadeRegressor": ("colonnade.estimators", "ColonnadeRegressor"),
    "Comparison": ("colonnade.search.comparison.compared", "Comparison"),
    "Config": ("colonnade.common.config.members", "Config"),
    "ConfigError": ("colonnade.common.errors", "ConfigError"),
    "DataError": ("colonnade.common.errors", "DataError"),
    "Explanation": ("colonnade.reports.explanation.write", "Explanation"),
    "Federation": ("colonnade.common.config.federation", "FederationConfig"),
    "MemberFailed": ("colonnade.common.errors", "MemberFailed"),
    "Party": ("colonnade.common.config.members", "PartyConfig"),
    "Run": ("colonnade.runs", "Run"),
    "Server": ("colonnade.common.config.members", "ServerConfig"),
    "Search": ("colonnade.search.found", "Search"),
    "Validation": ("colonnade.search.validation", "Validation"),
    "__version__": ("colonnade.common.version", "VERSION"),
    "compare": ("colonnade.search.comparison.compared", "compare"),
    "cv": ("colonnade.search.validation", "cv"),
    "load": ("colonnade.runs", "load"),
    "protocols": ("colonnade.protocols", ""),
    "simulate": ("colonnade.runs", "simulate"),
    "up": ("colonnade.runs", "up"),
    "tune": ("colonnade.search.tuning", "tune"),
}


def __getattr__(name: str) -> Any:
    """Imports a public name at its first use: `import colonnade` alone imports neither torch nor pyarrow."""
    if name == "attack":
        return import_module("colonnade.laboratory").load("attack", "colonnade.attack")
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _PLACES[name]
    found = import_module(module)
    return getattr(found, attribute) if attribute else found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
