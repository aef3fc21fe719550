"""A party's task, training or prediction, and the layers between its side and its connection in a session."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from colonnade.client.prediction import answer
from colonnade.client.privacy.egress import Egress
from colonnade.client.privacy.mechanisms import Privacy
from colonnade.client.protocols import PARTICIPATE
from colonnade.client.training.context import ClientContext
from colonnade.client.training.progress import TrainingProgress
from colonnade.client.transcript.capture import Capture
from colonnade.client.transcript.transcript import PartyTranscript, always_in_step, report_finding
from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.run_options import with_lower_rates
from colonnade.common.contracts import prediction
from colonnade.common.contracts.contract import Contract
from colonnade.common.contracts.registry import CONTRACTS
from colonnade.common.conversation.capacity import Capacity
from colonnade.common.conversation.chaos import Chaos
from colonnade.common.conversation.conversation import SERVER, Carrier, Link
from colonnade.common.conversation.parcels import Item
from colonnade.common.crypto.sealing import Session
from colonnade.common.observability.telemetry import Telemetry
from colonnade.common.privacy.accounting.ledger import Ledger
from colonnade.common.run.plug_ins import naming_user_code
from colonnade.common.run.run_folder import PartyFolder
from colonnade.common.run.state import State

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


class PartyLine:
    """A party's link in one session, in training or prediction, over any transport.

    What the party sends passes the egress, then injected faults, and the capture last; what it receives passes the
    transcript, the capture, then injected faults, and reaches the link last.

    Args:
        ctx: over the party's rows, as `party_context` makes it.
        session: `round` is the one after which it continues, `state` the party's after it.
        post: sends an item over the connection.
        outlet: the connection's; None for unlimited room.
        busy: wraps what the egress sends; on the virtual clock a message leaves when earlier work is done.
    """

    def __init__(
        self,
        task: PartyTask,
        ctx: ClientContext,
        privacy: Privacy,
        progress: TrainingProgress,
        *,
        session: Session,
        round: int,
        state: State,
        ledger: Ledger,
        post: Carrier,
        outlet: Capacity,
        chaos: Chaos | None,
        capture: Capture | None,
        busy: Callable[[Carrier], Carrier],
    ) -> None:
        self._task, self._post, self._chaos, self._capture = task, post, chaos, capture
        carry = post if capture is None else capture.outward(post)
        carry = carry if chaos is None else chaos.outward(carry, outlet)
        stage = privacy.stage(State() if task.predicts else state, ctx.draws)
        egress = Egress(busy(carry), SERVER, stage, ledger, progress.traffic.sent)
        contract, limits = task.contract, task.contract.limits_of(task.federation)
        self.link = Link(SERVER, contract.kinds, limits, egress, progress.mailbox(), outlet=outlet)
        self.link.known = round
        progress.follow(self.link, round)
        self.ctx = replace(
            ctx,
            federation=task.federation,
            config=with_lower_rates(ctx.config, session.backed_off),
            release=egress.release,
            admit_masked=egress.admit_masked,
            state=state,
            round=round,
            session=session,
            steps=privacy.steps,
            encoder=privacy.encoder,
            answers=privacy.answers,
        )

    def begin(self, telemetry: Telemetry) -> tuple[PartyTranscript, Callable[[Item], None]]:
        """Begins the session's transcript, before anything arrives. Returns it, and what takes in what arrives."""
        ctx = self.ctx
        # All parties that are present take part in every request of a prediction.
        in_step = self._task.predicts or always_in_step(ctx.federation, self._task.contract)
        transcript = PartyTranscript(
            ctx.name, ctx.federation, ctx.session, ctx.identity, there=ctx.session.parties, in_step=in_step,
            send=self._post, report=partial(report_finding, telemetry, ctx.name), fail=self.link.lose,
        )  # fmt: skip
        ctx.keyed, ctx.receipts = transcript.keyed, transcript.receipts
        deliver: Callable[[Item], None] = self.link.deliver
        deliver = deliver if self._chaos is None else self._chaos.inward(deliver)
        deliver = deliver if self._capture is None else self._capture.inward(deliver)
        transcript.begin()
        return transcript, transcript.inward(deliver)

    async def side(self) -> None:
        with naming_user_code(f"parties.{self.ctx.name}", self.ctx.own_code):
            await self._task.side(self.ctx, self.link)
