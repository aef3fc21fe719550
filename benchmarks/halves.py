"""Split learning between two parties and a server, the task on which other systems were measured.

docs/results/performance.md has their figures; the reference is the same model trained in one process.
"""

from __future__ import annotations

import time
from pathlib import Path

import torch
from torch import nn

from benchmarks.report import Figure, median, percentile
from benchmarks.runs import ROOT, Run, run
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
    times = [1e3 * event["seconds"] for event in training.rounds()[5:]]
    steps = len(training.rounds())
    evaluation = 10_000 * 256 * 4
    joint, alone = joint_losses(steps)
    worst = max(abs(a - b) for a, b in zip(losses(training), joint, strict=True))
    alone = [1e3 * seconds for seconds in alone[5:]]
    return [
        Figure("two-party split step, median", median(times), 2.5, "ms", median(alone), "the same in one process"),
        Figure("two-party split step, median", median(times), 4.0, "ms"),
        Figure("two-party split step, 95th percentile", percentile(times, 0.95), 6.0, "ms"),
        Figure("two-party split step, bytes on loopback", (sent - evaluation) / steps / 1e3, 530, "kB"),
        Figure("launch to first step", training.summary["seconds_to_first_round"], 5.0, "s"),
        Figure("largest difference of a loss from one process", worst, 1e-5, ""),
    ]


def losses(training: Run) -> list[float]:
    return [event["loss"] for event in training.rounds()]


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
    found, seconds = [], []
    for t in range(1, steps + 1):
        begin = time.perf_counter()
        rows = schedule.batch(t)
        h = torch.cat([bottom(part[rows]) for bottom, part in zip(bottoms, parts, strict=True)], 1)
        loss = nn.functional.cross_entropy(head(h), labels.values[rows])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        found.append(loss.item())
        seconds.append(time.perf_counter() - begin)
    return found, seconds


def loopback_bytes() -> int:
    """Bytes that this machine has sent to itself, including TCP and IP headers."""
    for line in Path("/proc/net/dev").read_text(encoding="utf-8").splitlines():
        name, _, counters = line.partition(":")
        if name.strip() == "lo":
            return int(counters.split()[8])
    return 0
