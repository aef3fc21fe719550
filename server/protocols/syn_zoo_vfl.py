"""Syn-ZOO-VFL, the server's half. The box: common/protocols/syn_zoo_vfl.py."""

from __future__ import annotations

from functools import partial

from torch import Tensor

from common.conversation import Cohort
from common.harvest import Harvest
from common.protocols.pairs import Evaluation, Pair
from common.protocols.syn_zoo_vfl import Config
from server.context import ServerContext
from server.evaluation import evaluate
from server.pairs import PairedHead, learn
from server.standin import StandIn
from server.turns import together


def joint(ctx: ServerContext) -> PairedHead:
    """The head theta_0, as it is in the state or begins."""
    cfg = ctx.federation.protocol
    assert isinstance(cfg, Config)  # the registry pairs them
    return PairedHead(ctx, cfg)


async def serve(ctx: ServerContext, clients: Cohort) -> None:
    """Tells every party how its direction changes the loss, and takes a step of its own."""
    cfg = ctx.federation.protocol
    assert isinstance(cfg, Config)  # the registry pairs them
    whole, present = joint(ctx), StandIn(ctx, tuple(clients), cfg.embedding, cfg.missing)
    turn = partial(learn, ctx, clients, whole, present)  # 2, 3 and 4

    def predict(answers: Harvest[Evaluation], block: Tensor) -> Tensor:
        return whole.logits(present.zeros({party: answer.h for party, answer in answers.items()}, len(block)))

    async for t in clients.rounds(ctx.schedule.rounds, after=ctx.round):
        answers, loss = await together(ctx, clients, Pair, cfg.embedding, turn, t)  # 1
        if loss is None:
            ctx.skip(t, answers)
            continue
        ctx.record(t, loss, answers)
        await evaluate(ctx, clients, Evaluation, t, predict, answers, width=cfg.embedding)
