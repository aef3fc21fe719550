"""SecureBoost, server side. The box: common/protocols/secureboost.py."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from colonnade.common.contracts.boosting import scores_of
from colonnade.common.conversation.conversation import Cohort
from colonnade.common.data.rows import generator
from colonnade.common.errors import ContractError
from colonnade.common.protocols.secureboost import Config, levels, vectors_in
from colonnade.server.training.context import ServerContext
from colonnade.server.training.evaluation import evaluate_alone
from colonnade.server.training.trees.forest import Forest
from colonnade.server.training.trees.gradients import TreeObjective
from colonnade.server.training.trees.grower import Grower, Inconsistent
from colonnade.server.training.trees.splits import PartyColumns, Rules
from colonnade.server.training.trees.sums import TreeAbandoned, TreeSums

_DEEP = 6


async def serve(ctx: ServerContext, clients: Cohort, cfg: Config) -> None:
    """Grows a tree in every round, or one for every class."""
    if cfg.gradients == "clear":
        ctx.warn("GRADIENTS IN THE CLEAR: every party is sent those of all training rows, and the rows of every node")
    forest, objective, names = _forest(ctx), TreeObjective(ctx), tuple(clients)
    exchange = TreeSums(ctx, clients, cfg, forest)
    bits = cfg.bits_of(exchange.size)
    if cfg.gradients == "encrypted" and cfg.depth > _DEEP:
        mb = math.ceil(8 * vectors_in(ctx.federation, cfg) * len(objective.rows) / 2**20)
        ctx.warn(f"depth {cfg.depth}: a round takes up to {mb} MB to every party, twice as much with every level")
    start: Tensor = ctx.state.keep("start", lambda: torch.from_numpy(objective.start()))
    scores, train, grower = forest.scores(start.numpy()), ctx.schedule.partition.train.cpu().numpy(), None
    async for t in clients.rounds(ctx.schedule.rounds, after=ctx.round):
        if grower is None:
            await exchange.open(t)  # 1, 2
            columns = [PartyColumns(each) for each in exchange.columns]
            rules, best_first = Rules(cfg.l2, cfg.gamma, cfg.min_hessian), cfg.grow == "best"
            grower = Grower(columns, rules, levels(cfg), cfg.rate, best_first, cfg.noise * 2**bits)
        try:
            trees = await grower.grow(
                forest, objective.gradients(scores[train], bits, fixed=cfg.noise > 0),
                partial(exchange.sums, t), partial(exchange.sides, t),
                _sampled(ctx, cfg, t), _allowed(ctx, cfg, t, grower.columns),
            )  # fmt: skip
        except TreeAbandoned:
            ctx.skip(t, exchange.last)
            continue
        except Inconsistent as found:
            raise ContractError(names[found.party], found.kind, "", found.expected, found.got) from None
        loss = objective.loss(scores[train])
        for tree in trees:
            scores[:, tree.output] += forest.values(tree)
        forest.trees += trees
        ctx.record(t, loss, exchange.last)
        evaluate_alone(ctx, t, lambda rows: objective.logits(scores[rows.cpu().numpy()]))


class ForestJoint:
    """The forest of the state, asked about rows of which the parties say on which side of their splits they are."""

    def __init__(self, ctx: ServerContext) -> None:
        self.forest, self._objective = _forest(ctx), TreeObjective(ctx)
        self.start = ctx.state.keep("start", lambda: torch.zeros(scores_of(ctx.federation), dtype=torch.float64))

    def of_sides(self, sides: Sequence[Tensor]) -> Tensor:
        """Packed sides in roster order, uint8 (rows, bytes) each -> logits (rows, outputs)."""
        left = [np.unpackbits(part.numpy(), axis=1).astype(bool) for part in sides]
        scores = np.tile(self.start.numpy(), (len(sides[0]), 1))
        for tree in self.forest.trees:
            scores[:, tree.output] += tree.apply(lambda party, record: left[party][:, record], len(scores))
        return self._objective.logits(scores)

    def bytes_of(self) -> list[int]:
        """Bytes of a row's sides, by party."""
        return [-(-len(records) // 8) for records in self.forest.records]


def forest(ctx: ServerContext, _cfg: Config) -> ForestJoint:
    """The forest of the state."""
    return ForestJoint(ctx)


def _forest(ctx: ServerContext) -> Forest:
    return ctx.state.keep("forest", lambda: Forest(len(ctx.federation.names), len(ctx.labels)))


def _sampled(ctx: ServerContext, cfg: Config, round: int) -> NDArray[np.bool_] | None:
    """The training rows of a tree, drawn uniformly: a sample by gradients would name the rows of the rarer class."""
    if cfg.rows == 1:
        return None
    draw = torch.rand(
        len(ctx.schedule.partition.train), generator=generator("rows of a tree", ctx.federation.seed, round)
    )
    return (draw < cfg.rows).numpy()


def _allowed(
    ctx: ServerContext, cfg: Config, round: int, columns: Sequence[PartyColumns]
) -> list[NDArray[np.bool_]] | None:
    """The columns of a tree, a share of all parties' at once, by party."""
    if cfg.columns == 1:
        return None
    ends = np.cumsum([len(party.columns) for party in columns])
    order = torch.randperm(int(ends[-1]), generator=generator("columns of a tree", ctx.federation.seed, round)).numpy()
    allowed = np.zeros(int(ends[-1]), bool)
    allowed[order[: math.ceil(cfg.columns * len(allowed))]] = True
    return np.split(allowed, ends[:-1])
