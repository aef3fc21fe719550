"""VFedMH, party side. The box: common/protocols/vfedmh.py."""

from __future__ import annotations

from colonnade.client.aggregation.masked_sums import terms
from colonnade.client.training.context import ClientContext
from colonnade.client.training.local import bottom as local
from colonnade.common.aggregation.subject import TRAINING, subject
from colonnade.common.conversation.conversation import SERVER, Link
from colonnade.common.errors import ContractError
from colonnade.common.models.two_part import TwoPart, TwoPartEvaluation
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
        """Evaluates, party side: our embeddings of a block, then a prediction for the block before it.

        The order matters: a server that waits for predictions reads no embeddings, and all of them together would fill
        the connection.
        """
        blocks = [
            (part, number, block)
            for part in ctx.schedule.evaluations(t)
            for number, block in enumerate(ctx.schedule.blocks(part))
        ]
        with model.evaluation() as still:
            for stage, (part, number, block) in enumerate(blocks):
                e = ctx.release(still.embed(ctx.features[block]), evaluation=True, rows=block)
                await server.send(own.evaluation(t, part, number, e))
                if stage and not await predict(t, stage, still, len(blocks[stage - 1][2])):
                    return
            if blocks:
                await predict(t, len(blocks), still, len(blocks[-1][2]))

    async def predict(t: int, stage: int, still: TwoPartEvaluation, rows: int) -> bool:
        """Sends a prediction for a block, numbered from 1. False if we are late."""
        if (shared := await average(t, stage, rows)) is None:
            return False
        await server.send(Prediction(t, stage, still.predict(shared.e.to(ctx.device))))
        return True

    async for t in server.rounds(after=ctx.round):
        batch = ctx.schedule.batch(t)
        if not await own.begin(t, subject(TRAINING, batch)):
            continue
        e = model.embed(ctx.features[batch])  # (rows, width)
        await own.train(t, ctx.release(e, rows=batch))  # 1
        if (shared := await average(t, 0, len(batch))) is None:  # the server went on without us: follow it
            continue
        await server.send(Prediction(t, 0, model.predict(shared.e.to(ctx.device))))  # 3
        gradient = await server.recv(Gradient, t, rows=len(batch), classes=classes)
        if gradient is None:
            continue
        model.learn(gradient.dr.to(ctx.device), 1 / shared.members)  # 5
        await look(t)
