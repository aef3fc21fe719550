"""Steps of a regression, server side. The box: common/protocols/hetero_lr.py."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from operator import attrgetter

import torch

from colonnade.common.contracts.boosting import ROWS
from colonnade.common.contracts.regression import Direction, Products, RegressionConfig, Step, lines_of
from colonnade.common.conversation.conversation import Cohort
from colonnade.common.errors import InputError
from colonnade.server.aggregation.masked_sums import blinded
from colonnade.server.aggregation.sums import Clear, Sums
from colonnade.server.training.context import ServerContext
from colonnade.server.training.evaluation import evaluate_alone
from colonnade.server.training.imputation import StandIn
from colonnade.server.training.regression import Regression
from colonnade.server.training.sums import ReturnedSums


class AllSteps:
    """One session's steps.

    Args:
        weight: the largest magnitude of an entry of the parties' matrices.
    """

    def __init__(self, ctx: ServerContext, clients: Cohort, model: Regression, sums: Sums, weight: int) -> None:
        self._ctx, self._clients, self._model, self._sums, self._weight = ctx, clients, model, sums, weight
        self.at_end: Callable[[int], Awaitable[None]] | None = None  # in the round in which the run has converged
        cards = ctx.federation.protocol.cards  # whose bins were counted, and told of, before their steps
        self._returned, self._opened = ReturnedSums(ctx, clients, weight=weight, told=cards), 0  # round

    @classmethod
    async def begin(
        cls, ctx: ServerContext, clients: Cohort, cfg: RegressionConfig, model: Regression, weight: int = 1
    ) -> AllSteps:
        """After the parties' key agreement if sums are blinded. Raises InputError if there are too many rows."""
        names, width, rows = tuple(clients), model.width, len(ctx.labels)
        if rows > (most := ROWS // width):
            raise InputError(f"{rows} rows of {width} logits: at most {most}")
        if cfg.aggregate == "clear" or len(names) == 1:
            ctx.warn("LOGITS IN THE CLEAR: the server sees what each party's columns add to the logits of every row")
        stand_in = StandIn(ctx, names, width, "zero")
        clear = Clear(ctx, clients, Products, Products, attrgetter("o"), stand_in, scores=width)
        sums = clear if cfg.aggregate == "clear" else await blinded(ctx, clients, width)
        return cls(ctx, clients, model, sums, weight)

    async def give_errors(self, level: int, t: int) -> None:
        """Tells the parties by a direction of zeros that the run has converged, and returns sums of the loss's second
        derivatives over other matrices of theirs.
        """
        await self._clients.broadcast(Direction(t, self._model.steps, torch.zeros(self._model.vectors).double()))
        returned = ReturnedSums(self._ctx, self._clients, weight=self._weight, told=True)
        await returned.open(t)
        await returned.give(t, *self._model.curvatures(returned.bits), level=level)

    async def round(self, t: int) -> None:
        """Returns X' r to the columns' owners, and finds the direction and the length of a step."""
        ctx, clients, model, sums = self._ctx, self._clients, self._model, self._sums
        if not self._opened:
            await self._returned.open(t)
            self._opened = t
        loss = model.loss()
        await self._returned.give(t, *model.residuals(self._returned.bits))  # 1 to 3
        found = await sums.training(t, torch.arange(lines_of(model.vectors**2, model.width)))  # 4
        if found.total is None or len(found.answers) < len(ctx.federation.names):  # a step needs every party
            ctx.skip(t, found.answers)
            return
        coefficients = model.turn(found.total.double().numpy().ravel())
        if coefficients is not None:
            await clients.broadcast(Direction(t, model.steps, torch.from_numpy(coefficients)))  # 5
            found = await sums.more(t, 1, len(ctx.labels) + 1, found.answers)  # 6
            if found.total is None:
                ctx.skip(t, found.answers)
                return
            step = model.step(found.total.double().numpy(), coefficients)
            await clients.broadcast(Step(t, torch.tensor(step, dtype=torch.float64)))  # 7
        elif self.at_end is None:
            model.converge()
        elif t > self._opened:  # another session of sums cannot open in the same round
            await self.at_end(t)
            model.converge()
        ctx.record(t, loss, found.answers)
        evaluate_alone(ctx, t, model.logits)
