"""The best evaluation of a run, early stopping, and falling validation metrics."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median
from typing import Any

from colonnade.common.config.run_options import StopConfig
from colonnade.common.text import plain

TWO_CLASSES = frozenset({"auc", "average_precision", "ks", "lift"})
"""Metrics that are undefined on rows of a single class."""

SMALL = frozenset({"rmse", "mae", "loss", "log_loss", "brier"})  # metrics where lower is better

SHARES = frozenset({"accuracy", "balanced_accuracy"})  # metrics printed in per cent

_WORDS = {
    "balanced_accuracy": "balanced accuracy", "auc": "AUC", "average_precision": "average precision", "f1": "F1",
    "ks": "KS", "log_loss": "log loss", "brier": "Brier score", "rmse": "RMSE", "mae": "MAE", "r2": "R2",
}  # fmt: skip


def named(metric: str) -> str:
    return _WORDS.get(metric, metric)


def said(metric: str, value: float) -> str:
    return f"{value:.2%}" if metric in SHARES else plain(value)


@dataclass
class Best:
    """The best evaluation so far.

    Args:
        config: when to stop; None records nothing and never stops.
        found: part of the state: `round`, and `val_` and `test_` values of the best round; the number of validation
            evaluations since (`since`) and the value of the `newest`.
        metric: the criterion, such as `accuracy` (higher is better) or `rmse` (lower is better).
        patience: evaluations in a row without a new best; None for the config's.
    """

    config: StopConfig | None
    found: dict[str, Any]
    metric: str = "accuracy"
    patience: int | None = None

    def enter(self, round: int, part: str, value: float, **more: float) -> None:
        """Enters an evaluation; a round's validation rows come before its test rows.

        Args:
            value: the criterion's value; NaN where it is undefined.
            more: further metrics to report for the best round. The lowest `loss` breaks ties, since accuracy
                takes few values on few rows; not in runs of before, whose `metric` is null.
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
        """True if there is a best round by this criterion; an earlier start may have used another."""
        return f"val_{self.metric}" in self.found

    @property
    def round(self) -> int:
        """The best round, the first of equals; 0 before the first evaluation."""
        return int(self.found.get("round", 0))

    @property
    def stop(self) -> str:
        """Why the run should stop now, or ""."""
        if self.config is None or not self._known:
            return ""
        best, newest, since = (self.found[key] for key in (f"val_{self.metric}", "newest", "since"))
        drop, small = self.config.drop, self.metric in SMALL
        patience = self.config.patience if self.patience is None else self.patience
        name, shares = named(self.metric), self.metric in SHARES
        best_said, newest_said = (said(self.metric, value) for value in (best, newest))
        peak = f"the best, {best_said} in round {self.round}"
        if drop is not None and not (newest <= best * (1 + drop) if small else best - newest <= drop):  # true for NaN
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
        """True if an evaluation equals the best by the criterion and has a lower loss."""
        if self.config is None or self.config.metric is None or "val_loss" not in self.found:
            return False
        return value == self.found[f"val_{self.metric}"] and bool(more.get("loss", math.inf) < self.found["val_loss"])

    def summary(self, saved: int) -> dict[str, Any] | None:
        """The best round and its metrics; `saved` is the best round whose checkpoint all members hold, 0 if none."""
        if not self._known:
            return None
        wanted = [key.removeprefix("val_") for key in self.found if key.startswith("val_")]
        kept = {f"{part}_{name}": self.found.get(f"{part}_{name}") for name in wanted for part in ("val", "test")}
        return {"round": self.round, **kept, "checkpoint": saved == self.round}


_SINCE = 3  # newest evaluations, whose median is compared with the best one
_LEAST = 0.01  # least fall that is reported: one point, or 1 % of an error or loss


@dataclass
class Fall:
    """Whether the validation metric is below its best by more than the number of rows explains.

    The model then overfits, or its steps are too long.

    `found` is part of the state: `round`, `best` and `margin` of the best evaluation, and the `newest` values.
    """

    found: dict[str, Any]
    metric: str

    def enter(self, round: int, value: float, error: float) -> bool:
        """Adds a value and its standard error on these rows (0 if unknown).

        Returns True if validation has fallen now, and had not before.
        """
        if not math.isfinite(value):
            return False
        if self.found.get("metric") != self.metric or self._above(value, self.found["best"]) > 0:
            self.found.clear()
            margin = max(error, _LEAST * abs(value) if self.metric in SMALL else _LEAST)
            self.found.update(metric=self.metric, round=round, best=value, margin=margin, newest=[])
            return False
        before = self.fallen
        self.found["newest"] = [*self.found["newest"], value][-_SINCE:]
        return self.fallen and not before

    @property
    def fallen(self) -> bool:
        newest = self.found.get("newest", ())
        return len(newest) == _SINCE and self._above(self.found["best"], median(newest)) > self.found["margin"]

    @property
    def reason(self) -> str:
        if not self.fallen:
            return ""
        best, now = (said(self.metric, value) for value in (self.found["best"], self.found["newest"][-1]))
        fell = "risen" if self.metric in SMALL else "fallen"
        return f"validation {named(self.metric)} has {fell} since round {self.found['round']}: {best} then, {now} now"

    def _above(self, value: float, other: float) -> float:
        return other - value if self.metric in SMALL else value - other
