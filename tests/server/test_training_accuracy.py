"""Share of a batch's rows that is right as they are trained on."""

from __future__ import annotations

from pathlib import Path

import torch
from torch.nn.functional import one_hot

from colonnade.common.config.privacy import LabelPrivacyConfig
from colonnade.common.contracts.schedule import Schedule
from colonnade.common.conversation.responses import Responses
from colonnade.common.data.sources import load_labels
from colonnade.common.messaging.message import Message
from colonnade.common.observability.telemetry import Event, Telemetry
from colonnade.common.privacy.labels import NoisyLabels
from colonnade.server.training.context import ServerContext
from colonnade_lab.papers.measures import known_measure, unit
from colonnade_lab.papers.running import Course
from tests.support.federation import config

BATCH = torch.arange(8)


def context(told: list[Event]) -> ServerContext:
    cfg = config({"name": "split"}, "federation.parties=[ada, bob]", "federation.rounds=5", "federation.epochs=0")
    assert cfg.server is not None
    labels = load_labels(cfg.server.labels, Path())
    schedule = Schedule(cfg.federation, len(labels.values), 0)
    return ServerContext(cfg.federation, cfg.server, labels.values, schedule, Telemetry(None, told.append))


def train(ctx: ServerContext, round: int, wrong: int) -> None:
    """A round in which so many rows of the batch are wrong."""
    logits = one_hot(ctx.labels[BATCH], 10).float()
    logits[:wrong] = logits[:wrong].roll(1, dims=1)
    ctx.targets(BATCH, logits)
    ctx.record(round, 1.0, Responses[Message]({}, (), 0.0))


def test_a_round_tells_the_share_that_was_right() -> None:
    told: list[Event] = []
    ctx = context(told)
    train(ctx, 1, 2)
    train(ctx, 2, 8)
    ctx.record(3, 1.0, Responses[Message]({}, (), 0.0))  # nothing was trained: the last share is not told again
    assert [event.get("right") for event in told if event["kind"] == "round"] == [0.75, 0.0, None]


def test_protected_labels_are_not_compared() -> None:
    """The share would be of the labels themselves."""
    told: list[Event] = []
    ctx = context(told)
    labels = ctx.labels[ctx.schedule.partition.train]
    ctx.protect(NoisyLabels.draw(labels, 10, LabelPrivacyConfig(epsilon=1.0, seeded=True), 0))
    ctx.targets(BATCH, torch.zeros(len(BATCH), 10))
    ctx.record(1, 1.0, Responses[Message]({}, (), 0.0))
    assert "right" not in next(event for event in told if event["kind"] == "round")


def test_a_record_has_the_mean_of_the_last_epoch() -> None:
    course = Course()
    assert course.training is None
    for epoch, right in ((0.5, 0.1), (1.0, 0.2), (1.5, 0.4), (2.0, 0.8)):
        course({"kind": "round", "epoch": epoch, "bytes_up": 1, "bytes_down": 1, "right": right, "time": 0.0})
    assert course.training == 0.6
    assert known_measure("training") == "training" and unit("training") == "%"
