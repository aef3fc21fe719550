"""Losses and metrics of other installed packages, by name: `federation.loss`, `server.extra_metrics`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from colonnade.common.errors import ConfigError
from colonnade.common.run.plug_ins import PlugIns

OUTSIDE_LOSSES = PlugIns("losses", ("cross_entropy", "squared", "logistic"))
"""Training losses of installed packages; built-in names are reserved."""

_BUILT_IN = (
    "accuracy", "loss", "auc", "average_precision", "balanced_accuracy", "f1", "log_loss", "brier", "ece", "ks", "lift",
    "gain", "baseline_accuracy", "rmse", "mae", "r2", "baseline_rmse", "decided_accuracy", "decided_precision",
    "decided_recall", "decided_f1", "decided_cost", "calibrated_log_loss", "calibrated_brier", "calibrated_ece",
)  # fmt: skip

OUTSIDE_METRICS = PlugIns("metrics", _BUILT_IN)
"""Metrics of installed packages, computed by the server; built-in names are reserved."""

OF_A_PARTY = ("accuracy_", "rmse_")  # prefixes of metrics of one party's own model


def check_registered(plug_ins: PlugIns, key: str, name: str) -> None:
    """Refuses a name that no installed package, or more than one, registers for this `key`; imports nothing."""
    plug_ins.refuse_clash(name)
    if name not in plug_ins.entries:
        said, hint = plug_ins.unknown(name)
        raise ConfigError(f"{key} = {name!r}: {said}", hint=hint)


def load_function(plug_ins: PlugIns, name: str) -> Callable[..., Any]:
    """Imports the function of a loss or metric. Raises KeyError, or ConfigError if it is not callable."""
    call = plug_ins.load(name)
    if not callable(call):
        raise plug_ins.unfit(name, f"it is {type(call).__name__}, expected a function")
    found: Callable[..., Any] = call
    return found


def check_metric(name: str) -> None:
    """Refuses a metric that is not registered, cannot be imported, or whose name reports would misread."""
    check_registered(OUTSIDE_METRICS, "server.extra_metrics", name)
    load_function(OUTSIDE_METRICS, name)
    if not name.isidentifier() or name.startswith(OF_A_PARTY):
        raise OUTSIDE_METRICS.unfit(
            name, f"the name must be letters, digits and underscores, and not begin with {' or '.join(OF_A_PARTY)}"
        )
