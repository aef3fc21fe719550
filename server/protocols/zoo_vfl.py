"""ZOO-VFL, the server's half. The box: common/protocols/zoo_vfl.py."""

from __future__ import annotations

from colonnade.common.conversation.conversation import Cohort
from colonnade.common.protocols.zoo_vfl import Config
from colonnade.server.fusion.pairs import PairedHead, serve_pairs
from colonnade.server.training.context import ServerContext
from colonnade.server.training.imputation import StandIn
from colonnade.server.training.round_modes import as_they_come


def joint(ctx: ServerContext, cfg: Config) -> PairedHead:
    """The head theta_0, as it is in the state or begins."""
    return PairedHead(ctx, cfg)


async def serve(ctx: ServerContext, clients: Cohort, cfg: Config) -> None:
    """Tells whoever comes how its direction changes the loss, and takes a step of its own."""
    present = StandIn(ctx, tuple(clients), cfg.embedding, "last")
    await serve_pairs(ctx, clients, joint(ctx, cfg), present, as_they_come)  # 1 to 4
