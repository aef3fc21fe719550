"""Durable count of a party's steps over secretly drawn rows: a crash can only increase it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from colonnade.common.errors import BudgetSpent, CheckpointError
from colonnade.common.privacy.accounting.budget import Reserved
from colonnade.common.run.json_text import read_lines, whole

if TYPE_CHECKING:
    from colonnade.common.privacy.accounting.sampled import SampledGaussian

_BLOCKS = 64  # blocks of a budget: a crash forfeits at most one
_ANEW = "begin a new run, which spends epsilon anew"


class StepBudget(Reserved):
    """Counts steps, and refuses one beyond those that every epsilon of the run counts already.

    Args:
        path, counts: as `Reserved`.
        steps: of the run, with their rate and noise.

    Raises:
        CheckpointError: the ledger was altered, or has steps with another rate or noise.
    """

    held_back = "no step is taken"

    def __init__(self, path: Path | None, steps: SampledGaussian, counts: dict[str, float] | None = None) -> None:
        self._most, self._kind = steps.steps, {"rate": steps.rate, "multiplier": steps.noise_multiplier}
        already = 0 if path is None else sum(_reserved(path, self._kind))
        super().__init__(path, "steps", counts, already, max(1, steps.steps // _BLOCKS))

    @property
    def steps(self) -> int:
        """Steps paid for so far: taken, or forfeited by a crash."""
        return int(self._counts["steps"])

    def spend(self) -> None:
        """Pays for one step. Raises BudgetSpent, or EnvironmentFault as `Reserved`."""
        if (remaining := self._most - self.steps) <= 0:
            raise BudgetSpent(
                f"the privacy budget is spent: it allowed {self._most} steps over secretly drawn rows",
                hint="the newest checkpoint is the model that it paid for; a run that went back takes steps twice",
            )
        self._take(remaining)

    def _entry(self, counted: dict[str, int]) -> dict[str, Any]:
        return {"steps": {**counted, **self._kind}}


def _reserved(path: Path, kind: dict[str, float]) -> Iterator[int]:
    """Steps that a ledger's lines reserve, negative where they were returned."""
    for entry in read_lines(path):
        if "steps" not in entry:
            continue
        steps = entry["steps"]
        try:
            count = whole(steps.get("reserved", 0)) - whole(steps.get("returned", 0))
            found = {key: steps[key] for key in kind}
        except (ValueError, KeyError, AttributeError):
            said = f"{path}: a line that reserves steps was altered"
            raise CheckpointError(said, hint=f"restore the ledger from a copy, or {_ANEW}") from None
        if found != kind:
            raise CheckpointError(f"{path}: steps were taken with {found}, and now it is {kind}", hint=_ANEW)
        yield count
