"""The server's process: from a configuration to a summary."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from torch import Tensor

from colonnade.common.alignment.keys import Keys
from colonnade.common.alignment.messages import all_kinds, all_limits
from colonnade.common.alignment.record import Record
from colonnade.common.alignment.seed import NAME as SEED
from colonnade.common.alignment.seed import Seed
from colonnade.common.checkpointing.checkpoints import Checkpoints, Owner
from colonnade.common.checkpointing.run_cache import Once
from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.members import ServerConfig
from colonnade.common.config.schedule import Schedule
from colonnade.common.contracts.registry import CONTRACTS
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.crypto.pki.identity import Identity, load_identity
from colonnade.common.crypto.pki.revocation import RevocationList
from colonnade.common.data.columns.kept_encoder import EncoderFile
from colonnade.common.data.labels import Labels
from colonnade.common.data.sources import load_labels
from colonnade.common.errors import CheckpointError, ConfigError, IdentityError
from colonnade.common.messaging.message import largest_bytes
from colonnade.common.network.ports import refuse_taken
from colonnade.common.observability.endpoints import Watch
from colonnade.common.observability.telemetry import Event, Listener, Telemetry, advances
from colonnade.common.privacy.labels import NoisyLabels
from colonnade.common.runtime.descriptors import raise_limit
from colonnade.common.runtime.device import choose_device
from colonnade.common.wire.codec import Codec
from colonnade.common.wire.frame import FRAME_ALLOWANCE
from colonnade.common.wire.listen import Listener as Port
from colonnade.common.wire.listen import ServerTls
from colonnade.server.alignment.rows import Rows
from colonnade.server.fusion.active import load_columns
from colonnade.server.membership.admission import Admission, Facts
from colonnade.server.membership.handshakes import watch_handshakes
from colonnade.server.privacy.label_budget import RowReleases, open_releases
from colonnade.server.privacy.label_digest import digest_of, hold_labels
from colonnade.server.privacy.noisy_labels import NoisyLabelFile
from colonnade.server.reporting.summary import summarise, write_whole
from colonnade.server.reporting.timeline import timeline
from colonnade.server.run.metrics import ServerMetrics
from colonnade.server.run.sessions import Sessions
from colonnade.server.training.context import ServerContext, check_labels

_PARTING = 10.0  # seconds that parties have for their farewell


@dataclass
class ServerRun:
    """One start of the server.

    Args:
        federation, config: the two sections of its file.
        base: the folder that paths in the file are relative to.
        out: the run's folder, which exists.
        secure: False talks plainly, on loopback only.
        launched: when the run was started, seconds since 1970.
        listeners: told of every event, for progress lines.
    """

    federation: FederationConfig
    config: ServerConfig
    base: Path
    out: Path
    secure: bool = True
    launched: float = 0.0
    listeners: tuple[Listener, ...] = ()

    def __post_init__(self) -> None:
        self.launched = self.launched or time.time()
        self._first: float | None = None
        self.went_on = False
        """Whether this start has come to a round or to the end of the run. Else an earlier start's summary holds."""

    async def run(self) -> None:
        """Serves the federation to its end and leaves summary.json, however it ends.

        Raises:
            ColonnadeError: the run could not begin or has failed; the summary then says so too.
        """
        raise_limit()
        with Watch(SERVER, self.config) as watch:
            await self._serve(watch)

    async def _serve(self, watch: Watch) -> None:
        device = choose_device(self.config.device)
        identity = own_identity(self.federation, self.config, self.base, secure=self.secure)
        tls = None if identity is None else ServerTls(identity.key_pem, identity.chain_pem, identity.ca_pem)
        revoked = RevocationList(None if self.config.revoked is None else self.base / self.config.revoked)
        begun, number = (self.out / "run.json").exists(), self._run_number()
        store = Checkpoints(self.out / "checkpoints")
        store.refuse_others(SERVER, self.federation.lasting_hashes(), number)  # before anything is written
        refuse_taken(self.config.listen, "server.listen")
        labels = load_labels(self.config.labels, self.base, self.federation.task)
        check_labels(labels, self.federation)
        schedule = Schedule(self.federation, len(labels.values), labels.official_test)
        aligned, once = self.federation.align != "none", Once(self.out / "once")
        keys = Keys.of(labels.ids, self.federation.keys, SERVER, self.out) if aligned else None
        telemetry = Telemetry(self.out / "events.jsonl", self._note_first, watch, *self.listeners)
        values = labels.values.to(device)
        ctx = ServerContext(self.federation, self.config, values, schedule, telemetry, self.base, device)
        ctx.identity, ctx.once = identity, once
        facts, rows = Facts(len(labels.values), labels.official_test), None
        if keys is None:
            self._equip(ctx, labels, begun=begun)
        else:
            record = Record(once, keys, SERVER)
            again = partial(self._dress, ctx, labels, begun=bool(record.number))
            kinds = CONTRACTS[self.federation.protocol.name].kinds
            rows = Rows(self.federation, record, telemetry, kinds, again, Seed(self.out / "once" / SEED))
        without = labels.without
        held = None if begun or aligned else digest_of(labels)
        del labels, values  # what is protected is in the context alone
        with closing(telemetry), self._watch_handshakes(telemetry):
            session = self._sessions(ctx, facts, revoked, rows, number)
            watch.show(ServerMetrics(session))
            port = self._port(session)
            try:
                bound = await port.start(self.config.listen, tls)
                host = self.config.listen.rpartition(":")[0]
                telemetry.event("listening", address=f"{host}:{bound}", waiting_for=list(self.federation.names))
                watch.announce(telemetry)  # after it, with which a start begins
                if without:
                    ctx.warn(without)
                if held is not None:
                    hold_labels(once, held)
                await self._converse(session)
            finally:
                await port.stop()

    def _port(self, session: Sessions) -> Port:
        federation, contract = self.federation, CONTRACTS[self.federation.protocol.name]
        kinds, limits = all_kinds(federation, contract), all_limits(federation, contract)
        incoming = federation.compress.arriving(kinds)
        largest = max((largest_bytes(kind, limits, incoming[name]) for name, kind in kinds.items()), default=0)
        codec = Codec(kinds, incoming, limits)
        return Port(codec, largest + FRAME_ALLOWANCE, session.hub.greet, len(federation.names))

    def _protect(
        self, labels: Labels, schedule: Schedule, begun: bool
    ) -> tuple[NoisyLabels | None, RowReleases | None]:
        """What stands in for the training labels, and what counts answers, where the configuration asks for them."""
        private, federation = self.config.privacy, self.federation
        noisy = NoisyLabelFile(self.out, begun=begun).get(
            private.labels, labels.values, schedule.partition.train, federation.outputs, federation.seed
        )
        rows, parties = len(labels.values), len(federation.names)
        return noisy, open_releases(private.answers, schedule, parties, rows, self.out, begun=begun)

    def _dress(self, ctx: ServerContext, labels: Labels, rows: Tensor, *, begun: bool) -> None:
        """Gives the context the rows that count in the place of all, int64 (common,)."""
        common = labels.rows(rows)
        ctx.take(common.values.to(ctx.device), Schedule(self.federation, len(rows), 0))
        self._equip(ctx, labels, common, rows, begun=begun)

    def _equip(
        self,
        ctx: ServerContext,
        labels: Labels,
        common: Labels | None = None,
        sample: Tensor | None = None,
        *,
        begun: bool,
    ) -> None:
        """Gives the context what goes with its rows.

        Args:
            common, sample: of aligned rows, their labels and where they stand in the table, int64 (common,).
        """
        kept = EncoderFile(self.out, begun=begun and bool(Checkpoints(self.out / "checkpoints").usable()))
        columns = load_columns(
            self.federation, self.config, ctx.schedule, self.base, len(labels.values), sample, kept, labels.ids
        )
        ctx.columns = columns and columns.to(ctx.device)
        noisy, ctx.releases = self._protect(
            labels if common is None else common, ctx.schedule, begun
        )  # last: it draws and keeps noise
        ctx.protect(noisy)

    def _sessions(
        self, ctx: ServerContext, facts: Facts, revoked: RevocationList, rows: Rows | None, number: str
    ) -> Sessions:
        store = Checkpoints(self.out / "checkpoints", partial(self._warn, ctx.telemetry))
        store.prepare()
        owner = Owner(SERVER, number, self.federation.lasting_hashes())
        admission = Admission(self.federation, facts, owner.run, revoked, secure=self.secure)
        return Sessions(ctx, store, owner, admission, self.out, rows)

    def _run_number(self) -> str:
        """The run's own number: drawn at its beginning, and read again by whoever resumes it."""
        path = self.out / "run.json"
        if not path.exists():
            return secrets.token_hex(8)
        try:
            return str(json.loads(path.read_text())["run"])
        except (ValueError, KeyError, TypeError):
            raise CheckpointError(f"{path} is torn or was altered", hint="begin a new run") from None

    @staticmethod
    def _warn(telemetry: Telemetry, reason: str) -> None:
        telemetry.event("warning", party=SERVER, reason=reason)

    def _watch_handshakes(self, telemetry: Telemetry) -> AbstractContextManager[None]:
        if not self.secure:
            return nullcontext()
        return watch_handshakes(lambda reason: telemetry.refused("unknown", reason))

    async def _converse(self, sessions: Sessions) -> None:
        status, reason = "failed", None
        ctx, hub = sessions.ctx, sessions.hub
        guard = asyncio.create_task(hub.watch_revocations())
        try:
            await sessions.run()
            status = "completed"
        except asyncio.CancelledError:
            status = "interrupted"  # nobody is told: parties dial again for as long as a member may be away
            raise
        except Exception as error:
            reason = str(error)
            hub.say_failure(getattr(error, "party", "server"), error)
            raise
        finally:
            guard.cancel()
            if ctx.releases is not None:
                ctx.releases.close()
            if status != "interrupted":
                await hub.part(_PARTING if status == "completed" else 2.0)
            ctx.telemetry.event("end", status=status, round=ctx.round, phases=ctx.phases.summary())
            events = self.out / "events.jsonl"
            if self.went_on or not (self.out / "summary.json").exists():
                summary = summarise(ctx, hub, status, reason, self.launched, self._first, sessions.saving.best)
                write_whole(self.out / "summary.json", {**summary, "timeline": timeline(events, self.federation.names)})

    def _note_first(self, event: Event) -> None:
        if advances(event) and not self.went_on:
            self.went_on = True
            (self.out / "summary.json").unlink(missing_ok=True)  # of the start before this one
        if event["kind"] == "round" and self._first is None:
            self._first = event["time"]


