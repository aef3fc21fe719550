"""The best evaluation of a run, and early stopping."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from colonnade.common.config.run_options import StopConfig
from colonnade.common.runtime.numbers import plain


@dataclass
class Best:
    """The best evaluation so far.

    Args:
        config: when to stop; None records nothing and never stops.
        found: part of the server's state: `round`, `val_accuracy` and `test_accuracy` of the best
            round, and of the evaluations after it their number (`since`) and the `newest`.
        metric: the criterion: `accuracy`, of which more is better, or `rmse`, of which less is.
    """

    config: StopConfig | None
    found: dict[str, Any]
    metric: str = "accuracy"

    def enter(self, round: int, part: str, value: float) -> None:
        """Enters an evaluation; a round's validation rows come first."""
        if self.config is None:
            return
        if part == "test":
            if round == self.round:
                self.found[f"test_{self.metric}"] = value
        elif not self.found or self._better(value, self.found[f"val_{self.metric}"]):
            self.found.clear()
            self.found.update({"round": round, f"val_{self.metric}": value, "since": 0, "newest": value})
        else:
            self.found.update(since=self.found["since"] + 1, newest=value)

    @property
    def round(self) -> int:
        """The best round, 0 before the first evaluation; the first of equals."""
        return int(self.found.get("round", 0))

    @property
    def stop(self) -> str:
        """The reason to stop now, or ""."""
        if self.config is None or not self.found:
            return ""
        best, newest, since = (self.found[key] for key in (f"val_{self.metric}", "newest", "since"))
        drop, patience, small = self.config.drop, self.config.patience, self.metric == "rmse"
        name, best_said, newest_said = (
            ("RMSE", plain(best), plain(newest)) if small else ("accuracy", f"{best:.2%}", f"{newest:.2%}")
        )
        peak = f"the best, {best_said} in round {self.round}"
        if drop is not None and not (newest <= best * (1 + drop) if small else best - newest <= drop):  # NaN is far
            far = f"{100 * drop:g} % above" if small else f"{100 * drop:g} points below"
            return f"validation {name} is {newest_said}, more than {far} {peak}"
        if patience is not None and since >= patience:
            return f"validation {name} was no better in {since} evaluations than {peak}"
        return ""

    def _better(self, value: float, best: float) -> bool:
        if math.isnan(best):
            return not math.isnan(value)
        return value < best if self.metric == "rmse" else value > best

    def summary(self, saved: int) -> dict[str, Any] | None:
        """The best round, its metrics, and whether all members hold its checkpoint (that of round `saved`)."""
        if not self.found:
            return None
        kept = {key: self.found.get(key) for key in ("round", f"val_{self.metric}", f"test_{self.metric}")}
        return {**kept, "checkpoint": saved == self.round}
