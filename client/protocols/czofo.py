"""VFL-CZOFO, a party's half. The box: common/protocols/czofo.py."""

from __future__ import annotations

from functools import partial

from client.context import ClientContext
from client.evaluation import evaluate
from common.conversation import SERVER, Link
from common.directions import Directions, Drawn
from common.errors import ContractError
from common.models.optimiser import stepper
from common.numerics.backprop import backprop
from common.numerics.zeroth_order import estimate
from common.protocols.czofo import Config, Differences, Embedding, Evaluation


async def participate(ctx: ClientContext, server: Link) -> None:
    """Sends embeddings and follows the gradient that it estimates from loss differences, turn after turn."""
    cfg = ctx.federation.protocol
    assert isinstance(cfg, Config)  # the registry pairs them
    model, optimiser = ctx.model(cfg.embedding), ctx.optimiser()
    bottom, step = backprop(model), stepper(optimiser)
    directions = Directions(ctx.federation.seed, cfg.draw, cfg.directions, cfg.embedding)
    turns = ctx.state.keep("turns", lambda: {"done": 0})

    async def exchange(t: int, until: int) -> bool:
        """One turn. False if it is given up, since the server is beyond round `until`: it is done again."""
        turn = turns["done"] + 1 if cfg.arrivals else t
        batch = ctx.schedule.batch(turn)
        h = bottom.forward(ctx.features[batch])  # (rows, width)
        await server.send(Embedding(t, turn, ctx.release(h)))  # 1
        drawn = directions.of(ctx.name, turn, len(batch))  # while the server draws them too
        losses = len(batch) if cfg.delta == "row" else 1
        answer = await server.recv(Differences, t, until=until, losses=losses, directions=cfg.directions)
        if answer is None:
            return False
        refuse_others(answer, drawn)
        dh = estimate(answer.delta.to(ctx.device), drawn.u.to(ctx.device), directions.factor)  # 5
        bottom.backward(dh)
        step()
        turns["done"] = turn
        return True

    async for t in server.rounds(after=ctx.round):
        if not cfg.arrivals or ctx.schedule.evaluations(t):  # everyone takes part in the same round
            if await exchange(t, until=t):
                await evaluate(ctx, server, t, model, partial(Evaluation, t))
        else:
            while await exchange(t, until=ctx.schedule.evaluated_next(t) - 1) and not server.done_with(t):
                pass


def refuse_others(answer: Differences, drawn: Drawn) -> None:
    """Raises ContractError if the server took other directions: what it sends would be noise to us."""
    if answer.mark != drawn.mark:
        expected = f"{drawn.mark}, of the directions that we drew"
        raise ContractError(SERVER, "Differences", "mark", expected, f"{answer.mark}: it drew others")
