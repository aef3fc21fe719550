"""The best evaluation of a run, and early stopping."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from colonnade.common.config.run_options import StopConfig
from colonnade.common.runtime.numbers import plain

TWO_CLASSES = frozenset({"auc", "average_precision", "ks", "lift"})
"""Metrics that rows of a single class do not define."""

SMALL = frozenset({"rmse", "mae", "loss", "log_loss", "brier"})
"""Metrics of which less is better."""

SHARES = frozenset({"accuracy", "balanced_accuracy"})
"""Metrics said in per cent."""

_WORDS = {
    "balanced_accuracy": "balanced accuracy", "auc": "AUC", "average_precision": "average precision", "f1": "F1",
    "ks": "KS", "log_loss": "log loss", "brier": "Brier score", "rmse": "RMSE", "mae": "MAE", "r2": "R2",
}  # fmt: skip


def named(metric: str) -> str:
    """A metric in words."""
    return _WORDS.get(metric, metric)


def said(metric: str, value: float) -> str:
    """A value of a metric in words."""
    return f"{value:.2%}" if metric in SHARES else plain(value)


@dataclass
class Best:
    """The best evaluation so far.

    Args:
        config: when to stop; None records nothing and never stops.
        found: part of the server's state: `round`, and `val_` and `test_` values of the best round: of the criterion
            and of what else was entered; of the evaluations after it their number (`since`) and the `newest`.
        metric: the criterion, such as `accuracy`, of which more is better, or `rmse`, of which less is.
        patience: evaluations in a row without a new best; None for that of the config.
    """

    config: StopConfig | None
    found: dict[str, Any]
    metric: str = "accuracy"
    patience: int | None = None

    def enter(self, round: int, part: str, value: float, **more: float) -> None:
        """Enters an evaluation; a round's validation rows come first.

        Args:
            value: of the criterion; not a number where it is not defined.
            more: further metrics to report of the best round. By `measure`, of equals the one with the least `loss`
                is the best: few rows have few values of an accuracy.
        """
        if self.config is None:
            return
        if part == "test":
            if round == self.round:
                self.found.update(self._named("test", value, more))
        elif not self._known or self._better(value, self.found[f"val_{self.metric}"]) or self._settles(value, more):
            self.found.clear()
            self.found.update({"round": round, **self._named("val", value, more), "since": 0, "newest": value})
        else:
            self.found.update(since=self.found["since"] + 1, newest=value)

    def _named(self, part: str, value: float, more: dict[str, float]) -> dict[str, float]:
        return {f"{part}_{name}": each for name, each in {self.metric: value, **more}.items()}

    @property
    def _known(self) -> bool:
        """True if there is a best one by this criterion; another start may have had another."""
        return f"val_{self.metric}" in self.found

    @property
    def round(self) -> int:
        """The best round, 0 before the first evaluation; the first of equals."""
        return int(self.found.get("round", 0))

    @property
    def stop(self) -> str:
        """The reason to stop now, or ""."""
        if self.config is None or not self._known:
            return ""
        best, newest, since = (self.found[key] for key in (f"val_{self.metric}", "newest", "since"))
        drop, small = self.config.drop, self.metric in SMALL
        patience = self.config.patience if self.patience is None else self.patience
        name, shares = named(self.metric), self.metric in SHARES
        best_said, newest_said = (said(self.metric, value) for value in (best, newest))
        peak = f"the best, {best_said} in round {self.round}"
        if drop is not None and not (newest <= best * (1 + drop) if small else best - newest <= drop):  # NaN is far
            far = f"{100 * drop:g} points" if shares else f"{100 * drop:g} %" if small else f"{drop:g}"
            return f"validation {name} is {newest_said}, more than {far} {'above' if small else 'below'} {peak}"
        if isinstance(patience, int) and since >= patience:
            return f"validation {name} was no better in {since} evaluations than {peak}"
        return ""

    def _better(self, value: float, best: float) -> bool:
        if math.isnan(best):
            return not math.isnan(value)
        return value < best if self.metric in SMALL else value > best

    def _settles(self, value: float, more: dict[str, float]) -> bool:
        """True if an evaluation is as good as the best by the criterion, and better by its loss."""
        if self.config is None or self.config.metric != "measure" or "val_loss" not in self.found:
            return False
        return value == self.found[f"val_{self.metric}"] and bool(more.get("loss", math.inf) < self.found["val_loss"])

    def summary(self, saved: int) -> dict[str, Any] | None:
        """The best round, its metrics, and whether all members hold its checkpoint (that of round `saved`)."""
        if not self._known:
            return None
        wanted = [key.removeprefix("val_") for key in self.found if key.startswith("val_")]
        kept = {f"{part}_{name}": self.found.get(f"{part}_{name}") for name in wanted for part in ("val", "test")}
        return {"round": self.round, **kept, "checkpoint": saved == self.round}
