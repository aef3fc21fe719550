"""VFL-CZOFO, party side. The box: common/protocols/czofo.py."""

from __future__ import annotations

from functools import partial

from colonnade.client.training.context import ClientContext
from colonnade.client.training.evaluation import evaluate
from colonnade.client.training.local import bottom as local
from colonnade.client.training.round_modes import follow_rounds
from colonnade.common.contracts.embeddings import Evaluation
from colonnade.common.conversation.conversation import SERVER, Link
from colonnade.common.errors import ContractError
from colonnade.common.models.optimiser import stepper
from colonnade.common.models.zeroth_order import Directions, Drawn, estimate
from colonnade.common.protocols.czofo import Config, Differences, Embedding

__all__ = ["local", "participate"]


async def participate(ctx: ClientContext, server: Link, cfg: Config) -> None:
    """Sends embeddings and follows the gradient that it estimates from loss differences, turn after turn."""
    model, optimiser = ctx.model(cfg.embedding), ctx.optimiser()
    bottom, step = ctx.backprop(model), stepper(optimiser)
    directions = Directions(ctx.federation.seed, cfg.draw, cfg.directions, cfg.embedding)

    async def exchange(t: int, turn: int, until: int) -> bool:
        batch = ctx.schedule.batch(turn)
        h = bottom.forward(ctx.features[batch])  # (rows, width)
        await server.send(Embedding(t, turn, ctx.release(h, rows=batch)))  # 1
        drawn = directions.of(ctx.name, turn, len(batch))  # while the server draws them too
        losses = len(batch) if cfg.delta == "row" else 1
        differences = await server.recv(Differences, t, until=until, losses=losses, directions=cfg.directions)
        if differences is None:
            return False
        refuse_others(differences, drawn)
        dh = estimate(differences.delta.to(ctx.device), drawn.u.to(ctx.device), directions.factor)  # 5
        bottom.backward(dh)
        step()
        return True

    async def report(t: int) -> None:
        await evaluate(ctx, server, t, model, partial(Evaluation, t))

    await follow_rounds(ctx, server, exchange, report, arrivals=cfg.arrivals)


def refuse_others(differences: Differences, drawn: Drawn) -> None:
    """Raises ContractError if the server drew other directions: its differences would be noise to us."""
    if differences.mark != drawn.mark:
        expected = f"{drawn.mark}, of the directions that we drew"
        raise ContractError(SERVER, "Differences", "mark", expected, f"{differences.mark}: it drew others")
