"""Durable count of a party's steps over secretly drawn rows: a crash can only increase it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from colonnade.common.errors import BudgetSpent, CheckpointError
from colonnade.common.privacy.accounting.budget import enter
from colonnade.common.run.json_lines import read_lines
from colonnade.common.run.json_values import whole

if TYPE_CHECKING:
    from colonnade.common.privacy.accounting.sampled import SampledGaussian

_BLOCKS = 64  # blocks of a budget: a crash forfeits at most one
_ANEW = "begin a new run, which spends epsilon anew"


class StepBudget:
    """Counts steps, and refuses one beyond those that every epsilon of the run counts already.

    Steps are reserved in blocks, on the disk, before the first of a block is taken. Without a path the count is in
    `counts` alone, which a rollback may reset: for seeded draws and noise, where the same steps are taken again.

    Args:
        path: the party's ledger; None for no file.
        steps: of the run, with their rate and noise.
        counts: storage of the count.

    Raises:
        CheckpointError: the ledger was altered, or has steps with another rate or noise.
    """

    def __init__(self, path: Path | None, steps: SampledGaussian, counts: dict[str, float] | None = None) -> None:
        self._path, self._steps = path, steps
        self._counts: dict[str, float] = {} if counts is None else counts
        if path is not None:
            self._counts["steps"] = sum(_reserved(path, self._kind))
        self._counts.setdefault("steps", 0)
        self._left = 0

    @property
    def steps(self) -> int:
        """Steps paid for so far: taken, or forfeited by a crash."""
        return int(self._counts["steps"])

    def spend(self) -> None:
        """Pays for one step.

        Raises:
            BudgetSpent: the run's steps are all taken.
            EnvironmentFault: the reservation cannot be written.
        """
        remaining = self._steps.steps - self.steps
        if remaining <= 0:
            raise BudgetSpent(
                f"the privacy budget is spent: it allowed {self._steps.steps} steps over secretly drawn rows",
                hint="the newest checkpoint is the model that it paid for; a run that went back takes steps twice",
            )
        if self._path is not None and not self._left:
            block = min(remaining, max(1, self._steps.steps // _BLOCKS))
            self._write({"reserved": block})
            self._left = block
        self._left -= 1
        self._counts["steps"] += 1

    def close(self) -> None:
        """Returns unused reservations."""
        if self._path is not None and self._left > 0:
            self._write({"returned": self._left})
        self._left = 0

    @property
    def _kind(self) -> dict[str, float]:
        return {"rate": self._steps.rate, "multiplier": self._steps.noise_multiplier}

    def _write(self, entry: dict[str, Any]) -> None:
        assert self._path is not None  # without a file nothing is reserved
        enter(self._path, {"steps": {**entry, **self._kind}}, "no step is taken")


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
