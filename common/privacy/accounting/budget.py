"""Durable counts of a party's releases, and of its steps over secretly drawn rows: a crash can only increase them."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from colonnade.common.errors import BudgetSpent, CheckpointError, disk_faults
from colonnade.common.privacy.accounting.ledger import Chain
from colonnade.common.run.json_text import read_lines, whole

if TYPE_CHECKING:
    from colonnade.common.privacy.accounting.sampled import SampledGaussian

_BLOCKS = 32  # blocks of a budget: a crash forfeits at most one
_GRID = 2**20  # parts of a release that earlier starts' are rounded up to
_LEAST = 1e-100  # of a noise multiplier: its square is above 0 and finite


class Reserved:
    """A count in blocks, each reserved durably in a party's ledger before its first use.

    Nothing else waits for the disk, and a killed process forfeits the rest of its block. Without a path the count is
    only in `counts`, which a rollback may reset: for seeded noise, where the same bytes are sent again.

    Args:
        path: the party's ledger; None for no file.
        already: count in the ledger so far.
    """

    held_back: ClassVar[str]  # what waits for the disk, for the error

    def __init__(
        self, path: Path | None, name: str, counts: dict[str, float] | None, already: float, block: int
    ) -> None:
        self._path, self._name, self._block, self._left = path, name, block, 0
        self._counts: dict[str, float] = {} if counts is None else counts
        if path is not None:
            self._counts[name] = already
        self._counts.setdefault(name, 0)

    def close(self) -> None:
        if self._path is not None and self._left > 0:
            enter(self._path, self._entry({"returned": self._left}), self.held_back)
        self._left = 0

    def _take(self, room: int | None, count: int = 1) -> None:
        """Adds to the count, with `room` left. Raises EnvironmentFault, and adds nothing, if it cannot be written."""
        if self._path is not None and self._left < count:
            block = self._block if room is None else min(self._block, room - self._left)
            block = max(block, count - self._left)
            enter(self._path, self._entry({"reserved": block}), self.held_back)
            self._left += block
        self._left -= count
        self._counts[self._name] += count

    def _entry(self, counted: dict[str, int]) -> dict[str, Any]:
        raise NotImplementedError


class Budget(Reserved):
    """Counts releases, and refuses one that would exceed the limit.

    Args:
        path, counts: as above.
        limit: releases within the budget; None counts only.
        expected: releases of the run, for the block size.
        noise_multiplier: sigma of the releases. Releases of an earlier start with another sigma' count at equal cost: T
            releases at sigma' as T (sigma / sigma')^2.
        planned: epsilon of all planned releases, for the reader of the ledger; None without a guarantee.
    """

    held_back = "nothing leaves"

    def __init__(
        self,
        path: Path | None,
        limit: int | None,
        expected: int,
        counts: dict[str, float] | None = None,
        noise_multiplier: float = 1.0,
        planned: float | None = None,
    ) -> None:
        already = 0 if path is None else paid_for(path, noise_multiplier)
        super().__init__(path, "releases", counts, already, max(1, expected // _BLOCKS))
        self._limit, self._sigma = limit, noise_multiplier
        self._planned = {} if planned is None else {"planned": round(planned, 6)}

    @property
    def releases(self) -> float:
        """Releases paid for so far: sent, or forfeited by a crash; fractional if some had another sigma."""
        return self._counts["releases"]

    def spend(self, count: int = 1) -> float:
        """Pays for releases and returns the total. Raises BudgetSpent, or EnvironmentFault as `Reserved`."""
        if self._limit is not None and self.releases > self._limit - count:
            raise BudgetSpent(
                f"the privacy budget is spent: it allowed {self._limit} releases",
                hint="the newest checkpoint is the model that it paid for; a run with federation.privacy.predictions "
                "keeps releases for predictions",
            )
        self._take(None if self._limit is None else int(self._limit - self.releases), count)
        return self.releases

    def _entry(self, counted: dict[str, int]) -> dict[str, Any]:
        return {**counted, "noise_multiplier": self._sigma, **self._planned}


def enter(path: Path, entry: dict[str, Any], held_back: str) -> None:
    """Adds a line to a party's ledger; it is on the disk when this returns.

    Args:
        held_back: what must wait for the line, for the error.

    Raises EnvironmentFault if the disk refuses it.
    """
    what, hint = f"the ledger {path} cannot be written", "make room on the disk, then resume"
    with disk_faults(what, hint, f"; {held_back} without it"), closing(Chain(path)) as chain:
        chain.append({"time": round(time.time(), 6), **entry}, durably=True)


def reservations(path: Path) -> Iterator[tuple[int, float]]:
    """Releases that a ledger's lines reserve, negative if returned, and sigma of each line.

    Raises CheckpointError if a line was altered, so that the spent budget is unknown.
    """
    for entry in read_lines(path):
        if "noise_multiplier" not in entry:
            continue
        sigma = entry["noise_multiplier"]
        try:
            releases = whole(entry.get("reserved", 0)) - whole(entry.get("returned", 0))
            if isinstance(sigma, bool) or not isinstance(sigma, int | float) or not _LEAST < sigma < 1 / _LEAST:
                raise ValueError("no noise multiplier")
        except ValueError:
            raise CheckpointError(
                f"{path}: a line that reserves releases was altered",
                hint="restore the ledger from a copy, or begin a new run, which spends epsilon anew",
            ) from None
        yield releases, float(sigma)


def paid_for(path: Path, sigma: float) -> float:
    """A ledger's reservations that were not returned, in releases with this sigma (exact in Renyi's terms).

    Rounded up to binary digits that further releases can be added to without rounding. Raises CheckpointError as
    `reservations`.
    """
    counts: Counter[float] = Counter()
    for count, of in reservations(path):
        counts[of] += count
    exact = sum((count * (_written(sigma) / _written(of)) ** 2 for of, count in counts.items()), Fraction())
    return math.ceil(exact * _GRID) / _GRID


def _written(sigma: float) -> Fraction:
    """A noise multiplier as it is written in decimals."""
    return Fraction(str(sigma))


def least_noise_paid_for(path: Path) -> float | None:
    """The smallest noise multiplier of a ledger's releases; None without any. Raises CheckpointError as above."""
    paid = Counter[float]()
    for count, sigma in reservations(path):
        paid[sigma] += count
    return min((sigma for sigma, count in paid.items() if count > 0), default=None)


_STEP_BLOCKS = 64  # blocks of a budget: a crash forfeits at most one
_ANEW = "begin a new run, which spends epsilon anew"


class StepBudget(Reserved):
    """Counts steps, and refuses those beyond the run's planned steps, which every epsilon includes.

    Args:
        path, counts: as `Reserved`.
        steps: the run's, with their rate and noise.

    Raises CheckpointError if the ledger was altered, or has steps with another rate or noise.
    """

    held_back = "no step is taken"

    def __init__(self, path: Path | None, steps: SampledGaussian, counts: dict[str, float] | None = None) -> None:
        self._most, self._kind = steps.steps, {"rate": steps.rate, "multiplier": steps.noise_multiplier}
        already = 0 if path is None else sum(_steps_reserved(path, self._kind))
        super().__init__(path, "steps", counts, already, max(1, steps.steps // _STEP_BLOCKS))

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


def _steps_reserved(path: Path, kind: dict[str, float]) -> Iterator[int]:
    """Steps that a ledger's lines reserve, negative if returned."""
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
