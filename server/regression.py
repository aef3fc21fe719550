"""A regression's L-BFGS, server side: the loss, the intercepts, directions, lengths of steps, and their exchange.

The box: common/protocols/hetero_lr.py.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from operator import attrgetter

import numpy as np
import torch
from torch import Tensor

from colonnade.common.contracts.boosting import ROWS, scores_of
from colonnade.common.contracts.regression import (
    CURVATURE,
    Direction,
    Products,
    RegressionConfig,
    Step,
    lines_of,
    scale_of,
)
from colonnade.common.conversation.conversation import Cohort
from colonnade.common.errors import DataError, InputError
from colonnade.common.models.vector_free import Floats, Share, direction, minimum_along
from colonnade.server.aggregation.masked_sums import Clear, Sums, blinded
from colonnade.server.training.context import ServerContext
from colonnade.server.training.evaluation import evaluate_alone
from colonnade.server.training.imputation import StandIn
from colonnade.server.training.sums import ReturnedSums
from colonnade.server.training.trees.gradients import TreeObjective, steps_of
from colonnade.server.training.trees.splits import Whole

_SEPARATED = 1e-6  # loss of a row that only separated classes reach


class Regression:
    """Keeps everything that outlives a round in the context's state."""

    def __init__(self, ctx: ServerContext, cfg: RegressionConfig) -> None:
        self._ctx, self._objective, self.width = ctx, TreeObjective(ctx), scores_of(ctx.federation)
        self._train, self._cfg = ctx.schedule.partition.train.cpu().numpy(), cfg
        self._scale, count = scale_of(ctx.federation), len(self._train)
        self._root = math.sqrt(CURVATURE[ctx.federation.task] * count)  # coordinates of intercepts, as of coefficients
        self._start: Tensor = ctx.state.keep("start", lambda: torch.from_numpy(self._objective.start()))
        zeros = lambda: torch.zeros(len(ctx.labels), self.width, dtype=torch.float64)  # noqa: E731
        self._added: Tensor = ctx.state.keep("scores", zeros)
        self._share = ctx.state.keep("intercepts", lambda: Share(np.zeros(self.width), cfg.memory, count**-0.5))
        self._at = ctx.state.keep("steps", lambda: {"made": 0, "converged": 0})
        self._end()

    @property
    def steps(self) -> int:
        return int(self._at["made"])

    @property
    def converged(self) -> bool:
        """True after the round in which the next step promised less than the tolerance."""
        return bool(self._at["converged"])

    def converge(self) -> None:
        """Ends the run with this round."""
        self._at["converged"] = self._ctx.round + 1
        self._end()

    @property
    def vectors(self) -> int:
        """Number of vectors whose scalar products determine the next direction."""
        return 2 * min(self.steps, self._cfg.memory) + 1

    def loss(self) -> float:
        """Mean loss of the training rows, without the penalty."""
        return self._objective.loss(self._scores())

    def logits(self, rows: Tensor) -> Tensor:
        """Logits of these rows, int64 (rows,), as `TreeObjective.logits`."""
        rows = rows.cpu()
        return self._objective.logits((self._start + self._added[rows]).numpy())

    def residuals(self, bits: int) -> tuple[Whole, Floats]:
        """Derivatives of the loss at the training rows, each split into two parts of `bits` bits.

        Returns int64 (rows, 2 width), the upper parts first, and the unit of each column.
        """
        self._first, self._second = self._objective.derivatives(self._scores())
        return _in_parts(self._first, bits)

    def curvatures(self, bits: int) -> tuple[Whole, Floats]:
        """Second derivatives at the training rows, in the form of `residuals`."""
        return _in_parts(self._second, bits)

    def turn(self, products: Floats) -> Floats | None:
        """Coefficients of the next direction, of length 1, from the summed products; None at the minimum.

        Raises InputError if the sums were clipped.
        """
        count = self.vectors
        joined = products[: count**2].reshape(count, count)
        joined = (joined + joined.T) / 2 + self._share.products(self._first.sum(axis=0) / self._root)
        largest = joined.diagonal().max()  # no product is larger than those on the diagonal
        if self._cfg.aggregate == "blinded" and largest >= self._ctx.federation.blinding.bound:
            raise InputError(
                f"a sum of squares of {largest:.4g}: parts of it were clipped to federation.blinding.bound",
                hint="raise federation.blinding.bound, with federation.blinding.bits: 64",
            )
        found, unit = direction(joined), self._share.unit
        slope, self._length = joined[-1] @ found / unit**2, math.sqrt(max(float(found @ joined @ found), 0.0))
        if not slope < -2 * self._cfg.tolerance * len(self._train):
            return None
        found /= self._length
        self._slope, self._gradient = joined[-1] @ found / unit, math.sqrt(joined[-1, -1]) / unit
        return found

    def step(self, found: Floats, coefficients: Floats) -> tuple[float, float]:
        """Steps to the least loss along the direction: the step's length, and the next unit of gradients.

        `found` sums the parties' logits of the direction, with its penalty in the last line: float64 (rows + 1, width).
        Raises DataError if the loss has no minimum because a linear function of the columns separates the classes.
        """
        own = self._share.turn(coefficients) / self._root
        added, penalty = torch.from_numpy(found[:-1] / self._scale), float(found[-1, 0])
        z, dz = self._scores(), added.numpy()[self._train] + own
        penalty_slope = self._slope - float((self._first * dz).sum())

        def slope(place: float) -> float:
            first, _ = self._objective.derivatives(z + place * dz)
            return float((first * dz).sum() + penalty_slope + place * penalty)

        curved = float((self._second * dz**2).sum() + penalty)
        try:
            length = minimum_along(slope, -self._slope / curved if curved > 0 else 1.0)
        except ValueError:
            length = math.inf
        if not math.isfinite(length) or self._separated(z + length * dz):
            raise DataError(
                "the loss falls without end: a sum of columns separates the classes",
                hint="set federation.protocol.c, which penalises large coefficients",
                shared="the columns separate the classes: federation.protocol.c",
            )
        steep = self._objective.derivatives(z + length * dz)[1].max() / CURVATURE[self._ctx.federation.task]
        unit = 1 / max(length * max(1.0, float(steep)), self._gradient)  # no vector's product is much above 1
        self._share.step(length, unit)
        self._added += length * added
        self._start += length * torch.from_numpy(own)
        self._at["made"] += 1
        return length, unit

    def _separated(self, scores: Floats) -> bool:
        """True if the loss is so small that the columns must separate the classes; with a penalty a minimum exists
        anyway.
        """
        classes = self._ctx.federation.task == "classification" and self._cfg.c == "none"
        return classes and self._objective.loss(scores) < _SEPARATED

    def _end(self) -> None:
        """Ends the run: the next step promised less than the tolerance."""
        if converged := int(self._at["converged"]):
            self._ctx.schedule.end_at(converged)

    def _scores(self) -> Floats:
        return np.asarray((self._start + self._added).numpy()[self._train])


