"""Runs of the comparison, and attacks on some: how many labels a party infers and what the server reconstructs."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import torch

from colonnade.common.parsing.file import load
from colonnade.common.version import VERSION
from colonnade.simulation.folder import simulate_captured
from colonnade_lab.attacks import inversion, labels
from colonnade_lab.attacks.run import AttackedRun, open_run
from colonnade_lab.comparison.plan import ATTACKED
from colonnade_lab.papers import running
from colonnade_lab.papers.measures import RunRecord
from colonnade_lab.papers.running import Job

VICTIM = "party2"
"""Its columns are in the middle of the images, where there is something to see."""

LABELS, CHANCE, REBUILT, READ, READ_CHANCE = "labels", "labels_chance", "rebuilt", "readable", "readable_chance"
"""Stored measures, as shares, where messages name rows; REBUILT is the mean squared error over that of the mean row."""

_KNOWN, _EPOCHS = 0.2, 1


def perform(job: Job) -> RunRecord:
    """Runs a job to its end, or attacks it if its condition asks for that."""
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
