"""A party that follows loss differences: two embeddings of a batch up, one number down."""

from __future__ import annotations

from colonnade.client.training.context import ClientContext
from colonnade.common.contracts.pairs import Difference, Pair, PairsConfig
from colonnade.common.conversation.conversation import Link
from colonnade.common.models.optimiser import stepper
from colonnade.common.models.zeroth_order import TwoPoint


class Follower:
    """A party's model, trained by zeroth-order steps. Its directions are drawn from the party-side state."""

    def __init__(self, ctx: ClientContext, server: Link, cfg: PairsConfig) -> None:
        self._ctx, self._server, self._width = ctx, server, cfg.embedding
        self.model = ctx.model(cfg.embedding)
        self._step = stepper(ctx.optimiser())
        draws = ctx.state.keep("directions", lambda: ctx.draws.generator("directions"))
        self._two_point = TwoPoint(self.model, draws, draw=cfg.draw, mu=cfg.mu)

    async def exchange(self, t: int, turn: int, until: int) -> bool:
        """Steps 1 and 5 of either protocol's box; False if given up because the server is beyond round `until`."""
        ctx, batch = self._ctx, self._ctx.schedule.batch(turn)
        h, perturbed = self._two_point(ctx.features[batch])  # (rows, width) each
        await self._server.send(Pair(t, turn, ctx.release(h), ctx.release(perturbed)))  # 1
        difference = await self._server.recv(Difference, t, until=until, directions=1)
        if difference is None:
            return False
        self._two_point.estimate(difference.slope.item())  # 5
        self._step()
        return True
