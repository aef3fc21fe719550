"""How many releases a party has paid for: counted so that a crash can only make it more."""

from __future__ import annotations

import math
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from colonnade.common.errors import BudgetSpent, EnvironmentFault
from colonnade.common.privacy.accounting.chain import Chain
from colonnade.common.runtime.json_lines import read_lines

_BLOCKS = 32  # that a budget is reserved in: a crash forfeits at most one of them


class Budget:
    """Counts releases, and refuses the one that would pass the limit.

    Releases are reserved in blocks, on the disk, before the first of a block leaves, so that no
    round waits for the disk; who is killed forfeits what is left of its block. With no path the
    count is kept in `counts` alone, which a rollback may set back: for seeded noise, where the
    same bytes leave again.

    Args:
        path: the party's ledger, in which reservations are lines of their own; None keeps none.
        limit: releases that the budget allows; None counts only.
        expected: releases that the run makes, which sizes the blocks.
        counts: where the count is kept.
        noise_multiplier: sigma of these releases. What an earlier start released with another one counts for
            as many of these as cost the same: T releases at sigma' for T (sigma / sigma')^2.
    """

    def __init__(
        self,
        path: Path | None,
        limit: int | None,
        expected: int,
        counts: dict[str, float] | None = None,
        noise_multiplier: float = 1.0,
    ) -> None:
        self._path, self._limit, self._sigma = path, limit, noise_multiplier
        self._block = max(1, expected // _BLOCKS)
        self._counts: dict[str, float] = {} if counts is None else counts
        if path is not None:
            self._counts["releases"] = _reserved(path, noise_multiplier)
        self._counts.setdefault("releases", 0)
        self._left = 0

    @property
    def releases(self) -> float:
        """Paid for so far: left, or forfeited by a crash; a fraction where some had another sigma."""
        return self._counts["releases"]

    def spend(self) -> float:
        """Pays for one release and returns how many that makes.

        Raises:
            BudgetSpent: one more would pass the limit.
            EnvironmentFault: the reservation cannot be written.
        """
        if self._limit is not None and self.releases > self._limit - 1:
            raise BudgetSpent(
                f"the privacy budget is spent: it allowed {self._limit} releases",
                hint="the newest checkpoint is the model that it paid for; another run needs another budget",
            )
        if self._path is not None and not self._left:
            self._left = self._block if self._limit is None else min(self._block, int(self._limit - self.releases))
            self._write({"reserved": self._left, "noise_multiplier": self._sigma})
        self._left -= 1
        self._counts["releases"] += 1
        return self.releases

    def close(self) -> None:
        """Gives back what was reserved and not used."""
        if self._left > 0:
            self._write({"returned": self._left, "noise_multiplier": self._sigma})
        self._left = 0

    def _write(self, entry: dict[str, Any]) -> None:
        assert self._path is not None  # who has no file reserves nothing
        try:
            with closing(Chain(self._path)) as chain:
                chain.append({"time": round(time.time(), 6), **entry}, durably=True)
        except OSError as failed:
            raise EnvironmentFault(
                f"the ledger {self._path} cannot be written: {failed.strerror}; nothing leaves without it",
                hint="make room on the disk, then resume",
            ) from failed


def _reserved(path: Path, sigma: float) -> float:
    """What earlier starts have reserved and not given back, in releases with this sigma (exact in Renyi's terms)."""
    cost = 0.0  # in 1 / sigma^2, to which Theorem 2 is proportional
    for entry in read_lines(path):
        if "noise_multiplier" in entry:
            cost += (entry.get("reserved", 0) - entry.get("returned", 0)) / entry["noise_multiplier"] ** 2
    releases = cost * sigma**2
    return round(releases) if math.isclose(releases, round(releases), rel_tol=1e-9) else releases
