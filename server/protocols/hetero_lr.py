"""Linear and logistic regression, server side. The box: common/protocols/hetero_lr.py."""

from __future__ import annotations

from operator import attrgetter

import torch

from colonnade.common.contracts.boosting import ROWS
from colonnade.common.conversation.conversation import Cohort
from colonnade.common.errors import InputError
from colonnade.common.protocols.hetero_lr import WEIGHT, Config, Direction, Products, Step, lines_of
from colonnade.server.aggregation.masked_sums import blinded
from colonnade.server.aggregation.sums import Clear
from colonnade.server.training.context import ServerContext
from colonnade.server.training.evaluation import evaluate_alone
from colonnade.server.training.imputation import StandIn
from colonnade.server.training.regression import Regression
from colonnade.server.training.sums.returned import ReturnedSums
from colonnade.server.training.trees.score_sum import ScoreSum


async def serve(ctx: ServerContext, clients: Cohort, cfg: Config) -> None:
    """Returns X' r to the columns' owners, and finds the direction and the length of every step."""
    model, names = Regression(ctx, cfg), tuple(clients)
    width, rows = model.width, torch.arange(len(ctx.labels))
    if len(rows) > (most := ROWS // width):
        raise InputError(f"{len(rows)} rows of {width} logits: at most {most}")
    if cfg.aggregate == "clear" or len(names) == 1:
        ctx.warn("LOGITS IN THE CLEAR: the server sees what each party's columns add to the logits of every row")
    returned = ReturnedSums(ctx, clients, weight=WEIGHT)
    clear = Clear(ctx, clients, Products, Products, attrgetter("o"), StandIn(ctx, names, width, "zero"), scores=width)
    sums = clear if cfg.aggregate == "clear" else await blinded(ctx, clients, width)
    opened = False
    async for t in clients.rounds(ctx.schedule.rounds, after=ctx.round):
        if not opened:
            await returned.open(t)
            opened = True
        loss = model.loss()
        await returned.give(t, *model.residuals(returned.bits))  # 1 to 3
        found = await sums.training(t, torch.arange(lines_of(model.vectors**2, width)))  # 4
        if found.total is None or len(found.answers) < len(names):  # a step needs every party
            ctx.skip(t, found.answers)
            continue
        coefficients = model.turn(found.total.double().numpy().ravel())
        if coefficients is not None:
            await clients.broadcast(Direction(t, model.steps, torch.from_numpy(coefficients)))  # 5
            found = await sums.more(t, 1, len(rows) + 1, found.answers)  # 6
            if found.total is None:
                ctx.skip(t, found.answers)
                continue
            step = model.step(found.total.double().numpy(), coefficients)
            await clients.broadcast(Step(t, torch.tensor(step, dtype=torch.float64)))  # 7
        ctx.record(t, loss, found.answers)
        evaluate_alone(ctx, t, model.logits)


def joint(ctx: ServerContext, _cfg: Config) -> ScoreSum:
    """The sum of the logits, and of the intercepts."""
    return ScoreSum(ctx)
