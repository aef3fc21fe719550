"""What a party's process does with its data: it trains, or answers for a model that is trained."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from colonnade.client.prediction.exchange import answer
from colonnade.client.protocols import PARTICIPATE
from colonnade.client.training.context import ClientContext
from colonnade.common.config.federation import FederationConfig
from colonnade.common.contracts.contract import Contract
from colonnade.common.contracts.registry import CONTRACTS
from colonnade.common.conversation.conversation import Link
from colonnade.common.prediction import messages as prediction
from colonnade.common.runtime.run_folder import PartyFolder

PartySide = Callable[[ClientContext, Link], Awaitable[None]]


@dataclass(frozen=True)
class PartyTask:
    """One of the two.

    Args:
        contract: what is said.
        half: who says it.
        federation: the agreed section, as the half has to take it.
        purpose: what the Hello says beside what is agreed on.
        predicts: whether it answers: the last round is not agreed on, and rows may be others than those of training.
    """

    contract: Contract
    half: PartySide
    federation: FederationConfig
    purpose: Mapping[str, str] = field(default_factory=dict)
    predicts: bool = False

    def events(self, folder: PartyFolder) -> Path:
        """The file of the party's own record."""
        return folder.prediction_events if self.predicts else folder.events

    def run_cache(self, folder: PartyFolder) -> Path:
        """The folder of what is made once."""
        return folder.prediction_cache if self.predicts else folder.run_cache

    def repeats_after(self, round: int) -> int:
        """What left after this round leaves again. Answers are numbered anew with every start, and never repeat."""
        return sys.maxsize if self.predicts else round


def training(federation: FederationConfig) -> PartyTask:
    """The federation's protocol, from the round that the server names to the last."""
    protocol, half = federation.protocol, PARTICIPATE[federation.protocol.name]
    return PartyTask(CONTRACTS[protocol.name], lambda ctx, server: half(ctx, server, protocol), federation)


def prediction_task(federation: FederationConfig) -> PartyTask:
    """Predictions, until the server says farewell. Raises InputError where models cannot be asked."""
    contract, asked = prediction.contract(federation), prediction.prediction_federation(federation)
    return PartyTask(contract, answer, asked, prediction.PURPOSE, True)
