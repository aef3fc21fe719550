"""Learning rates of a run that goes back after a divergence (`federation.back_off`)."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel

MOST_BACK_OFFS = 10
_FACTOR = 0.3
_RATES = ("optimiser", "head_optimiser")

_S = TypeVar("_S", bound=BaseModel)


def back_off_factor(times: int) -> float:
    """Factor of all learning rates after so many times."""
    return float(_FACTOR**times)


def with_lower_rates(section: _S, times: int) -> _S:
    """A member's section with its learning rates lowered so many times; the server's active part included."""
    if not times:
        return section
    changed: dict[str, Any] = {}
    for name in _RATES:
        if (optimiser := getattr(section, name, None)) is not None:
            changed[name] = optimiser.model_copy(update={"lr": optimiser.lr * back_off_factor(times)})
    if (active := getattr(section, "active", None)) is not None:
        changed["active"] = with_lower_rates(active, times)
    return section.model_copy(update=changed)
