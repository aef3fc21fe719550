"""Signs: split learning in which a party is told the signs of its gradient alone.

An example of a protocol in a package of its own: the contract and both sides in one module.

    for each round t:
        server and parties derive the batch B(t)
      1   party k    h_k = f(x_k; theta_k) for the batch                          -> server
      2   server     loss = l(g([h_1 .. h_M]; theta_0), y); one step on theta_0
      3   server     s_k, the signs of d loss / d h_k, and a_k, their mean size   -> party k
      4   party k    back-propagates a_k s_k through f, one step on theta_k
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal

from pydantic import Field
from torch import Tensor

from colonnade.client.training import evaluation as at_party
from colonnade.client.training.context import ClientContext
from colonnade.client.training.local import bottom as local
from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.protocol import ProtocolConfig
from colonnade.common.contracts.contract import Contract, Exchange
from colonnade.common.contracts.embeddings import Embedding, Evaluation
from colonnade.common.conversation.conversation import Cohort, Link
from colonnade.common.conversation.responses import Responses
from colonnade.common.messaging.message import ServerMessage, TensorSpec, message
from colonnade.common.models.optimiser import stepper
from colonnade.server.training import evaluation as at_server
from colonnade.server.training.context import ServerContext
from colonnade.server.training.fusion.joint import JointHead
from colonnade.server.training.imputation import StandIn

__all__ = ["CONTRACT", "joint", "local", "participate", "serve"]


class Config(ProtocolConfig):
    """Keys under `federation.protocol`."""

    name: Literal["signs"] = "signs"
    embedding: int = Field(default=60, ge=1, description="width of every party's embedding")


@message
class Signs(ServerMessage):
    """Server to party: s_k, float32 (rows, width), and a_k."""

    s: Annotated[Tensor, TensorSpec("rows", "width")]
    a: float


def limits(federation: FederationConfig, config: Config) -> dict[str, int]:
    """The largest value of every dimension."""
    return {"rows": federation.batch, "width": config.embedding}


CONTRACT = Contract(
    title="Signs: split learning with the gradients' signs",
    source="an example",
    config=Config,
    messages=(Embedding, Signs, Evaluation),
    limits=limits,
    exchange=Exchange("embeddings", "gradients"),
    sees={"server": "every party's embeddings, in the clear", "party": "the signs of the gradients at its cut layer"},
)


def joint(ctx: ServerContext, cfg: Config) -> JointHead:
    """The head theta_0, as it is in the state or begins."""
    return JointHead(ctx, cfg.embedding)


async def serve(ctx: ServerContext, clients: Cohort, cfg: Config) -> None:
    """Trains the head and returns signs."""
    whole, present = joint(ctx, cfg), StandIn(ctx, tuple(clients), cfg.embedding, "zero")

    def predict(answers: Responses[Evaluation], block: Tensor) -> Tensor:
        return whole.logits(present.zeros({party: answer.h for party, answer in answers.items()}, len(block)))

    async for t in clients.rounds(ctx.schedule.rounds, after=ctx.round):
        batch = ctx.schedule.batch(t)  # both ends derive the same rows
        answers = await clients.collect(Embedding, t, ctx.quorum, rows=len(batch), width=cfg.embedding)  # 1
        parts = present.fill({party: answer.h for party, answer in answers.items()}, batch, t)
        if parts is None:  # too few came
            ctx.skip(t, answers)
            continue
        loss, dh = whole.backward(parts, partial(ctx.targets, batch))  # 2
        await clients.broadcast({party: _signs(t, dh[party]) for party in answers})  # 3
        whole.step()
        ctx.record(t, loss, answers)
        await at_server.evaluate(ctx, clients, Evaluation, t, predict, answers, width=cfg.embedding)


def _signs(t: int, dh: Tensor) -> Signs:
    return Signs(t, dh.sign(), dh.abs().mean().item())


async def participate(ctx: ClientContext, server: Link, cfg: Config) -> None:
    """Sends embeddings and follows the signs that come back."""
    model = ctx.model(cfg.embedding)
    bottom, step = ctx.backprop(model), stepper(ctx.optimiser())
    async for t in server.rounds(after=ctx.round):
        batch = ctx.schedule.batch(t)
        h = bottom.forward(ctx.features[batch])  # (rows, width)
        await server.send(Embedding(t, ctx.release(h, rows=batch)))  # 1
        told = await server.recv(Signs, t, rows=len(batch), width=cfg.embedding)
        if told is None:  # the server went on without us: follow it
            continue
        bottom.backward(told.a * told.s.to(ctx.device))  # 4
        step()
        await at_party.evaluate(ctx, server, t, model, partial(Evaluation, t))
