"""Linear and logistic regression, party side. The box: common/protocols/hetero_lr.py."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from colonnade.client.aggregation.masked_sums import terms
from colonnade.client.training.context import ClientContext
from colonnade.client.training.linear.columns import LinearColumns
from colonnade.client.training.linear.design import STEP, Floats
from colonnade.client.training.local import Local
from colonnade.client.training.sums.returned import OwnSums
from colonnade.common.aggregation.subject import TRAINING, subject
from colonnade.common.contracts.boosting import scores_of
from colonnade.common.conversation.conversation import SERVER, Link
from colonnade.common.data.columns.scale import Columns
from colonnade.common.errors import ContractError
from colonnade.common.models.vector_free import Share
from colonnade.common.protocols.hetero_lr import (
    CURVATURE,
    WEIGHT,
    Config,
    Direction,
    Products,
    Step,
    lines_of,
    scale_of,
)


async def participate(ctx: ClientContext, server: Link, cfg: Config) -> None:
    """Keeps the coefficients of its columns, which follow the directions and steps of the server."""
    columns, width, scale = _columns(ctx, cfg), scores_of(ctx.federation), scale_of(ctx.federation)
    share, made = _share(ctx, cfg, columns, width), ctx.state.keep("steps", lambda: {"made": 0})
    design = columns.design()
    asked = OwnSums(ctx, server, design, weight=WEIGHT)
    vectors = ctx.answers("vectors", ctx.schedule.rounds * 2 * width)
    own = await terms(
        ctx, server, cfg.aggregate, lambda t, o: Products(t, 0, o), lambda t, _part, stage, o: Products(t, stage, o)
    )
    rows = torch.arange(len(ctx.features.values))
    async for t in server.rounds(after=ctx.round):
        if not await asked.open(t):
            continue
        vectors.take(2 * width)
        if (found := await asked.sums(t, 2 * width)) is None:  # 1 to 3
            continue
        both = found[0]
        gradient = columns.gradient(design, both[:, :width] + both[:, width:], share.at)
        products = share.products(gradient)
        if not await own.begin(t, subject(TRAINING, torch.arange(lines_of(products.size, width)))):
            continue
        await own.train(t, ctx.release(_lines(products, width)))  # 4
        direction = await server.recv(Direction, t, memory=len(products))  # 5
        if direction is None:
            continue
        if direction.steps != made["made"]:
            raise ContractError(SERVER, "Direction", "steps", str(made["made"]), str(direction.steps))
        turned = columns.coefficients(share.turn(direction.coefficients.numpy()))
        added = LinearModel(columns, turned).of_rows(ctx.features, rows)
        penalty = torch.full((1, width), float(columns.penalty * (turned**2).sum()))
        logits = torch.cat([added * scale, penalty])
        about = subject(TRAINING, rows, "direction", direction.steps)
        await own.more(t, 1, about, ctx.release(logits))  # 6
        step = await server.recv(Step, t, two=2)  # 7
        if step is None:
            continue
        length, unit = step.step.tolist()
        if not (0 < length < math.inf and 0 < unit < math.inf):
            raise ContractError(SERVER, "Step", "step", "numbers above 0", f"{length:g}, {unit:g}")
        share.step(length, unit)
        made["made"] += 1


class LinearModel(Local):
    """A party's logits by its coefficients of the encoded columns, float64 (columns, logits)."""

    def __init__(self, columns: LinearColumns, coefficients: Floats) -> None:
        super().__init__(LinearPart(columns.digits, columns.mean, coefficients))
        self.coefficients, self._mean = coefficients, columns.mean

    def of_rows(self, features: Columns, rows: Tensor) -> Tensor:
        """As `Local.of_rows`, on the CPU: in double precision, and the same wherever a party computes."""
        found: Tensor = self(features[rows].cpu())
        return found

    def record(self) -> dict[str, Any]:
        """Coefficients of the encoded columns, a list of one for each logit, and the means that are taken off first."""
        return {"coefficients": self.coefficients.tolist(), "means": self._mean.tolist()}


class LinearPart(nn.Module):
    """(X - mean) B in double precision, with the columns of digits rounded as in training."""

    def __init__(self, digits: NDArray[np.bool_], mean: Floats, coefficients: Floats) -> None:
        super().__init__()
        self.digits, self.mean, self.coefficients = (
            nn.Buffer(torch.from_numpy(each)) for each in (digits, mean, coefficients)
        )

    def forward(self, x: Tensor) -> Tensor:
        """(rows, ...) -> float32 (rows, logits)."""
        x = x.flatten(1).double()
        x = torch.where(self.digits, torch.round(x / STEP) * STEP, x)
        return ((x - self.mean) @ self.coefficients).float()


def model_of(ctx: ClientContext) -> LinearModel:
    """The party's part of the model, by its state."""
    cfg = ctx.federation.protocol
    assert isinstance(cfg, Config)  # asked of this protocol's runs alone
    return local(ctx, cfg)


def local(ctx: ClientContext, cfg: Config) -> LinearModel:
    """The coefficients of the state."""
    columns, width = _columns(ctx, cfg), scores_of(ctx.federation)
    return LinearModel(columns, columns.coefficients(_share(ctx, cfg, columns, width).at))


def _columns(ctx: ClientContext, cfg: Config) -> LinearColumns:
    return LinearColumns(ctx, 0.0 if cfg.c == "none" else 1 / cfg.c, CURVATURE[ctx.federation.task])


def _share(ctx: ClientContext, cfg: Config, columns: LinearColumns, width: int) -> Share:
    start = np.zeros((columns.count, width))
    return ctx.state.keep("coefficients", lambda: Share(start, cfg.memory, len(ctx.schedule.partition.train) ** -0.5))


def _lines(products: Floats, width: int) -> Tensor:
    padded = np.zeros(lines_of(products.size, width) * width, np.float32)
    padded[: products.size] = products.ravel()
    return torch.from_numpy(padded.reshape(-1, width))
