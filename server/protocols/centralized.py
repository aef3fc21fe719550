"""The reference on joined data, server side. The box: common/protocols/centralized.py."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from colonnade.common.conversation.conversation import Cohort
from colonnade.common.conversation.responses import Responses
from colonnade.common.models.optimiser import build_optimiser
from colonnade.common.protocols.centralized import Config, Evaluation, Features
from colonnade.server.fusion.heads import joint_head
from colonnade.server.fusion.joined_columns import Joined
from colonnade.server.training.context import ServerContext
from colonnade.server.training.evaluation import evaluate


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
