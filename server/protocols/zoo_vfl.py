"""ZOO-VFL, server side. The box: common/protocols/zoo_vfl.py."""

from __future__ import annotations

from colonnade.common.conversation.conversation import Cohort
from colonnade.common.protocols.zoo_vfl import Config
from colonnade.server.training.context import ServerContext
from colonnade.server.training.fusion.pairs import PairedHead, serve_pairs
from colonnade.server.training.imputation import StandIn
from colonnade.server.training.round_modes import as_they_come


def joint(ctx: ServerContext, cfg: Config) -> PairedHead:
    """The head theta_0."""
    return PairedHead(ctx, cfg)


async def serve(ctx: ServerContext, clients: Cohort, cfg: Config) -> None:
    """Sends each party, as it arrives, the change of the loss along its direction, and takes a step of its own."""
    present = StandIn(ctx, tuple(clients), cfg.embedding, "last")
    await serve_pairs(ctx, clients, joint(ctx, cfg), present, as_they_come)  # 1 to 4