def _in_parts(numbers: Floats, bits: int) -> tuple[Whole, Floats]:
    unit = steps_of(numbers, bits)
    upper = np.rint(numbers / unit)
    lower = np.rint((numbers - upper * unit) / (unit * 2.0**-bits))
    return np.concatenate([upper, lower], axis=1).astype(np.int64), np.concatenate([unit, unit * 2.0**-bits])


class AllSteps:
    """One session's steps. `weight` is the largest magnitude of an entry of the parties' matrices."""

    def __init__(self, ctx: ServerContext, clients: Cohort, model: Regression, sums: Sums, weight: int) -> None:
        self._ctx, self._clients, self._model, self._sums, self._weight = ctx, clients, model, sums, weight
        self.at_end: Callable[[int], Awaitable[None]] | None = None  # in the round in which the run has converged
        cards = ctx.federation.protocol.cards  # whose bins were counted, and told of, before their steps
        self._returned, self._opened = ReturnedSums(ctx, clients, weight=weight, told=cards), 0  # round

    @classmethod
    async def begin(
        cls, ctx: ServerContext, clients: Cohort, cfg: RegressionConfig, model: Regression, weight: int = 1
    ) -> AllSteps:
        """Begins after the key agreement if sums are blinded. Raises InputError if there are too many rows."""
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
        """Signals convergence by a direction of zeros, and returns sums of the loss's second derivatives over the
        parties' matrices of column products.
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
