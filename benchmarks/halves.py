"""Split learning between two parties and a server, the task on which other systems were measured.

docs/results/performance.md has their figures; the reference is the same model trained in one process.
"""

from __future__ import annotations

import time
from pathlib import Path

import psutil
import torch

from benchmarks.floors import joint_step
from benchmarks.report import Figure, median, percentile
from benchmarks.runs import ROOT, run
from colonnade.common.config.data.columns import PartyIndex
from colonnade.common.contracts.schedule import Schedule
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.data.columns.scale import Scaler
from colonnade.common.data.draws import own_draws
from colonnade.common.data.sources import load_features, load_labels
from colonnade.common.models.build import bottom_model, build_head
from colonnade.common.parsing.file import load

EXPERIMENT = "split/fashion_halves.yaml"


def main() -> list[Figure]:
    """Steps, bytes on loopback, start-up, and the losses against one process."""
    before = loopback_bytes()
    training = run(EXPERIMENT, "federation.public_start=true")
    sent = loopback_bytes() - before
    rounds, evaluation = training.rounds(), 10_000 * 256 * 4
    times = [1e3 * event["seconds"] for event in rounds[5:]]
    joint, seconds = joint_losses(len(rounds))
    alone = 1e3 * median(seconds[5:])
    worst = max(abs(event["loss"] - other) for event, other in zip(rounds, joint, strict=True))
    return [
        Figure("two-party split step, median", median(times), 2.5, "ms", alone, "the same in one process"),
        Figure("two-party split step, median", median(times), 4.0, "ms"),
        Figure("two-party split step, 95th percentile", percentile(times, 0.95), 6.0, "ms"),
        Figure("two-party split step, bytes on loopback", (sent - evaluation) / len(rounds) / 1e3, 530, "kB"),
        Figure("launch to first step", training.summary["seconds_to_first_round"], 5.0, "s"),
        Figure("largest difference of a loss from one process", worst, 1e-5, ""),
    ]


def joint_losses(steps: int) -> tuple[list[float], list[float]]:
    """The same model, rows and steps in this process on one thread: losses, and seconds a step."""
    torch.set_num_threads(1)
    config = load(ROOT / "experiments" / EXPERIMENT)
    federation = config.federation
    assert config.server is not None
    labels = load_labels(config.server.labels, Path())
    schedule = Schedule(federation, len(labels.values), labels.official_test)
    parts, bottoms = [], []
    for index, (name, party) in enumerate(config.parties.items()):
        raw = load_features(party.data, PartyIndex(index, 2), Path()).values
        parts.append(Scaler.fit(party.data.scale, raw, schedule.partition.train).apply(raw))
        start = own_draws(federation, name).generator("model")
        bottoms.append(bottom_model(f"parties.{name}", party.model, tuple(raw.shape[1:]), 128, start, Path()))
    head = build_head(config.server.head, 256, 10, own_draws(federation, SERVER).generator("head"))
    optimiser = torch.optim.SGD([p for m in (*bottoms, head) for p in m.parameters()], lr=0.05)
    step, found, seconds = joint_step(bottoms, head, [optimiser]), [], []
    for t in range(1, steps + 1):
        begin = time.perf_counter()
        rows = schedule.batch(t)
        found.append(step([part[rows] for part in parts], labels.values[rows]).item())
        seconds.append(time.perf_counter() - begin)
    return found, seconds


def loopback_bytes() -> int:
    """Bytes that this machine has sent to itself, including TCP and IP headers."""
    return psutil.net_io_counters(pernic=True)["lo"].bytes_sent
