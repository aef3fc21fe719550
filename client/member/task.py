"""Task of a party's process: training, or predictions with a trained model."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from colonnade.client.prediction.exchange import answer
from colonnade.client.protocols import PARTICIPATE
from colonnade.client.training.context import ClientContext
from colonnade.common.config.federation import FederationConfig
from colonnade.common.contracts import prediction
from colonnade.common.contracts.contract import Contract
from colonnade.common.contracts.registry import CONTRACTS
from colonnade.common.conversation.conversation import Link
from colonnade.common.run.run_folder import PartyFolder

PartySide = Callable[[ClientContext, Link], Awaitable[None]]


@dataclass(frozen=True)
class PartyTask:
    contract: Contract[Any]
    side: PartySide
    federation: FederationConfig
    purpose: Mapping[str, str] = field(default_factory=dict)
    predicts: bool = False

    def events(self, folder: PartyFolder) -> Path:
        return folder.prediction_events if self.predicts else folder.events

    def run_cache(self, folder: PartyFolder) -> Path:
        return folder.prediction_cache if self.predicts else folder.run_cache

    def repeats_after(self, round: int) -> int:
        """Last round whose messages are not repeated. Predictions are renumbered at every start, and never repeat."""
        return sys.maxsize if self.predicts else round


def training(federation: FederationConfig, instead: Callable[..., Awaitable[None]] | None = None) -> PartyTask:
    """Training with the protocol's party side, or another one `instead`."""
    protocol = federation.protocol
    side = instead or PARTICIPATE[protocol.name]
    return PartyTask(CONTRACTS[protocol.name], lambda ctx, server: side(ctx, server, protocol), federation)


def prediction_task(federation: FederationConfig) -> PartyTask:
    """Predictions, until the server says farewell. Raises InputError where models cannot predict."""
    contract, section = prediction.contract(federation), prediction.prediction_federation(federation)
    return PartyTask(contract, answer, section, prediction.PURPOSE, True)
