"""Linear and logistic regression, server side. The box: common/protocols/hetero_lr.py."""

from __future__ import annotations

from functools import partial

from colonnade.common.conversation.conversation import Cohort
from colonnade.common.protocols.hetero_lr import ERRORS, WEIGHT, Config
from colonnade.server.regression import AllSteps, Regression
from colonnade.server.training.context import ServerContext
from colonnade.server.training.trees.gradients import ScoreSum


async def serve(ctx: ServerContext, clients: Cohort, cfg: Config) -> None:
    """Returns X' r to the columns' owners, and finds the direction and the length of every step."""
    model = Regression(ctx, cfg)
    steps = await AllSteps.begin(ctx, clients, cfg, model, WEIGHT)
    if cfg.errors:
        steps.at_end = partial(steps.give_errors, ERRORS)
    async for t in clients.rounds(ctx.schedule.rounds, after=ctx.round):
        await steps.round(t)
        if cfg.errors and t == ctx.schedule.rounds and not model.converged:
            ctx.warn(f"no standard errors: the run has not converged in {t} rounds")


def joint(ctx: ServerContext, _cfg: Config) -> ScoreSum:
    """The sum of the logits, and of the intercepts."""
    return ScoreSum(ctx)
