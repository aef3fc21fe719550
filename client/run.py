"""A party's process: from a configuration to a farewell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from client.context import ClientContext
from client.dialer import Membership
from client.door import Door
from client.protocols import PARTICIPATE
from common.config import FederationConfig, PartyConfig
from common.conversation import SERVER, Link
from common.crypto.identity import Identity, load_identity
from common.data.features import Features
from common.data.scale import Columns, Scaler
from common.data.sources import load_features
from common.data.split import Seat
from common.device import choose_device, release_free_memory
from common.errors import ConfigError, IdentityError
from common.membership import Hello
from common.message import largest_bytes
from common.privacy.ledger import Ledger
from common.privacy.release import release_clear
from common.protocols import CONTRACTS
from common.schedule import Schedule
from common.telemetry import Telemetry
from common.version import VERSION
from common.wire.codec import Codec
from common.wire.frame import FRAME_ALLOWANCE


@dataclass
class ClientRun:
    """One start of a party.

    Args:
        name: the party's.
        federation, config: the two sections of its file.
        base: the folder that paths in the file are relative to.
        out: the party's own folder, which exists.
        secure: False talks plainly, on loopback only.
        find_address: HOST:PORT of the server, or "" while it is not known yet; None takes the config's.
    """

    name: str
    federation: FederationConfig
    config: PartyConfig
    base: Path
    out: Path
    secure: bool = True
    find_address: Callable[[], str] | None = None

    async def run(self) -> None:
        """Takes part in the federation to its end.

        Raises:
            ColonnadeError: the party could not join, or the run has failed.
        """
        device = choose_device(self.config.device, self.federation.names.index(self.name))
        identity = self._identity()
        features = self._features()
        contract = CONTRACTS[self.federation.protocol.name]
        limits = contract.limits(self.federation)
        largest = max(largest_bytes(kind, limits) for kind in contract.messages) + FRAME_ALLOWANCE
        telemetry = Telemetry(self.out / "events.jsonl")
        ledger = Ledger(self.out / "ledger.jsonl")
        membership = Membership(Codec(contract.name, contract.kinds), largest, telemetry)
        try:
            pin = self.federation.server
            await membership.join(self._hello(features), self._address(), identity, pin, self.config.patience)
            schedule, columns = self._prepare(features)
            del features  # as the source had them; what is kept is scaled
            release_free_memory()
            door = Door(membership.post, SERVER, release_clear, ledger)
            link = Link(SERVER, contract.kinds, limits, door)
            ctx = ClientContext(
                self.name, self.federation, self.config, columns.to(device), schedule, door.release, self.base, device
            )
            await membership.attend(link, lambda: PARTICIPATE[contract.name](ctx, link))
        finally:
            await membership.leave()
            ledger.close()
            telemetry.close()

    def _features(self) -> Features:
        seat = Seat(self.federation.names.index(self.name), len(self.federation.names))
        return load_features(self.config.data, seat, self.base)

    def _prepare(self, features: Features) -> tuple[Schedule, Columns]:
        """The timetable, and the scaled features; only once the server has agreed to the row count."""
        schedule = Schedule(self.federation, len(features.values), features.official_test)
        scaler = Scaler.fit(self.config.data.scale, features.values, schedule.partition.train)
        return schedule, Columns(features.values, scaler)

    def _hello(self, features: Features) -> Hello:
        return Hello(
            self.name,
            self.federation.id,
            VERSION,
            config=self.federation.hashes(),
            rows=len(features.values),
            official_test=features.official_test,
        )

    def _identity(self) -> Identity | None:
        if not self.secure:
            return None
        if self.config.identity is None:
            hint = "name the folder with key.pem, cert.pem and ca.pem"
            raise ConfigError(f"parties.{self.name}.identity: missing", hint=hint)
        identity = load_identity(self.base / self.config.identity)
        if identity.name != self.name:
            raise IdentityError(
                f"this is the configuration of {self.name!r}, and {self.config.identity} holds the certificate "
                f"of {identity.name!r}",
                hint="give every party its own configuration and its own identity",
            )
        if not self.federation.server:
            hint = "`colonnade certs show cert.pem` prints it at the server"
            raise ConfigError("federation.server: no fingerprint of the server's certificate", hint=hint)
        return identity

    def _address(self) -> Callable[[], str]:
        if self.find_address is not None:
            return self.find_address
        if not self.config.connect:
            raise ConfigError(f"parties.{self.name}.connect: missing", hint="give the server's HOST:PORT")
        return lambda: self.config.connect
