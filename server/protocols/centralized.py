"""The reference on joined data, server side. The box: common/protocols/centralized.py."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from colonnade.common.conversation.conversation import Cohort
from colonnade.common.conversation.responses import Responses
from colonnade.common.errors import ContractError
from colonnade.common.models.optimiser import build_optimiser
from colonnade.common.protocols.centralized import Config, Evaluation, Features
from colonnade.server.training.context import ServerContext
from colonnade.server.training.evaluation import evaluate
from colonnade.server.training.fusion.heads import joint_head


async def serve(ctx: ServerContext, clients: Cohort, _cfg: Config) -> None:
    """Trains one model on the joined columns."""
    joined = Joined(ctx, tuple(clients))
    if joined.columns:  # the run is resumed
        _learner(ctx, joined.columns)

    def predict(responses: Responses[Evaluation], block: Tensor) -> Tensor:
        by_party = {party: response.x for party, response in responses.items()}
        joined.learn("Evaluation", by_party)
        model, _ = _learner(ctx, joined.columns)
        model.eval()
        logits: Tensor = model(joined.join(by_party, len(block)).to(ctx.device))
        model.train()
        return logits

    async for t in clients.rounds(ctx.schedule.rounds, after=ctx.round):
        batch = ctx.schedule.batch(t)
        responses = await clients.collect(Features, t, ctx.quorum, rows=len(batch))  # 1
        by_party = {party: response.x for party, response in responses.items()}
        joined.learn("Features", by_party)
        if not (by_party and joined.columns):  # the model's width is known once every party has sent columns
            ctx.skip(t, responses)
            continue
        model, optimiser = _learner(ctx, joined.columns)
        logits = model(joined.join(by_party, len(batch)).to(ctx.device))
        loss = ctx.loss.mean(logits, ctx.targets(batch, logits))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()  # 2
        ctx.record(t, loss.item(), responses)
        await evaluate(ctx, clients, Evaluation, t, predict, responses)


def _learner(ctx: ServerContext, columns: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    """The model over this number of columns and its optimiser, created on first use."""
    model = ctx.state.keep("head", lambda: joint_head(ctx, columns))
    return model, ctx.state.keep("optimiser", lambda: build_optimiser(ctx.config.optimiser, model.parameters()))


class Joined:
    """Concatenates the parties' columns in roster order.

    The number of a party's columns is not agreed: it is learnt from the party's first message and kept in the state.
    """

    def __init__(self, ctx: ServerContext, parties: tuple[str, ...]) -> None:
        self._parties = parties
        self._columns: dict[str, int] = ctx.state.keep("columns", dict)

    @property
    def columns(self) -> int:
        """Total number of columns; 0 until every party has sent some."""
        return sum(self._columns.values()) if len(self._columns) == len(self._parties) else 0

    def learn(self, kind: str, responses: Mapping[str, Tensor]) -> None:
        """Records the number of columns of each party's x_k, (rows, columns).

        Raises ContractError if a party's number of columns changed; `kind` is the message's name, for the error.
        """
        for party, x in responses.items():
            if (known := self._columns.setdefault(party, x.shape[1])) != x.shape[1]:
                raise ContractError(party, kind, "x", f"columns = {known}, as at first", f"shape {tuple(x.shape)}")

    def join(self, responses: Mapping[str, Tensor], rows: int) -> Tensor:
        """[x_1 .. x_M], float32 (rows, columns); zeros for missing parties."""
        columns = self._columns
        return torch.cat([responses.get(p, torch.zeros(rows, columns[p])) for p in self._parties], dim=1)
