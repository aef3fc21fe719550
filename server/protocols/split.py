"""Split learning, the server's half. The box: common/protocols/split.py."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from common.conversation import Cohort, Harvest
from common.models.optimiser import build_optimiser, stepper
from common.protocols.split import Config, Embedding, Evaluation, Gradient
from server.context import ServerContext
from server.evaluation import evaluate
from server.heads import joint_head
from server.joint import JointHead
from server.standin import StandIn


def joint(ctx: ServerContext) -> JointHead:
    """The head theta_0, as it is in the state or begins."""
    cfg, parties = ctx.federation.protocol, len(ctx.federation.names)
    assert isinstance(cfg, Config)  # the registry pairs them
    head: nn.Module = ctx.state.keep("head", lambda: joint_head(ctx, cfg.embedding * parties))
    return JointHead(head, parties, cfg.embedding, ctx.device)


async def serve(ctx: ServerContext, clients: Cohort) -> None:
    """Trains the head on concatenated embeddings and returns each party its gradient."""
    cfg = ctx.federation.protocol
    assert isinstance(cfg, Config)  # the registry pairs them
    width, whole = cfg.embedding, joint(ctx)
    head: nn.Module = ctx.state["head"]
    optimiser = ctx.state.keep("optimiser", lambda: build_optimiser(ctx.config.optimiser, head.parameters()))
    step = stepper(optimiser)
    present = StandIn(ctx, tuple(clients), width, cfg.missing)

    def predict(answers: Harvest[Evaluation], rows: int) -> Tensor:
        return whole.logits(present.zeros({party: answer.h for party, answer in answers.items()}, rows))

    async for t in clients.rounds(ctx.schedule.rounds, after=ctx.round):
        batch = ctx.schedule.batch(t)
        answers = await clients.collect(Embedding, t, ctx.quorum, rows=len(batch), width=width)  # 1
        parts = present.fill({party: answer.h for party, answer in answers.items()}, batch, t)
        if parts is None:
            ctx.skip(t, answers)
            continue
        h = torch.cat(parts, dim=1).to(ctx.device).requires_grad_()  # (rows, M * width)
        logits = head(h)
        loss = functional.cross_entropy(logits, ctx.targets(batch, logits))  # 2
        optimiser.zero_grad()
        loss.backward()
        assert h.grad is not None  # h requires it
        dh = dict(zip(clients, h.grad.split(width, dim=1), strict=True))
        await clients.tell({party: Gradient(t, dh[party]) for party in answers})  # 3
        step()
        ctx.record(t, loss.item(), answers)
        await evaluate(ctx, clients, Evaluation, t, predict, answers, width=width)
