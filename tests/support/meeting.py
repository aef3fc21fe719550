"""A server and three parties that agree on keys, on the virtual clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from colonnade.client.aggregation.key_agreement import Keys, agree
from colonnade.client.training.context import ClientContext
from colonnade.common.aggregation.messages import AGREEMENT, agreement_limits
from colonnade.common.config.members import Config
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.conversation.inprocess import connect, run_virtual
from colonnade.common.conversation.parcels import Item
from colonnade.common.crypto.pki.authority import make_federation
from colonnade.common.crypto.pki.identity import Identity, load_identity
from colonnade.common.crypto.sealing import Session
from colonnade.common.crypto.signatures import Signer
from colonnade.common.observability.telemetry import Telemetry
from colonnade.server.aggregation.key_agreement import introduce
from colonnade.server.training.context import ServerContext
from colonnade.simulation.contexts import client_context, server_context
from tests.support.altered_lines import replace_each
from tests.support.federation import config

NAMES = ("ada", "bob", "eve")
KINDS = {kind.__name__: kind for kind in AGREEMENT}
SESSION = Session("test", "run 1", 7)

Passes = Callable[[Item], Item | None]


@dataclass
class Meeting:
    """A server and its parties that agree on keys.

    Args:
        pins: fingerprints by member; none without certificates.
        identities: by member; none without certificates.
        passes: maps a message of the server to the one that its party receives; None drops it.
        round: that was restored.
        sessions: of a party that takes this for another session than the others.
    """

    pins: Mapping[str, str] = field(default_factory=dict)
    identities: Mapping[str, Identity] = field(default_factory=dict)
    passes: Mapping[str, Passes] = field(default_factory=dict)
    round: int = 0
    sessions: Mapping[str, Session] = field(default_factory=dict)

    def run(self) -> Outcome:
        """Runs both ends."""
        return run_virtual(self._main())

    async def _main(self) -> Outcome:
        clients, servers = connect(list(NAMES), KINDS, agreement_limits(len(NAMES)))
        for name, passes in self.passes.items():
            replace_each(clients[name], lambda item, passes=passes: [one for one in [passes(item)] if one is not None])
        sides = [agree(self.client(name), servers[name]) for name in NAMES]
        signer, *keys = await asyncio.gather(introduce(self.server(), clients), *sides)
        return Outcome(signer, dict(zip(NAMES, keys, strict=True)))

    def client(self, name: str) -> ClientContext:
        """A party's context."""
        ctx, session = contexts()[1][name], self.sessions.get(name, SESSION)
        federation = self.pinned(ctx.federation)
        return replace(
            ctx, federation=federation, identity=self.identities.get(name), session=session, round=self.round
        )

    def server(self) -> ServerContext:
        """The server's context."""
        ctx = contexts()[0]
        identity = self.identities.get(SERVER)
        return replace(ctx, federation=self.pinned(ctx.federation), identity=identity, round=self.round)

    def pinned(self, federation: Any) -> Any:
        pins = {name: self.pins.get(name, "") for name in NAMES}
        return federation.model_copy(update={"parties": pins, "server": self.pins.get(SERVER, "")})


@dataclass
class Outcome:
    """The server's signer, and every party's keys."""

    signer: Signer
    keys: dict[str, Keys]


@cache
def contexts() -> tuple[ServerContext, dict[str, ClientContext]]:
    """Parties of a small federation; nothing here needs their data."""
    roster, protocol = ", ".join(NAMES), {"name": "fedvs", "stragglers": 0}
    cfg: Config = config(protocol, f"federation.parties=[{roster}]", "federation.timeouts.answer=5")
    clients = {name: client_context(cfg, name, Path()) for name in NAMES}
    return server_context(cfg, Path(), Telemetry()), clients


def certified_meeting(folder: Path) -> Meeting:
    """Three parties and a server with certificates, made in a folder that is not there yet."""
    pins = make_federation(folder, NAMES)
    return Meeting(pins, {name: load_identity(folder / name) for name in (SERVER, *NAMES)})
