"""Results of one protocol under all conditions."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from colonnade.common.contracts.contract import Contract
from colonnade.common.contracts.registry import CONTRACTS
from colonnade_lab.comparison.attacked import CHANCE, LABELS, READ, REBUILT
from colonnade_lab.comparison.plan import ATTACKED, OWN, PLAIN, SLOW, Entry, Unit, noisy
from colonnade_lab.papers.measures import RunRecord, value

Found = Mapping[str, Sequence[RunRecord]]


@dataclass(frozen=True)
class ProtocolResults:
    """A protocol's runs.

    Args:
        entry: how it took part.
        found: condition -> one record per seed; conditions that do not apply to it are absent.
    """

    name: str
    entry: Entry
    found: Found

    @property
    def contract(self) -> Contract[Any]:
        return CONTRACTS[self.name]

    def values(self, condition: str, measure: str) -> list[float]:
        """One value per seed; empty if there is no such run."""
        return [value(record, measure) for record in self.found.get(condition, ())]

    def mean(self, condition: str, measure: str) -> float:
        """Mean over seeds: infinite if a seed never reached the target, NaN if there is no run."""
        return statistics.fmean(found) if (found := self.values(condition, measure)) else math.nan

    @property
    def accuracy(self) -> float:
        """Undisturbed, in per cent."""
        return self.mean(PLAIN, "accuracy")

    def under(self, unit: Unit, epsilon: float) -> float:
        """Accuracy with noise, in per cent; NaN if the protocol has no such noise."""
        return self.mean(noisy(unit, epsilon), "accuracy")

    @property
    def fastest(self) -> tuple[str, float]:
        """The quicker way with stragglers, and its seconds to 90 %; infinite if neither reaches it."""
        ways = {way: self.mean(way, "seconds@90") for way in (OWN, SLOW) if way in self.found}
        return min(ways.items(), key=lambda way: way[1], default=("", math.nan))

    def attacked(self, key: str) -> float:
        """Success of an attack, as a share; NaN if it was not attacked."""
        records = self.found.get(ATTACKED, ())
        return records[0].metrics.get(key, math.nan) if records else math.nan

    @property
    def named(self) -> tuple[float, float]:
        """Share of labels that a party infers, and the share by chance."""
        return self.attacked(LABELS), self.attacked(CHANCE)

    @property
    def rebuilt(self) -> float:
        """The server's error over that of the mean row: 1 means that it learned nothing."""
        return self.attacked(REBUILT)

    @property
    def readable(self) -> float:
        """Share of reconstructed rows whose class a classifier recognises."""
        return self.attacked(READ)
