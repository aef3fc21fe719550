"""VFedMH, party side. The box: common/protocols/vfedmh.py."""

from __future__ import annotations

from functools import partial

from colonnade.client.aggregation.masked_sums import terms
from colonnade.client.models.local import bottom as local
from colonnade.client.training.context import ClientContext
from colonnade.client.training.evaluation import evaluate
from colonnade.common.conversation.conversation import SERVER, Link
from colonnade.common.errors import ContractError
from colonnade.common.models.two_part import TwoPart
from colonnade.common.protocols.vfedmh import Config, Embedding, Evaluation, Global, Gradient, Prediction

__all__ = ["local", "participate"]


async def participate(ctx: ClientContext, server: Link, cfg: Config) -> None:
    """Adds its embeddings to the global one, predicts from that, and follows the gradient of its own loss."""
    bottom, head = ctx.model(cfg.embedding), ctx.head(cfg.embedding)
    model = TwoPart(bottom, head, ctx.optimiser(), ctx.head_optimiser())
    classes, width = ctx.federation.outputs, cfg.embedding
    own = await terms(ctx, server, cfg.aggregate, Embedding, Evaluation)

    async def average(t: int, stage: int, rows: int) -> Global | None:
        """E of a stage, or None if we are late."""
        shared = await server.recv(Global, t, rows=rows, width=width)
        if shared is not None and shared.stage != stage:
            raise ContractError(SERVER, "Global", "stage", str(stage), str(shared.stage))
        if shared is not None and shared.members < 1:
            raise ContractError(SERVER, "Global", "members", "at least 1", str(shared.members))
        return shared

    async def look(t: int) -> None:
        """Evaluates, party side: first all our embeddings, then a prediction for every block."""
        await evaluate(ctx, server, t, bottom, partial(own.evaluation, t))
        stage = 0
        for part in ctx.schedule.evaluations(t):
            for block in ctx.schedule.blocks(part):
                stage += 1
                if (shared := await average(t, stage, len(block))) is None:
                    return
                with model.evaluation() as still:
                    r = still.predict(shared.e.to(ctx.device))
                await server.send(Prediction(t, stage, r))

    async for t in server.rounds(after=ctx.round):
        if not await own.begin(t):
            continue
        batch = ctx.schedule.batch(t)
        e = model.embed(ctx.features[batch])  # (rows, width)
        await server.send(own.training(t, ctx.release(e, rows=batch)))  # 1
        if (shared := await average(t, 0, len(batch))) is None:  # the server went on without us: follow it
            continue
        await server.send(Prediction(t, 0, model.predict(shared.e.to(ctx.device))))  # 3
        gradient = await server.recv(Gradient, t, rows=len(batch), classes=classes)
        if gradient is None:
            continue
        model.learn(gradient.dr.to(ctx.device), 1 / shared.members)  # 5
        await look(t)
