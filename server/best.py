"""The best evaluation of a run, and whether it is time to stop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from common.course import StopConfig


@dataclass
class Best:
    """What has been found so far.

    Args:
        config: when to stop; None notes nothing and never stops.
        found: part of the server's state: `round`, `val_accuracy` and `test_accuracy` of the best
            round, and of the evaluations after it how many there were (`since`) and the `newest`.
    """

    config: StopConfig | None
    found: dict[str, Any]

    def enter(self, round: int, part: str, accuracy: float) -> None:
        """Notes an evaluation; of a round the validation rows come first."""
        if self.config is None:
            return
        if part == "test":
            if round == self.round:
                self.found["test_accuracy"] = accuracy
        elif accuracy > self.found.get("val_accuracy", -1.0):
            self.found.clear()
            self.found.update(round=round, val_accuracy=accuracy, since=0, newest=accuracy)
        else:
            self.found.update(since=self.found["since"] + 1, newest=accuracy)

    @property
    def round(self) -> int:
        """The best one, 0 before the first evaluation. Of equals it is the first."""
        return int(self.found.get("round", 0))

    @property
    def stop(self) -> str:
        """Why to stop now, or ""."""
        if self.config is None or not self.found:
            return ""
        best, newest, since = (self.found[key] for key in ("val_accuracy", "newest", "since"))
        drop, patience = self.config.drop, self.config.patience
        peak = f"the best, {best:.2%} in round {self.round}"
        if drop is not None and best - newest > drop:
            return f"validation accuracy is {newest:.2%}, more than {100 * drop:g} points below {peak}"
        if patience is not None and since >= patience:
            return f"validation accuracy was no better in {since} evaluations than {peak}"
        return ""

    def summary(self, saved: int) -> dict[str, Any] | None:
        """The best round, how good it was, and whether all members hold its checkpoint (that of round `saved`)."""
        if not self.found:
            return None
        kept = {key: self.found.get(key) for key in ("round", "val_accuracy", "test_accuracy")}
        return {**kept, "checkpoint": saved == self.round}
