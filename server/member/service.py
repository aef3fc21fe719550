"""A server as its parties see it, for training and prediction: certificate, port, admission and farewell."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any

from colonnade.common.alignment.messages import all_kinds, all_limits
from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.members import ServerConfig
from colonnade.common.contracts import prediction
from colonnade.common.contracts.contract import Contract
from colonnade.common.contracts.registry import CONTRACTS
from colonnade.common.conversation.compression import arriving
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.crypto.pki.identity import Identity
from colonnade.common.crypto.pki.revocation import RevocationList
from colonnade.common.messaging.forms import Form
from colonnade.common.messaging.message import Kinds, largest_bytes
from colonnade.common.observability.endpoints import Endpoints
from colonnade.common.observability.telemetry import Listener, Telemetry
from colonnade.common.run.descriptors import raise_limit
from colonnade.common.wire.codec import Codec
from colonnade.common.wire.frame import FRAME_ALLOWANCE
from colonnade.server.member.admission import Admission, DataShape
from colonnade.server.member.hub import Hub
from colonnade.server.member.identity import own_identity
from colonnade.server.member.listen import Door, Greet, ServerTls, watch_handshakes
from colonnade.server.member.listen import Listener as Port

_PARTING = 10.0  # seconds that parties have for their farewell
_PARTING_EARLY = 2.0  # the same if the server was interrupted or has failed


@dataclass(frozen=True)
class ServerTask:
    """What a server does: training with its parties, or predictions with the trained model.

    Args:
        federation: the agreed section, adapted to this task.
        kinds: the messages that may travel, by name; `limits` bounds their dimensions.
        arriving: format of tensors from a party, by kind of message.
        purpose: what a Hello must state besides the agreed configuration.
        dismisses: True if parties may leave when the server is interrupted; else they redial for as long as a member
            may be away.
    """

    contract: Contract[Any]
    federation: FederationConfig
    kinds: Kinds
    limits: Mapping[str, int]
    arriving: Mapping[str, Form]
    purpose: Mapping[str, str] = field(default_factory=dict)
    dismisses: bool = False

    def codec(self) -> Codec:
        return Codec(self.kinds, self.arriving, self.limits)

    @property
    def largest(self) -> int:
        return max(
            (largest_bytes(kind, self.limits, self.arriving[name]) for name, kind in self.kinds.items()), default=0
        )


def training(federation: FederationConfig) -> ServerTask:
    contract = CONTRACTS[federation.protocol.name]
    kinds, limits = all_kinds(federation, contract), all_limits(federation, contract)
    return ServerTask(contract, federation, kinds, limits, arriving(federation.compress, kinds))


def prediction_task(federation: FederationConfig) -> ServerTask:
    """Prediction, until the work with the model is done. Raises InputError if the model cannot predict."""
    contract = prediction.contract(federation)
    kinds, limits = all_kinds(federation, contract), all_limits(federation, contract)
    arriving = dict.fromkeys(kinds, federation.compress.evaluations)
    return ServerTask(
        contract,
        prediction.prediction_federation(federation),
        kinds,
        limits,
        arriving,
        prediction.PURPOSE,
        dismisses=True,
    )


@dataclass
class ServerMember:
    """One start of the server: certificate, port, admission and farewell. Its tasks are training and prediction.

    Args:
        base: the folder that paths in the configuration are relative to.
        out: the run's folder, which exists.
        secure: False for no TLS, on loopback only; there is no `identity` then.
        transport: makes the server's end of connections.
    """

    federation: FederationConfig
    config: ServerConfig
    base: Path
    out: Path
    _: KW_ONLY
    secure: bool = True
    listeners: tuple[Listener, ...] = ()
    transport: Callable[[Codec, int, Greet, int], Door] = Port
    task: ServerTask = field(init=False)
    identity: Identity | None = field(init=False)
    _revoked: RevocationList = field(init=False)

    async def run(self) -> None:
        raise_limit()
        with Endpoints(SERVER, self.config) as watch:
            await self._serve(watch)

    async def _serve(self, watch: Endpoints) -> None:
        raise NotImplementedError

    def take_up(self, task: ServerTask) -> None:
        """Takes up a task, and reads the member's identity."""
        self.task, self.identity = task, own_identity(self.federation, self.config, self.base, secure=self.secure)
        self._revoked = RevocationList(None if self.config.revoked is None else self.base / self.config.revoked)

    def admission(self, data_shape: DataShape, run: str) -> Admission:
        return Admission(self.federation, data_shape, run, self._revoked, secure=self.secure, purpose=self.task.purpose)

    def watch_handshakes(self, telemetry: Telemetry) -> AbstractContextManager[None]:
        if not self.secure:
            return nullcontext()
        return watch_handshakes(lambda reason: telemetry.refused("unknown", reason))

    @asynccontextmanager
    async def listen(self, hub: Hub, telemetry: Telemetry, watch: Endpoints) -> AsyncIterator[None]:
        """Listens for parties. Raises EnvironmentFault if the port is not available."""
        names, identity = list(self.federation.names), self.identity
        tls = None if identity is None else ServerTls(identity.key_pem, identity.chain_pem, identity.ca_pem)
        port = self.transport(self.task.codec(), self.task.largest + FRAME_ALLOWANCE, hub.greet, len(names))
        try:
            bound = await port.start(self.config.listen, tls)
            host = self.config.listen.rpartition(":")[0]
            telemetry.event("listening", address=f"{host}:{bound}", waiting_for=names)
            watch.announce(telemetry)  # after the event that begins a start
            yield
        finally:
            await port.stop()

    async def converse(
        self,
        hub: Hub,
        work: Awaitable[object],
        over: Callable[[str, Exception | None], None],
        *,
        shared: Callable[[Exception], Exception] = lambda error: error,
        beside: Collection[asyncio.Future[None]] = (),
    ) -> None:
        """Runs the work while revoked parties are cut off; then sends the parties the error, or the end of the run.

        Args:
            over: called last, with completed, interrupted or failed, and the error of a failure.
            shared: maps an error to the one that parties receive.
            beside: cancelled before the farewell.
        """
        status, failed = "failed", None
        tasks = (asyncio.ensure_future(hub.watch_revocations()), *beside)
        try:
            await work
            status = "completed"
        except asyncio.CancelledError:
            status = "interrupted"
            raise
        except Exception as error:
            failed = error
            hub.say_failure(getattr(error, "party", SERVER), shared(error))
            raise
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if status != "interrupted" or self.task.dismisses:
                await hub.part(self._parting if status == "completed" else _PARTING_EARLY)
            over(status, failed)

    @property
    def _parting(self) -> float:
        """Seconds that parties have for their farewell; more if they wait for each other's last statements."""
        compared = self.federation.transcript.every and not self.task.dismisses
        return max(_PARTING, self.federation.timeouts.answer) if compared else _PARTING
