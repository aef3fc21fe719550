"""The joint model above the cut without backpropagation, and its responses to parties that send pairs."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor

from colonnade.common.contracts.pairs import Difference, Evaluation, Pair, PairsConfig
from colonnade.common.conversation.conversation import Cohort
from colonnade.common.conversation.responses import Responses
from colonnade.common.models.zeroth_order import TwoPoint, row_losses
from colonnade.server.training.context import ServerContext
from colonnade.server.training.evaluation import evaluate_embeddings
from colonnade.server.training.fusion.joint import CombinedHead, Targets
from colonnade.server.training.imputation import StandIn

Turns = Awaitable[tuple[Responses[Pair], float | None]]  # responses of a round, and the loss


class PairedHead(CombinedHead):
    """g(H; theta_0), trained by zeroth-order steps along directions drawn from the state."""

    def __init__(self, ctx: ServerContext, cfg: PairsConfig) -> None:
        super().__init__(ctx, cfg.embedding, cfg.combine)
        draws = ctx.state.keep("directions", lambda: ctx.draws.generator("directions"))
        self._two_point, self._mu = TwoPoint(self.head, draws, draw=cfg.draw, mu=cfg.mu), cfg.mu
        self._watch = ctx.watch

    def slopes(
        self, parts: Sequence[Tensor], perturbed: Mapping[int, Tensor], targets: Targets
    ) -> tuple[float, dict[int, float]]:
        """f, and delta_m / mu of every party that sent a pair, all at theta_0; `step` then uses the server's own
        estimate.

        Args:
            parts: h_1 .. h_M, each float32 (rows, width).
            perturbed: h'_m by party index, same shape.
            targets: called once, so that all losses of a turn share the targets.
        """
        moved = [self.combined([*parts[:index], h, *parts[index + 1 :]]) for index, h in perturbed.items()]
        logits, *others = self._two_point(self.combined(parts), *moved)
        y = targets(logits)
        losses = row_losses(self.loss, logits, y)
        own, *theirs = (float((row_losses(self.loss, other, y) - losses).mean()) / self._mu for other in others)
        loss = float(losses.mean())
        if wrong := [value for value in (loss, own, *theirs) if not math.isfinite(value)]:
            raise self._watch.blame_loss(wrong[0])
        self._two_point.estimate(own)
        return loss, dict(zip(perturbed, theirs, strict=True))


async def serve_pairs(
    ctx: ServerContext, clients: Cohort, whole: PairedHead, present: StandIn, train: Callable[..., Turns]
) -> None:
    """Runs all rounds of ZOO-VFL or SYN-ZOO-VFL; `train` is `as_they_come`, or `together`."""
    width, turn = present.width, partial(_learn, ctx, clients, whole=whole, present=present)

    async for t in clients.rounds(ctx.schedule.rounds, after=ctx.round):
        responses, loss = await train(ctx, clients, Pair, width, turn, t)
        if loss is None:
            ctx.skip(t, responses)
            continue
        ctx.record(t, loss, responses)
        await evaluate_embeddings(ctx, clients, Evaluation, t, whole, present, among=responses)


async def _learn(
    ctx: ServerContext,
    clients: Cohort,
    responses: Mapping[str, Pair],
    batch: Tensor,
    t: int,
    *,
    whole: PairedHead,
    present: StandIn,
) -> float | None:
    """Steps 2 to 4 of the protocol's box for pairs of round t on one batch: the loss, or None if too few came."""
    parts = present.fill({party: response.h for party, response in responses.items()}, batch, t)
    if parts is None:
        return None
    indices = {index: party for index, party in enumerate(clients) if party in responses}
    perturbed = {index: responses[party].perturbed for index, party in indices.items()}
    loss, slopes = whole.slopes(parts, perturbed, partial(ctx.targets, batch))
    await clients.broadcast({party: Difference(t, torch.tensor([slopes[index]])) for index, party in indices.items()})
    whole.step()
    return loss
