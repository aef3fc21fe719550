"""The VFL-CZOFO server's response: differences of the loss, and the quantities of Theorem 4.1."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from colonnade.common.models.directions import Directions
from colonnade.common.models.zeroth_order import spread
from colonnade.common.protocols.czofo import Config
from colonnade.server.training.context import ServerContext
from colonnade.server.training.fusion.combined import CombinedHead
from colonnade.server.training.fusion.finite_differences import EmbeddingColumns, Slopes

_SAMPLED = 10  # the estimate's variance is measured every 10th turn
_NOTHING = {"zeta": 0.0, "variance": 0.0, "sampled": 0, "turns": 0}


class Perturbed:
    """The joint model with one party's embeddings perturbed along directions that the party knows."""

    def __init__(self, ctx: ServerContext, cfg: Config, whole: CombinedHead, parties: tuple[str, ...]) -> None:
        self._ctx, self._cfg, self._whole = ctx, cfg, whole
        self._slopes = Slopes(whole.head, mu=cfg.mu, antithetic=cfg.antithetic, loss=ctx.loss)
        self._directions = Directions(ctx.federation.seed, cfg.draw, cfg.directions, cfg.embedding)
        self._places = {
            party: EmbeddingColumns(index * cfg.embedding)
            if cfg.combine == "concatenate"
            else EmbeddingColumns(0, 1 / len(parties))
            for index, party in enumerate(parties)
        }
        self._indices = {party: index for index, party in enumerate(parties)}
        self._private = ctx.protection(whole.head)
        self._h = self._y = self._batch = torch.empty(0)
        self._dh: Sequence[Tensor] = ()
        self._shared = 1

    def begin(self, parts: Sequence[Tensor], batch: Tensor) -> float:
        """The batch's mean unperturbed loss; its gradient is kept for the server's own step.

        Args:
            parts: every party's last embeddings, float32 (rows, width) each.
            batch: row numbers, int64 (rows,).
        """

        def remembered(logits: Tensor) -> Tensor:
            self._y = self._ctx.targets(batch, logits)
            return self._y

        self._batch, self._h = batch, self._whole.combined(parts)
        if self._private is None:
            loss, self._dh, self._shared = self._whole.backward(parts, remembered)
        else:
            loss = self._whole.protected(parts, remembered, batch, self._private)
        if not math.isfinite(loss):
            raise self._ctx.watch.blame_loss(loss)
        return loss

    def of(self, party: str, turn: int) -> tuple[int, Tensor]:
        """The directions' mark, and delta / mu, float32 (1, q) or (rows, q). Must be called before the head's step."""
        drawn = self._directions.of(party, turn, len(self._h))
        u = drawn.u.to(self._h.device)
        slopes = self._slopes(self._h, u, self._y, self._places[party])
        delta = self._released(slopes, party, u)
        if self._cfg.arrivals:
            self._directions.ahead(party, turn + 1, len(self._ctx.schedule.batch(turn + 1)))
        return drawn.mark, delta

    def _released(self, slopes: Tensor, party: str, u: Tensor) -> Tensor:
        """The message's values from the slopes (rows, q) of every row; protected labels add noise first."""
        rowwise = self._cfg.delta == "row"
        if self._private is not None:
            values = slopes.float()
            noised = self._private.rows if rowwise else self._private.mean
            return noised(values, self._batch).view(-1, values.shape[1])
        delta = (slopes if rowwise else slopes.mean(0, keepdim=True)).float()
        if self._cfg.theorem:
            self._measure(party, delta, u)
        return delta

    def _measure(self, party: str, delta: Tensor, u: Tensor) -> None:
        """Records zeta, the largest norm of a row's gradient, and in some turns sigma^2 = tr(Psi) / (q d)."""
        measured = self._ctx.state.keep("theorem", lambda: dict(_NOTHING))
        rows = len(u)
        gradient = self._dh[self._indices[party]] * (rows / self._shared)  # of each row's own loss
        measured["zeta"] = max(measured["zeta"], float(gradient.norm(dim=1).max()))
        if measured["turns"] % _SAMPLED == 0 and u.shape[1] > 1:
            measured["variance"] += spread(delta, u, self._directions.factor) / (u.shape[1] * u.shape[2])
            measured["sampled"] += 1
        measured["turns"] += 1
