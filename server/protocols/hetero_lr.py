"""Linear and logistic regression, server side. The box: common/protocols/hetero_lr.py."""

from __future__ import annotations

from colonnade.common.conversation.conversation import Cohort
from colonnade.common.protocols.hetero_lr import WEIGHT, Config
from colonnade.server.regression.steps import AllSteps
from colonnade.server.training.context import ServerContext
from colonnade.server.training.regression import Regression
from colonnade.server.training.trees.score_sum import ScoreSum


async def serve(ctx: ServerContext, clients: Cohort, cfg: Config) -> None:
    """Returns X' r to the columns' owners, and finds the direction and the length of every step."""
    steps = await AllSteps.begin(ctx, clients, cfg, Regression(ctx, cfg), WEIGHT)
    async for t in clients.rounds(ctx.schedule.rounds, after=ctx.round):
        await steps.round(t)


def joint(ctx: ServerContext, _cfg: Config) -> ScoreSum:
    """The sum of the logits, and of the intercepts."""
    return ScoreSum(ctx)