def own_identity(federation: FederationConfig, config: ServerConfig, base: Path, *, secure: bool) -> Identity | None:
    """The server's key and certificate; None on loopback without TLS.

    Raises:
        ConfigError: there is none, or a party's fingerprint is missing; or it is not to be secure, and not on loopback.
        IdentityError: it is another member's.
    """
    if not secure:
        _only_loopback(config.listen)
        return None
    if config.identity is None:
        raise ConfigError("server.identity: missing", hint="name the folder with key.pem, cert.pem and ca.pem")
    unpinned = [name for name, pin in federation.parties.items() if not pin]
    if unpinned:
        raise ConfigError(
            f"federation.parties.{unpinned[0]}: no certificate fingerprint",
            hint="`colonnade certs show cert.pem` prints it; `colonnade up` fills in throw-away ones",
        )
    identity = load_identity(base / config.identity)
    if identity.name != "server":
        raise IdentityError(
            f"{config.identity} holds the certificate of {identity.name!r}, the server needs its own",
            hint="point server.identity at the server's folder",
        )
    return identity


def _only_loopback(address: str) -> None:
    host = address.rpartition(":")[0].strip("[]")
    if host not in ("127.0.0.1", "localhost", "::1"):
        raise ConfigError(
            f"--insecure with {address}: plain connections are for loopback only",
            hint="listen on 127.0.0.1, or give the server an identity",
        )
