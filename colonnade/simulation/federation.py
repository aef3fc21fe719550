"""A whole federation in one event loop on the virtual clock: members as processes have them, over streams in memory.

Time passes only as the members' `chaos` sections say; computing takes none by default (computing.py). An hour of
stragglers passes in seconds, and always in the same way.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from colonnade.client.dialling.membership import Membership
from colonnade.client.member.line import training
from colonnade.client.member.sessions import PartySessions
from colonnade.client.privacy.mechanisms import Privacy
from colonnade.client.training.context import ClientContext
from colonnade.client.transcript.capture import Capture
from colonnade.common.alignment.messages import all_kinds, all_limits
from colonnade.common.alignment.store import kept_rows
from colonnade.common.config.chaos import Pause
from colonnade.common.config.members import Config
from colonnade.common.contracts.owner import owner_of
from colonnade.common.contracts.registry import CONTRACTS, agreed_parts
from colonnade.common.contracts.schedule import Schedule
from colonnade.common.conversation import inprocess
from colonnade.common.conversation.chaos import Chaos
from colonnade.common.conversation.conversation import SERVER, Cohort, Link
from colonnade.common.conversation.inprocess import Carry, Delay, MemoryConnection
from colonnade.common.conversation.parcels import Hello, Save
from colonnade.common.crypto.pki.revocation import RevocationList
from colonnade.common.data.columns.doubts import doubts
from colonnade.common.data.columns.features import Features
from colonnade.common.data.columns.kept_encoder import EncoderFile
from colonnade.common.data.rows import sampled
from colonnade.common.data.sources import load_features, refuse_own_labels
from colonnade.common.data.table_cache import TableCache
from colonnade.common.errors import ConfigError, PartyFailed, TrainingDiverged
from colonnade.common.messaging.message import Message, largest_bytes, snapshot
from colonnade.common.observability.telemetry import Event, Telemetry
from colonnade.common.parsing.dump import config_files, config_tree, files_beside
from colonnade.common.parsing.error_messages import whose
from colonnade.common.run.activity import activity
from colonnade.common.run.checkpoints import Checkpoints, MemoryCheckpoints
from colonnade.common.run.files import rehearsal, write_durably
from colonnade.common.run.json_text import read_lines
from colonnade.common.run.run_cache import RunCache
from colonnade.common.run.run_folder import STAMP, PartyFolder, RunFolder
from colonnade.common.run.start_secret import StartSecret
from colonnade.common.run.state import Snapshot
from colonnade.common.version import VERSION
from colonnade.common.wire.codec import Codec
from colonnade.server.member.admission import Admission
from colonnade.server.member.context import ServerParts, Timetable
from colonnade.server.member.saving import run_number
from colonnade.server.member.sessions import ServerSessions
from colonnade.server.member.traffic import Totals
from colonnade.server.privacy import hold_labels
from colonnade.server.protocols import SERVE
from colonnade.server.training.context import ServerContext
from colonnade.simulation.computing import Benches
from colonnade.simulation.contexts import Side, refuse_other_rows, virtual_device


@dataclass(repr=False)  # asyncio.Runner prints the result's repr when it restores its signal handler
class Outcome:
    """Result of a run: contexts of both sides, every event, and every message in order of sending.

    Attributes:
        privacy: every party's policy, budget and count of releases.
        saved: every member's state after each round, if requested.
        seconds: virtual duration, from the first round to the last.
        totals: bytes of tensors by party and direction, and late messages, over all starts of the run.
        best_saved: the best round whose checkpoint all members hold, 0 if none.
        left: number and bytes of sent messages, by party and kind.
    """

    server: ServerContext
    totals: Totals
    clients: dict[str, ClientContext] = field(default_factory=dict)
    privacy: dict[str, Privacy] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    messages: list[tuple[str, str, Message]] = field(default_factory=list)
    saved: dict[int, dict[str, Snapshot]] = field(default_factory=dict)
    status: str = "failed"
    error: Exception | None = None
    seconds: float = 0.0
    best_saved: int = 0
    captures: dict[str, Capture] = field(default_factory=dict)
    left: dict[str, dict[str, list[int]]] = field(default_factory=dict)

    @property
    def payload(self) -> tuple[int, int]:
        return self.totals.payload()

    @property
    def late(self) -> dict[str, int]:
        return {name: self.totals.late[name] for name in self.clients}

    def of_kind(self, event: str) -> list[Event]:
        return [e for e in self.events if e["kind"] == event]


class RunFiles:
    """The folder of a simulated run.

    Args:
        whole: True for the whole tables, so that the run can resume and predict; False for a sample of rows, which is
            used only by attacks.

    Attributes:
        begun: True if the folder holds a run to resume.
    """

    def __init__(self, folder: Path, config: Config, base: Path, *, whole: bool = True) -> None:
        self.folder, self._config, self._base, self._whole = RunFolder(folder), config, base, whole
        self.begun = self.folder.run.exists()
        self.number = run_number(self.folder, Checkpoints(self.folder.checkpoints))

    def home(self, member: str) -> Path:
        found = self.folder.member(member)
        found.make()
        return found.path

    def checkpoints(self, member: str) -> Checkpoints:
        return Checkpoints(self.folder.member(member).checkpoints)

    def encoder(self, member: str) -> EncoderFile:
        return EncoderFile(self.home(member), begun=bool(self.checkpoints(member).run()))

    def tables(self, member: str) -> TableCache:
        return TableCache(self.folder.member(member).path, writes=True)

    def seconds_before(self) -> float:
        """Time of the newest event of earlier starts, 0 if there is none."""
        return max((float(event.get("time", 0)) for event in read_lines(self.folder.events)), default=0.0)

    def keep_config(self) -> None:
        tree = config_tree(self._config)
        place = self.folder.launch if self._whole else self.folder.simulated
        where = self.folder.place(self._base, files_beside(tree, self._base))
        for path, text in {
            **config_files(tree, self.folder),
            place: json.dumps({**where, "clock": "virtual", **({} if self._whole else STAMP)}),
        }.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_durably(path, text.encode())


Snapshots = Mapping[str, Snapshot]

_NUMBER = "simulated"  # of a run without a folder
_INSTANT = 1e-9  # seconds
_NOTHING = Snapshot({}, {})
# Events of members that say nothing in one process, of the server and of parties.
_SERVERS = {"aligning", "failed", "join", "late", "leave"}
_PARTIES = {"aligned", "aligning", "begin", "capture", "checkpoint", "end", "join", "privacy"}


@dataclass
class Simulation:
    """One run.

    Args:
        delay: seconds that items take, in addition to the parties' chaos.
        record: True to keep every message; `save` to keep every member's state after every round.
        start: round to resume from, and every member's state after it; members without one begin anew.
        on_cohort: called with the server's links before the rounds begin.
        files: the run's ledgers, checkpoints and captures; None keeps none.
        sample: rows of the sources to use, int64; None for all.
        timetable: makes every member's schedule, and thus partitions the rows.
        thorough: True for every metric in every evaluation, not only after the last round.
        aligned: every member's rows in their common order, as `find_rows` gives them; None to find them.
        instead: replacements of members' sides, by name, for attacks and tests.
        caches: by member, results computed once per run; those of the simulation that `start` comes from.
    """

    config: Config
    base: Path = Path()
    delay: Delay = lambda _from, _to, _item: 0.0
    record: bool = False
    save: bool = False
    start: tuple[int, Snapshots] = (0, MappingProxyType({}))
    telemetry: Telemetry | None = None
    on_cohort: Callable[[Cohort], None] = lambda _cohort: None
    files: RunFiles | None = None
    sample: Tensor | None = None
    timetable: Timetable = Schedule
    thorough: bool = False
    aligned: Mapping[str, Tensor] | None = None
    instead: Mapping[str, Side] = field(default_factory=dict)
    caches: dict[str, RunCache] = field(default_factory=dict)
    outcome: Outcome | None = field(default=None, init=False)
    benches: Benches = field(init=False)
    server: VirtualServer = field(init=False)
    parties: dict[str, PartySessions] = field(default_factory=dict, init=False)
    greetings: list[asyncio.Task[None]] = field(default_factory=list, init=False)
    _cohort: Cohort = field(init=False)
    _told: Telemetry = field(init=False)
    _saved: int = field(default=0, init=False)  # the newest round whose states are kept
    _before: float = field(default=0.0, init=False)  # time of the newest event of earlier starts
    _events: list[Event] = field(default_factory=list, init=False)
    _messages: list[tuple[str, str, Message]] = field(default_factory=list, init=False)

    def run(self, loop: Callable[[float], inprocess.VirtualLoop] = inprocess.VirtualLoop) -> Outcome:
        """Runs server and parties to their end. `loop` makes an event loop whose clock starts at its argument."""
        for name, party in self.config.parties.items():
            if party.chaos.crash is not None:
                raise ConfigError(
                    f"parties.{name}.chaos.crash = {party.chaos.crash}: nothing can crash on the virtual clock",
                    hint="run it with `up`, or pause instead",
                )
        # Models may draw from torch's own generator.
        with rehearsal(), torch.random.fork_rng(devices=[]), ExitStack() as ending:
            if self.files is None and self.config.federation.back_off and not self.start[0]:
                folder = Path(ending.enter_context(TemporaryDirectory(prefix="colonnade-")))
                self.files = RunFiles(folder, self.config, self.base, whole=self.sample is None)
                ending.callback(setattr, self, "files", None)
            return inprocess.run_virtual(self._main(), 0.0, loop)

    async def _main(self) -> Outcome:
        self.benches = Benches(self.config)
        self._events, self._messages = [], []
        self._before = 0.0 if self.files is None else self.files.seconds_before()
        listeners = () if self.telemetry is None else (self.telemetry.pass_on,)
        self._told = Telemetry(None, self._events.append, *listeners, clock=self._time, log="simulation")
        self.server = self._serve(self._part(_SERVERS))
        if self.files is not None and not self.files.begun:
            self.files.keep_config()
        status, error = "failed", None
        try:
            with self.benches.counting():
                await self._converse()
            status = "completed"
        except asyncio.CancelledError:
            status = "interrupted"
            raise
        except Exception as failed:
            error = failed
            raise
        finally:
            if (outcome := self.outcome) is not None:
                self._end(outcome, status, error)
        assert outcome is not None  # the rounds have begun
        return outcome

    def begun(self, cohort: Cohort, round: int) -> None:
        """Called in every session before its first round."""
        ctx = self.server.ctx
        if self.outcome is None:
            self.start, self._saved = (round, self.start[1]), round
            self.outcome = Outcome(ctx, self.server.hub.totals, events=self._events, messages=self._messages)
            if self.files is not None and self.files.begun:  # only now: it may be refused
                self.files.keep_config()
        self._cohort = cohort
        self.on_cohort(cohort)

    def save_states(self, round: int) -> None:
        """Keeps the server's state after a round, and requests the parties'."""
        if self.save and self.outcome is not None:
            self.outcome.saved[round] = {SERVER: self.server.ctx.state.capture()}
            if self.files is None:
                self.server.hub.request_save(Save(round, self._saved))
                self._saved = round

    def _serve(self, telemetry: Telemetry) -> VirtualServer:
        config, federation, files = self.config.server, self.config.federation, self.files
        if config is None:
            raise ConfigError("no `server` section", hint="the server's labels are needed")
        folder, out = (None, None) if files is None else (files.folder, files.folder.path)
        recorded = None if folder is None else (folder.start, folder.start_record())
        start = StartSecret(*(recorded or (None, None)), public=True)
        parts = ServerParts(
            federation, config, self.base, telemetry, virtual_device(self.config, SERVER),
            out=out, cache=None if files is None else files.tables(SERVER), timetable=self.timetable,
        )  # fmt: skip
        run_cache = self.caches.setdefault(SERVER, RunCache(None if folder is None else folder.run_cache))
        begun = files is not None and files.begun
        with whose(SERVER):
            labels = parts.labels()
        table = parts.prepare(labels, start, run_cache, begun=begun, sample=self._sample(SERVER))
        for doubt in table.doubts:
            telemetry.event("warning", party=SERVER, reason=doubt)
        if table.digest:
            hold_labels(run_cache, table.digest)
        number = _NUMBER if files is None else files.number
        owner = owner_of(federation, SERVER, config, self.base, number, trains=True)
        admission = Admission(federation, table.shape, number, RevocationList(None), secure=False)
        side = self.instead.get(SERVER, SERVE[federation.protocol.name])
        phases, table.ctx.thorough = table.ctx.phases, self.thorough
        server = VirtualServer(
            table.ctx, self._store(SERVER), owner, admission, out, start, table.rows,
            asyncio.get_running_loop().time, lambda *of: self.benches.work(SERVER, side(*of)), simulation=self,
        )  # fmt: skip
        table.ctx.traffic, table.ctx.phases, table.ctx.clock = server.hub.totals.payload, phases, server.now
        return server

    def _party(self, name: str, telemetry: Telemetry) -> tuple[PartySessions, Features]:
        federation, config, files = self.config.federation, self.config.parties[name], self.files
        with whose(name):
            kept, cache = (None, None) if files is None else (files.encoder(name), files.tables(name))
            index, labels = federation.party_index(name), self.server.ctx.config.labels
            refuse_own_labels(labels, config.data, index, f"parties.{name}.data", self.base)
            read = load_features(config.data, index, self.base, cache, kept)
        for doubt in doubts(read):
            telemetry.event("warning", party=name, reason=str(doubt))
        features, task = sampled(read, self._sample(name)), training(federation, self.instead.get(name))
        if self.server.rows is None:
            refuse_other_rows(name, len(features.values), len(self.server.ctx.labels))
        home = None if files is None else files.home(name)

        async def side(ctx: ClientContext, link: Link) -> None:
            try:
                await self.benches.work(name, task.side(ctx, link))
            except TrainingDiverged:  # what others send until the server hears of it is not to blame
                self._cohort[name].lose(self.server.ctx.watch.blame_sender(name))
                raise

        sessions = self.parties[name] = PartySessions(
            name, federation, config, self.base,
            out=home, device=virtual_device(self.config, name),
            store=self._store(name), telemetry=telemetry, task=replace(task, side=side), timetable=self.timetable,
            run_cache=self.caches.setdefault(name, RunCache(None if home is None else PartyFolder(home).run_cache)),
            incidents=VirtualIncidents(), busy=partial(self.benches.outward, name),
        )  # fmt: skip
        if cache is not None:
            cache.keep()
        return sessions, features

    async def _join(self, line: Line, told: Mapping[str, str]) -> Coroutine[Any, Any, None]:
        """Joins a party. Returns its part in the run."""
        federation, name = self.config.federation, line.party
        sessions, features = self._party(name, self._part(_PARTIES))
        rows, official = len(features.values), features.official_test
        hello = Hello(name, federation.id, VERSION, config=told, rows=rows, official_test=official)
        ledger = None if self.files is None else self.files.folder.party(name).ledger
        membership = Membership(Codec({}), line.largest, sessions.telemetry, ledger, lambda *_what: line)
        await membership.join(sessions.greeting(hello), str, None, "", 0.0)
        with membership.telling(), whose(name):
            (sessions.take if self.server.rows is not None else sessions.prepare)(features)

        async def part() -> None:
            try:
                with whose(name):
                    await sessions.run(membership, hello)
            finally:
                await membership.leave()

        return part()

    async def _converse(self) -> None:
        """Runs the server concurrently with the parties: an error of a party ends it."""
        federation, sides, tasks = self.config.federation, dict[str, asyncio.Task[None]](), list[asyncio.Task[None]]()
        told, contract = {**federation.stated(), **agreed_parts(federation)}, CONTRACTS[federation.protocol.name]
        kinds, limits = all_kinds(federation, contract), all_limits(federation, contract)
        largest = max((largest_bytes(kind, limits) for kind in kinds.values()), default=0)
        try:
            for name in federation.names:
                sides[name] = asyncio.create_task(await self._join(Line(self, name, largest), told))
            serving = asyncio.create_task(self.server.run())
            tasks = [serving, *sides.values()]
            while not serving.done():
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in [task for task in tasks if task.done()]:
                    task.result()
                    tasks.remove(task)
            if self.outcome is not None:
                self.outcome.seconds = self.server.now()
            await asyncio.gather(self.server.hub.part(None), *sides.values())
        except PartyFailed as failed:
            if failed.party in sides:  # the server was told of it first
                await asyncio.wait({sides[failed.party]})
                sides[failed.party].result()
            raise
        finally:  # the first error is the one that counts
            for task in (left := {*tasks, *sides.values()}):
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
            if (releases := self.server.ctx.releases) is not None:
                releases.close()

    def _end(self, outcome: Outcome, status: str, error: Exception | None) -> None:
        ctx, outcome.status, outcome.error = outcome.server, status, error
        if status != "completed":
            outcome.seconds = ctx.clock()
        outcome.best_saved = self.server.saving.best
        for name, sessions in self.parties.items():
            if sessions.line is not None and sessions.progress.privacy is not None:
                outcome.clients[name], outcome.privacy[name] = sessions.line.ctx, sessions.progress.privacy
            if sessions.capture is not None:
                outcome.captures[name] = sessions.capture
            outcome.left[name] = sessions.progress.traffic.sent
            if isinstance(sessions.store, MemoryCheckpoints):
                for round in outcome.saved.keys() & sessions.store.held.keys():
                    outcome.saved[round][name] = sessions.store.held[round]
        ctx.telemetry.event("end", status=status, round=ctx.round)

    def _time(self) -> float:
        return self._before + self.benches.clock()

    def _sample(self, member: str) -> Tensor | None:
        return self.sample if self.aligned is None else self.aligned[member]

    def _store(self, member: str) -> Checkpoints:
        if self.files is not None:
            return self.files.checkpoints(member)
        round, states = self.start
        return MemoryCheckpoints(_NUMBER, {round: states.get(member, _NOTHING)} if round else {})

    def _part(self, without: set[str]) -> Telemetry:
        def listen(event: Event) -> None:
            if event["kind"] not in without:
                self._told.pass_on(event)

        return Telemetry(None, listen, clock=self._time)

    def around(self, sender: str, to: str, carry: Carry) -> Carry:
        def carry_and_record(parcel: Any) -> None:
            if isinstance(parcel, Message):
                self._messages.append((sender, to, snapshot(parcel)))
            carry(parcel)

        recorded = carry_and_record if self.record else carry
        return self.benches.outward(SERVER, recorded) if sender == SERVER else recorded


@dataclass
class VirtualServer(ServerSessions):
    """The server's sessions on the virtual clock."""

    simulation: Simulation = field(kw_only=True)
    _since: float = field(default=0.0, init=False)  # reading of the loop's clock when the run's was 0

    def now(self) -> float:
        """Seconds of the run over all starts, without rolled back rounds."""
        return self.simulation.benches.clock() - self._since

    def _restore(self, round: int, *, first: bool) -> None:
        super()._restore(round, first=first)
        loop = asyncio.get_running_loop()
        self._since = loop.time() - self.ctx.state.keep("clock", dict[str, float]).get("seconds", 0.0)

    def _ready(self, cohort: Cohort, round: int) -> None:
        self.simulation.begun(cohort, round)

    def _tell_begun(self, cohort: Cohort, round: int) -> None:
        self.ctx.telemetry.event("begin", rounds=self.ctx.schedule.rounds, parties=list(cohort), round=round)

    async def _between(self, round: int) -> None:
        await self.simulation.benches.rest()  # a round's time limits start when the server is done
        self.simulation.save_states(round)
        if self.saving.keeps:
            self.ctx.state.keep("clock", dict[str, float])["seconds"] = self.now()
        await super()._between(round)
        await self.saving.settle(_INSTANT, sound=False)  # disks take no time, though confirmations take their way


