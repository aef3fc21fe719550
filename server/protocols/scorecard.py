"""Scorecards, server side. The box: common/protocols/scorecard.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch

from colonnade.common.conversation.conversation import Cohort
from colonnade.common.protocols.scorecard import Chosen, Config, InformationValues
from colonnade.server.regression import AllSteps, Regression
from colonnade.server.training.context import ServerContext
from colonnade.server.training.evaluation import evaluate_alone
from colonnade.server.training.sums import ReturnedSums
from colonnade.server.training.trees.gradients import ScoreSum

_MOST = 0.5  # share of bads above which classes are probably in the wrong order


async def serve(ctx: ServerContext, clients: Cohort, cfg: Config) -> None:
    """Has the parties count bads over their bins in the first round; then finds every step's direction and length."""
    bads = ctx.labels[ctx.schedule.partition.train].cpu().numpy()[:, None].astype(np.int64)
    if (share := bads.mean()) > _MOST:
        ctx.warn(
            f"{share:.0%} of the training rows are bads, of the class {ctx.classes[1]!r}: is the event the other? "
            "Name it as server.labels.positive then"
        )
    model, done = Regression(ctx, cfg), ctx.state.keep("bins", lambda: {"chosen": 0})
    steps = await AllSteps.begin(ctx, clients, cfg, model)
    counted: ReturnedSums | None = None
    async for t in clients.rounds(ctx.schedule.rounds, after=ctx.round):
        if done["chosen"]:
            await steps.round(t)
            continue
        if counted is None:
            counted = ReturnedSums(ctx, clients)
            await counted.open(t)
        answers = await counted.give(t, bads, np.ones(1))  # 1 to 3
        if len(answers) < len(ctx.federation.names):  # a card needs every party
            ctx.skip(t, answers)
            continue
        values = await clients.collect(InformationValues, t, replace(ctx.quorum, need=None))  # 4
        stays = _stays({name: value.iv.numpy() for name, value in values.items()}, cfg.top)
        if silent := [name for name, value in values.items() if cfg.top and not len(value.iv)]:
            ctx.warn(f"top = {cfg.top}: {', '.join(silent)} let no information value out: all of their columns stay")
        await clients.broadcast({name: Chosen(t, torch.from_numpy(each)) for name, each in stays.items()})  # 5
        done["chosen"] = t
        ctx.record(t, model.loss(), answers)
        evaluate_alone(ctx, t, model.logits)


def joint(ctx: ServerContext, _cfg: Config) -> ScoreSum:
    """The sum of the logits and the initial scores."""
    return ScoreSum(ctx)


def _stays(values: Mapping[str, np.ndarray], top: int | None) -> dict[str, np.ndarray]:
    """For each party 1 for columns that are among the `top` of all, or its best column."""
    joined = np.sort(np.concatenate(list(values.values())))[::-1]
    least = joined[top - 1] if top is not None and top < len(joined) else -np.inf
    return {
        name: ((each >= least) | (np.arange(len(each)) == (each.argmax() if len(each) else 0))).astype(np.uint8)
        for name, each in values.items()
    }
