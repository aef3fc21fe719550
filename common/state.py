"""Everything of a half that outlives a round, in one object."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

_T = TypeVar("_T")


class State:
    """Modules, optimisers, duals, generators by name: what a checkpoint holds and a resume restores.

    A half keeps nothing that outlives a round anywhere else, so that it can be stopped and
    started again.
    """

    def __init__(self) -> None:
        self._kept: dict[str, Any] = {}

    def keep(self, name: str, make: Callable[[], _T]) -> _T:
        """What is kept under a name; made the first time."""
        if name not in self._kept:
            self._kept[name] = make()
        return self._kept[name]  # type: ignore[no-any-return]

    def __getitem__(self, name: str) -> Any:
        return self._kept[name]

    def __contains__(self, name: str) -> bool:
        return name in self._kept
