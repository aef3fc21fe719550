"""Split learning with one global embedding, party side. The boxes: common/protocols/split_avg.py."""

from __future__ import annotations

from functools import partial

from colonnade.client.aggregation.masked_sums import terms
from colonnade.client.training.context import ClientContext
from colonnade.client.training.evaluation import evaluate
from colonnade.client.training.local import bottom as local
from colonnade.client.training.round_modes import follow_rounds
from colonnade.common.aggregation.subject import TRAINING, subject
from colonnade.common.contracts.embeddings import Evaluation
from colonnade.common.conversation.conversation import SERVER, Link
from colonnade.common.errors import ContractError
from colonnade.common.models.optimiser import stepper
from colonnade.common.protocols.split_avg import AverageGradient, Config, Embedding, Gradient

__all__ = ["local", "participate"]


async def participate(ctx: ClientContext, server: Link, cfg: Config) -> None:
    """Sends embeddings and follows its share of the gradient: once a round, or turn after turn."""
    model, optimiser = ctx.model(cfg.embedding), ctx.optimiser()
    bottom, step = ctx.backprop(model), stepper(optimiser)
    kind: type[Gradient | AverageGradient] = AverageGradient if cfg.alike else Gradient
    own = await terms(ctx, server, cfg.aggregate, lambda t, h: Embedding(t, t, h), Evaluation)

    async def exchange(t: int, turn: int, until: int) -> bool:
        batch = ctx.schedule.batch(turn)
        h = bottom.forward(ctx.features[batch])  # (rows, width)
        released = ctx.release(h, rows=batch)
        await (server.send(Embedding(t, turn, released)) if cfg.arrivals else own.train(t, released))  # 1
        gradient = await server.recv(kind, t, until=until, rows=len(batch), width=cfg.embedding)
        if gradient is None:
            return False
        if gradient.shared < 1:
            raise ContractError(SERVER, kind.__name__, "shared", "at least 1", str(gradient.shared))
        bottom.backward(gradient.dh.to(ctx.device) / gradient.shared)  # 4
        step()
        return True

    async def report(t: int) -> None:
        await evaluate(ctx, server, t, model, partial(own.evaluation, t))

    async def begin(t: int) -> bool:
        return await own.begin(t, subject(TRAINING, ctx.schedule.batch(t)))

    summed = begin if cfg.aggregate == "blinded" else None
    await follow_rounds(ctx, server, exchange, report, arrivals=cfg.arrivals, begin=summed)
