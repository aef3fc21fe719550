"""scikit-learn's bundled sets are parsed once in a process, and not by every member of every federation."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from colonnade.common.data.known_sets.bundled import Bundled

_PARSED: dict[Path, Tensor] = {}
_parse = Bundled.table


def parse_once() -> None:
    """Parses each set once from now on; every caller gets a copy."""
    Bundled.table = _table  # type: ignore[method-assign]


def _table(source: Bundled) -> Tensor:
    if source.path not in _PARSED:
        _PARSED[source.path] = _parse(source)
    return _PARSED[source.path].clone()
