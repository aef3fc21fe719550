"""Runs of the comparison, and attacks on some: how many labels a party infers and what the server reconstructs."""

from __future__ import annotations

import math
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from colonnade.common.contracts.contract import Contract
from colonnade.common.contracts.registry import CONTRACTS
from colonnade.common.parsing.file import load
from colonnade.common.version import VERSION
from colonnade.simulation.folder import simulate_captured
from colonnade_lab.attacks import inversion, labels
from colonnade_lab.attacks.run import AttackedRun, open_run
from colonnade_lab.comparison.plan import ATTACKED, OWN, PLAIN, SLOW, Entry, Unit, noisy
from colonnade_lab.papers import running
from colonnade_lab.papers.measures import RunRecord, value
from colonnade_lab.papers.running import Job

VICTIM = "party2"
"""Its columns are in the middle of the images, where there is something to see."""

LABELS, CHANCE, REBUILT, READ, READ_CHANCE = "labels", "labels_chance", "rebuilt", "readable", "readable_chance"
"""Stored measures, as shares, where messages name rows; REBUILT is the mean squared error over that of the mean row."""

_KNOWN, _EPOCHS = 0.2, 1


def perform(job: Job) -> RunRecord:
    return attack(job) if job.name.endswith(f"/{ATTACKED}") else running.perform(job)


def attack(job: Job) -> RunRecord:
    """Runs a job in a temporary folder, and attacks VICTIM with the attacks' default settings."""
    torch.set_num_threads(1)
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        simulate_captured(load(job.run.path, job.sets), job.run.path.parent, folder)
        run = open_run(folder)
        metrics = {**_named(run), **_rebuilt(run, job.seed)}
        return RunRecord(
            metrics={key: round(number, 6) for key, number in metrics.items()},
            points=(),
            rounds=run.summary["rounds"],
            parties=len(run.summary["parties"]),
            bytes_up=run.summary["bytes"]["up"]["payload"],
            bytes_down=run.summary["bytes"]["down"]["payload"],
            wall=round(time.perf_counter() - begun, 1),
            version=VERSION,
        )


def _named(run: AttackedRun) -> dict[str, float]:
    guesses = labels.infer(run, VICTIM, _EPOCHS)
    return {LABELS: guesses[0].accuracy, CHANCE: guesses[0].chance} if guesses else {}


def _rebuilt(run: AttackedRun, seed: int) -> dict[str, float]:
    found = inversion.invert(run, VICTIM, _KNOWN, _EPOCHS, seed)
    if found is None:
        return {}
    read = found.readable
    return {REBUILT: found.mse / found.floor, READ: read.made, READ_CHANCE: read.chance}


Found = Mapping[str, Sequence[RunRecord]]


@dataclass(frozen=True)
class ProtocolResults:
    """A protocol's runs by condition, one record per seed; conditions that do not apply to it are absent."""

    name: str
    entry: Entry
    found: Found

    @property
    def contract(self) -> Contract[Any]:
        return CONTRACTS[self.name]

    def values(self, condition: str, measure: str) -> list[float]:
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
        return self.attacked(LABELS), self.attacked(CHANCE)

    @property
    def rebuilt(self) -> float:
        """The server's error over that of the mean row: 1 means that it learned nothing."""
        return self.attacked(REBUILT)

    @property
    def rebuilt_share(self) -> float:
        """Share of the columns' variance that the server reconstructs; NaN where no message has a line per row."""
        return math.nan if math.isnan(self.rebuilt) else max(0.0, 1 - self.rebuilt)
