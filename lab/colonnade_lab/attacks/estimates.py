"""Gradients that a party of VFL-CZOFO estimates from loss differences; attackers know the directions too."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from colonnade.common.messaging.message import Message
from colonnade.common.models.directions import Directions
from colonnade.common.models.zeroth_order import estimate
from colonnade.common.protocols.czofo import Config, Differences
from colonnade_lab.attacks.run import AttackedRun

Estimate = Callable[[Message, int, int], Tensor | None]
"""(message, turn, rows of its batch) -> an estimate for every row, (rows, width), or None."""


def estimates(run: AttackedRun, party: str) -> Estimate:
    """Returns an estimator by Eq. 2 of VFL-CZOFO for every response to a party; it returns None for other protocols."""
    federation = run.config.federation
    cfg = federation.protocol
    if not isinstance(cfg, Config):
        return lambda _message, _turn, _rows: None
    directions = Directions(federation.seed, cfg.draw, cfg.directions, cfg.embedding)

    def of(message: Message, turn: int, rows: int) -> Tensor | None:
        if not isinstance(message, Differences):
            return None
        return estimate(message.delta, directions.of(party, turn, rows).u, directions.factor)

    return of
