"""Additive models, server side. The box: common/protocols/additive.py."""

from __future__ import annotations

from functools import partial
from operator import attrgetter

import numpy as np
import torch
from torch import Tensor

from colonnade.common.contracts.boosting import ROWS, scores_of
from colonnade.common.conversation.conversation import Cohort
from colonnade.common.errors import InputError
from colonnade.common.protocols.additive import Change, Config, Counted
from colonnade.server.aggregation.masked_sums import Clear, blinded
from colonnade.server.training.context import ServerContext
from colonnade.server.training.evaluation import evaluate_alone
from colonnade.server.training.imputation import StandIn
from colonnade.server.training.sums import ReturnedSums
from colonnade.server.training.trees.gradients import ScoreSum, TreeObjective

_SHORTER = 0.5  # factor of the steps after a round in which the loss has risen
_ROUNDING = 1e-6  # of the loss, which is computed in float32


async def serve(ctx: ServerContext, clients: Cohort, cfg: Config) -> None:
    """Returns sums of gradients to the owners of the bins, and adds up the changes of the scores."""
    rows, width, names = torch.arange(len(ctx.labels)), scores_of(ctx.federation), tuple(clients)
    if len(rows) > (most := ROWS // width):
        raise InputError(f"{len(rows)} rows of {width} scores in an additive model: at most {most}")
    _warn(ctx, cfg)
    objective, bits = TreeObjective(ctx), None if cfg.precision == "auto" else cfg.precision
    returned = ReturnedSums(ctx, clients, encrypted=cfg.gradients == "encrypted", bits=bits)
    start: Tensor = ctx.state.keep("start", lambda: torch.from_numpy(objective.start()))
    added: Tensor = ctx.state.keep("scores", lambda: torch.zeros(len(rows), width, dtype=torch.float64))
    counted: Tensor = ctx.state.keep("counted", lambda: torch.zeros(len(names), dtype=torch.int64))
    rate = ctx.state.keep("rate", lambda: {"now": cfg.rate})
    clear = Clear(ctx, clients, Change, Change, attrgetter("d"), StandIn(ctx, names, width, "zero"), scores=width)
    sums = clear if cfg.aggregate == "clear" else await blinded(ctx, clients, width)
    train, opened = ctx.schedule.partition.train.cpu().numpy(), False
    async for t in clients.rounds(ctx.schedule.rounds, after=ctx.round):
        if not opened:
            await returned.open(t)  # 1, 2
            opened = True
        scores = (start + added).numpy()
        gradients, before = objective.gradients(scores[train], returned.bits), objective.loss(scores[train])
        vectors = np.concatenate([gradients.first, gradients.second], axis=1)
        units = np.concatenate([gradients.step, gradients.second_step])
        await returned.give(t, vectors, units, rate["now"])  # 3 to 5
        found = await sums.training(t, rows)  # 6, 7
        if found.total is not None:
            moved = scores[train] + found.total.double().numpy()[train]
            if objective.loss(moved) > before + _ROUNDING * abs(before):
                rate["now"] *= _SHORTER
            else:
                added += found.total.double()
                counted[[names.index(party) for party in found.answers]] = t
        await clients.broadcast(Counted(t, counted.clone()))  # 8
        if found.total is None:
            ctx.skip(t, found.answers)
            continue
        ctx.record(t, before, found.answers)
        evaluate_alone(ctx, t, partial(_logits, objective, start + added))


def _logits(objective: TreeObjective, scores: Tensor, rows: Tensor) -> Tensor:
    return objective.logits(scores[rows.cpu()].numpy())


def joint(ctx: ServerContext, _cfg: Config) -> ScoreSum:
    """The sum of the scores."""
    return ScoreSum(ctx)


def _warn(ctx: ServerContext, cfg: Config) -> None:
    if cfg.gradients == "clear":
        ctx.warn("GRADIENTS IN THE CLEAR: every party is sent those of all training rows")
    if cfg.aggregate == "clear" or len(ctx.federation.names) == 1:
        ctx.warn("SCORES IN THE CLEAR: the server sees what each party's columns add to the score of every row")
