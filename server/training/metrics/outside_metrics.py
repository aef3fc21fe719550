"""Metrics from other packages: `server.extra_metrics`. See docs/plug_ins.md."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np

from colonnade.common.config.outside import OUTSIDE_METRICS, load_function
from colonnade.common.errors import ColonnadeError, ConfigError


class OutsideMetrics:
    """Metrics from other packages for every evaluation. One that fails is reported once and left out.

    Args:
        names: of the entry points, functions of (scores, targets) that return a number. In classification:
            probabilities float64 (rows, classes) and class numbers int64 (rows,); in regression: predicted and true
            targets float64 (rows, targets) in their own units.
    """

    def __init__(self, names: Sequence[str], warn: Callable[[str], None]) -> None:
        self._calls = {name: load_function(OUTSIDE_METRICS, name) for name in names}
        self._warn = warn
        self._failed: set[str] = set()

    def of(self, scores: np.ndarray, targets: np.ndarray) -> Mapping[str, float]:
        """Metrics by name, without those that fail or are not finite; empty if a score is not finite."""
        found: dict[str, float] = {}
        if not np.isfinite(scores).all():
            return found
        for name, call in self._calls.items():
            try:
                found[name] = _value(name, call, scores, targets)
            except ColonnadeError as failed:
                if name not in self._failed:
                    self._failed.add(name)
                    self._warn(f"{failed}; the run goes on without the metric")
        return found


def _value(name: str, call: Callable[..., Any], scores: np.ndarray, targets: np.ndarray) -> float:
    views = [array.view() for array in (scores, targets)]
    for view in views:
        view.flags.writeable = False  # shared with other metrics
    with OUTSIDE_METRICS.blamed(name):
        value = call(*views)
    if isinstance(value, bool) or not isinstance(value, Real):
        raise OUTSIDE_METRICS.unfit(name, f"it returned {type(value).__name__}, expected a number")
    if not math.isfinite(value):
        raise ConfigError(f"{OUTSIDE_METRICS.describe(name)} gave {float(value)}")
    return float(value)
