"""A party's process: from a configuration to a farewell."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from colonnade.client.alignment.rows import TableRenewed
from colonnade.client.dialling.dial import Dialer, Dialling
from colonnade.client.dialling.membership import Membership
from colonnade.client.member.identity import own_identity
from colonnade.client.member.line import PartyTask, prediction_task, training
from colonnade.client.member.sessions import PartySessions
from colonnade.client.member.tracking import party_tracking, tracked
from colonnade.client.ranks.group import Group
from colonnade.common.alignment.keys import RowKeys
from colonnade.common.alignment.messages import all_kinds, all_limits
from colonnade.common.config.compression import form_of
from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.members import PartyConfig
from colonnade.common.contracts.owner import owner_of
from colonnade.common.contracts.registry import agreed_parts
from colonnade.common.conversation.parcels import Hello
from colonnade.common.crypto.pki.identity import Identity
from colonnade.common.data.columns.doubts import doubts
from colonnade.common.data.columns.features import Features
from colonnade.common.data.columns.kept_encoder import EncoderFile
from colonnade.common.data.sources import load_features
from colonnade.common.data.table_cache import TableCache
from colonnade.common.errors import ColonnadeError, ConfigError, PartyAway
from colonnade.common.messaging.message import largest_bytes
from colonnade.common.observability import metric
from colonnade.common.observability.endpoints import Endpoints
from colonnade.common.observability.metric import Metric
from colonnade.common.observability.telemetry import Event, Listener, Telemetry
from colonnade.common.run.checkpoints import Checkpoints
from colonnade.common.run.descriptors import raise_limit
from colonnade.common.run.device import choose_device, release_free_memory
from colonnade.common.run.event_loop import on_hangup
from colonnade.common.run.run_folder import PartyFolder
from colonnade.common.version import VERSION
from colonnade.common.wire.codec import Codec
from colonnade.common.wire.frame import FRAME_ALLOWANCE


@dataclass
class PartyMember:
    """One start of a party.

    Args:
        out: the party's own folder, which exists.
        secure: False for no TLS, on loopback only.
        find_address: returns the server's HOST:PORT, or "" while unknown; None uses the configuration's.
        answers: True for predictions.
        transport: makes the party's end of connections.
        ranks: the processes that compute for this one; None without.
    """

    name: str
    federation: FederationConfig
    config: PartyConfig
    base: Path
    out: Path
    secure: bool = True
    find_address: Callable[[], str] | None = None
    listeners: tuple[Listener, ...] = ()
    answers: bool = False
    transport: Callable[[Codec, int], Dialling] = Dialer
    ranks: Group | None = None
    _table: Features | None = field(default=None, init=False)

    async def run(self) -> None:
        raise_limit()
        with Endpoints(f"parties.{self.name}", self.config) as watch:
            await self._take_part(watch)

    async def _take_part(self, watch: Endpoints) -> None:
        # Ranks compute on CPUs, whatever `auto` would find.
        device = choose_device(
            "cpu" if self.ranks else self.config.device, self.federation.names.index(self.name),
            repeatable=self.config.repeatable,
        )  # fmt: skip
        identity = own_identity(self.name, self.federation, self.config, self.base) if self.secure else None
        self.config.policy.refuse(self.name, self.federation)
        folder = PartyFolder(self.out)
        owner = owner_of(self.federation, self.name, self.config, self.base, trains=not self.answers)
        Checkpoints(folder.checkpoints).refuse_others(owner)
        tracking = None
        if not self.answers:
            tracking = party_tracking(self.name, self.federation, self.config, self.base, self.out)
        # A prediction's table with other rows must not replace the cached training table.
        cache = TableCache(self.out, writes=not self.answers or self.federation.align == "none")
        read = self._features(cache)
        task = prediction_task(self.federation) if self.answers else training(self.federation)
        address, pin = self._address(), self.federation.server
        doubtful = read.doubts if self.answers else doubts(read)  # training reported those about its columns
        contract = task.contract
        kinds, limits = all_kinds(self.federation, contract), all_limits(self.federation, contract)
        incoming = form_of(self.federation.compress.down)
        sizes = (largest_bytes(kind, limits, incoming) for kind in kinds.values())
        largest = max(sizes, default=0) + FRAME_ALLOWANCE
        log = f"party.{self.name}"
        with (
            closing(Telemetry(task.events(folder), watch, *self.listeners, log=log)) as telemetry,
            ExitStack() as ending,
        ):
            store = Checkpoints(folder.checkpoints, partial(self._warn, telemetry))
            store.prepare()
            sessions = PartySessions(
                self.name,
                self.federation,
                self.config,
                self.base,
                out=self.out,
                device=device,
                store=store,
                telemetry=telemetry,
                task=task,
                identity=identity,
                ranks=self.ranks,
            )
            if tracking is not None:
                telemetry.add(tracking)
                tracking.report = telemetry.pass_on
                ending.enter_context(tracked(tracking, sessions))
            membership = Membership(Codec(kinds, incoming, limits), largest, telemetry, folder.ledger, self.transport)
            watch.show(ClientMetrics(sessions, membership))
            watch.announce(telemetry)
            for doubt in doubtful:
                self._warn(telemetry, str(doubt))
            self._table = read
            del read
            await self._converse(_Joining(membership, address, identity, pin), sessions, task, cache)

    async def _converse(self, joining: _Joining, sessions: PartySessions, task: PartyTask, cache: TableCache) -> None:
        """Takes part over as many connections as needed, with the first table and its replacements."""
        features, self._table = self._table, None  # frees the unscaled table once the sessions have taken it
        assert features is not None  # `_take_part` sets it
        membership, telemetry, hello = joining.membership, sessions.telemetry, self._hello(features, task)
        reload = self._reload(features, telemetry) if self.answers else None
        patience = self.federation.timeouts.away
        until = time.monotonic() + patience
        while True:
            left = max(until - time.monotonic(), 0.0)
            try:
                await membership.join(sessions.greeting(hello), joining.address, joining.identity, joining.pin, left)
                if features is not None:
                    if self.federation.align == "none":
                        await sessions.announce(membership, features)
                    with membership.telling():
                        sessions.take(features)
                    cache.keep()
                    features = None  # frees the unscaled copy; the sessions keep the scaled one
                    release_free_memory()
                if await _attend(sessions, membership, hello, reload):
                    phases = sessions.progress.phases.summary()
                    telemetry.event("end", party=self.name, round=sessions.progress.round, phases=phases)
                    return
                assert reload is not None  # only a reload ends `_attend` early
                features = reload.take()
                hello = self._hello(features, task)
                sessions.forget_rows()
                until = time.monotonic() + patience
            except TableRenewed:
                until = time.monotonic() + patience
            except PartyAway as away:
                telemetry.event("server_away", reason=str(away))
                until = max(until, sessions.begun + patience)
            finally:
                await membership.leave()

    def _warn(self, telemetry: Telemetry, reason: str) -> None:
        telemetry.event("warning", party=self.name, reason=reason)

    def _reload(self, now: Features, telemetry: Telemetry) -> TableReload | None:
        """Reads the table again at every SIGHUP; with rows matched by order, only the training table is accepted."""
        if self.federation.align == "none":
            on_hangup(
                partial(self._warn, telemetry, "its rows are matched by their order: the table is not read again")
            )
            return None
        kept = EncoderFile(self.out, begun=True)
        read = partial(self._features, TableCache(self.out))
        reload = TableReload(self.name, self.federation, read, kept, telemetry.event, now)
        on_hangup(reload.request)
        return reload

    def _features(self, cache: TableCache) -> Features:
        begun = self.answers or bool(Checkpoints(PartyFolder(self.out).checkpoints).run())
        kept = EncoderFile(self.out, begun=begun)
        return load_features(self.config.data, self.federation.party_index(self.name), self.base, cache, kept)

    def _hello(self, features: Features, task: PartyTask) -> Hello:
        return Hello(
            self.name,
            self.federation.id,
            VERSION,
            config={**self.federation.stated(), **agreed_parts(self.federation), **task.purpose},
            rows=len(features.values),
            official_test=features.official_test,
        )

    def _address(self) -> Callable[[], str]:
        if self.find_address is not None:
            return self.find_address
        if not self.config.connect:
            raise ConfigError(f"parties.{self.name}.connect: missing", hint="give the server's HOST:PORT")
        return lambda: self.config.connect


@dataclass(frozen=True)
class _Joining:
    membership: Membership
    address: Callable[[], str]
    identity: Identity | None
    pin: str


async def _attend(sessions: PartySessions, membership: Membership, hello: Hello, reload: TableReload | None) -> bool:
    """Takes part to the end; returns False as soon as a new table is ready and no request is being answered."""
    running = asyncio.ensure_future(sessions.run(membership, hello))
    waits = [running] if reload is None else [running, asyncio.ensure_future(reload.due(sessions.idle))]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            return False
        running.result()
        return True
    finally:
        for task in waits:
            task.cancel()
        await asyncio.gather(*waits, return_exceptions=True)


class ClientMetrics:
    def __init__(self, sessions: PartySessions, membership: Membership) -> None:
        self._sessions, self._membership = sessions, membership
        self._joined = False

    def __call__(self, event: Event) -> None:
        if event["kind"] in ("join", "server_away"):
            self._joined = event["kind"] == "join"

    def collect(self) -> Iterator[Metric]:
        name, own = self._sessions.name, self._sessions.progress
        yield metric.build(self._sessions.federation, name)
        yield from metric.rounds(own.done, own.round, own.planned)
        yield metric.round_seconds(own.phases.seconds(), own.done)
        yield from metric.traffic({name: {"up": own.traffic.sent, "down": own.traffic.received}})
        sent, received = self._membership.wire
        yield metric.wire({("up", name): sent, ("down", name): received})
        yield metric.connected({name: self._joined})
        yield metric.queues({("unsent", name): self._membership.unsent, ("unread", name): own.unread})
        if own.privacy is not None:
            yield from metric.privacy(own.privacy.plan, {name: own.privacy.releases})
        yield metric.checkpoint(own.saved)


class TableReload:
    def __init__(
        self,
        name: str,
        federation: FederationConfig,
        read: Callable[[], Features],
        kept: EncoderFile,
        report: Callable[..., Any],
        now: Features,
    ) -> None:
        self._name, self._federation, self._read, self._kept = name, federation, read, kept
        self._report, self._now, self._next = report, now, now
        self._ready, self._again = asyncio.Event(), False
        self._task: asyncio.Task[None] | None = None

    def request(self) -> None:
        """Begins to read the table; a request during a read causes one more read."""
        self._again = True
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._work())

    async def due(self, idle: asyncio.Event) -> None:
        """Waits until there is a new table and the party answers no request."""
        while not (self._ready.is_set() and idle.is_set()):
            await self._ready.wait()
            await idle.wait()

    def take(self) -> Features:
        self._ready.clear()
        self._now = self._next
        return self._now

    async def _work(self) -> None:
        while self._again:
            self._again = False
            try:
                found = await asyncio.to_thread(self._checked)
            except (ColonnadeError, OSError) as wrong:
                said = f"its table was not read again, and the one before stays: {wrong}"
                hint = getattr(wrong, "hint", "")
                self._report("warning", party=self._name, reason=f"{said}; {hint}" if hint else said)
                continue
            rows = len(found.values)
            for doubt in found.doubts:
                self._report("warning", party=self._name, reason=str(doubt))
            same = found.fingerprint == self._next.fingerprint
            said = f"the same {rows} rows" if same else f"{rows} rows, of which all values are used from now on"
            self._report("reloaded", party=self._name, rows=rows, same=same, said=f"its table was read again: {said}")
            if not same:
                self._next = found
                self._ready.set()

    def _checked(self) -> Features:
        found = self._read()
        RowKeys.of(found.ids, self._federation.keys, self._name)
        self._kept.read().apply(found)
        return found