@dataclass(frozen=True)
class Line:
    """A party's end of a transport in memory; `largest` has the bytes of the largest message."""

    simulation: Simulation
    party: str
    largest: int

    async def dial(self, *_how: object) -> MemoryConnection:
        there = self.simulation
        ours, theirs = inprocess.pair(self.party, self.largest, there.delay, there.around)
        there.greetings.append(asyncio.create_task(there.server.hub.greet(ours, None)))
        return theirs

    async def close(self) -> None:
        """Does nothing."""


class VirtualIncidents:
    """Pauses hold a party's messages; crashes need real processes."""

    def pause(self, chaos: Chaos, pause: Pause) -> None:
        chaos.report("paused", round=pause.round, seconds=pause.seconds)
        chaos.hold(pause.seconds)

    def crash(self, chaos: Chaos, round: int) -> None:
        raise NotImplementedError  # refused before the run


def find_rows(config: Config, base: Path) -> Mapping[str, Tensor]:
    """Rows of every member's source that all members have, int64 (common,), in their common order."""
    simulation = Simulation(config, base, instead={SERVER: _stop})
    with activity("aligning rows"), suppress(_Aligned):
        simulation.run()
    return {member: kept_rows(cache, member) for member, cache in simulation.caches.items()}


class _Aligned(Exception):  # private: ends a run whose rows alone are wanted
    pass


async def _stop(_ctx: Any, _cohort: Any, _config: Any) -> None:
    raise _Aligned
