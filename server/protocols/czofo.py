"""VFL-CZOFO, server side. The box: common/protocols/czofo.py."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from torch import Tensor

from colonnade.common.contracts.embeddings import Evaluation
from colonnade.common.conversation.conversation import Cohort
from colonnade.common.protocols.czofo import Config, Differences, Embedding
from colonnade.server.training.context import ServerContext
from colonnade.server.training.evaluation import evaluate_embeddings
from colonnade.server.training.fusion.differences import Perturbed
from colonnade.server.training.fusion.joint import CombinedHead
from colonnade.server.training.imputation import StandIn
from colonnade.server.training.round_modes import as_they_come, together


def joint(ctx: ServerContext, cfg: Config) -> CombinedHead:
    """The server's model w_0."""
    return CombinedHead(ctx, cfg.embedding, cfg.combine)


async def serve(ctx: ServerContext, clients: Cohort, cfg: Config) -> None:
    """Responds to every embedding with differences of the loss, and only then takes its own first-order step."""
    width, parties, whole = cfg.embedding, tuple(clients), joint(ctx, cfg)
    present = StandIn(ctx, parties, width, "last")
    perturbed = Perturbed(ctx, cfg, whole, parties)

    async def learn(responses: Mapping[str, Embedding], batch: Tensor, t: int) -> float | None:
        """Steps 2 to 4 for embeddings of round t on one batch: the loss, or None if too few came."""
        parts = present.fill({party: response.h for party, response in responses.items()}, batch, t)
        if parts is None:
            return None
        loss = perturbed.begin(parts, batch)
        turns = {party: response.turn if cfg.arrivals else t for party, response in responses.items()}
        slopes = {party: perturbed.of(party, turn) for party, turn in turns.items()}  # 2
        await clients.broadcast({party: Differences(t, mark, delta) for party, (mark, delta) in slopes.items()})  # 3
        whole.step()  # 4
        return loss

    come = partial(as_they_come, ahead=cfg.ahead)
    train = partial(come if cfg.arrivals else together, ctx, clients, Embedding, width, learn)
    async for t in clients.rounds(ctx.schedule.rounds, after=ctx.round):
        responses, loss = await train(t)  # 1
        if loss is None:
            ctx.skip(t, responses)
            continue
        ctx.record(t, loss, responses)
        await evaluate_embeddings(ctx, clients, Evaluation, t, whole, present, among=responses)
