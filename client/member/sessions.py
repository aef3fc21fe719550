"""A party's sessions: each resumes from the round that the server names, and leaves checkpoints."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from colonnade.client.alignment.rows import PartyRows
from colonnade.client.dialling.instructions import Instructions
from colonnade.client.dialling.membership import Membership
from colonnade.client.member.context import party_context
from colonnade.client.member.line import PartyLine, PartyTask
from colonnade.client.member.pin import Pin
from colonnade.client.prediction import OwnLines, OwnPredictions
from colonnade.client.privacy.codes import aligned_places
from colonnade.client.privacy.mechanisms import Privacy, refuse_longer
from colonnade.client.ranks.group import Group
from colonnade.client.training.card import EXPLAINED
from colonnade.client.training.context import ClientContext
from colonnade.client.training.progress import TrainingProgress
from colonnade.client.transcript.capture import Capture
from colonnade.client.transcript.transcript import PartyTranscript
from colonnade.common.aggregation.subject import PREDICTION, TRAINING, rows_known
from colonnade.common.alignment.keeping import Keeping, Place
from colonnade.common.alignment.keys import digest_in_order
from colonnade.common.alignment.place import lasting
from colonnade.common.alignment.store import kept_rows
from colonnade.common.config.chaos import UNUSED_RATE, ChaosConfig, PatternIndex, Pause
from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.members import PartyConfig, unused
from colonnade.common.config.run_options import MOST_BACK_OFFS
from colonnade.common.contracts import prediction
from colonnade.common.contracts.owner import owner_of
from colonnade.common.contracts.schedule import Schedule
from colonnade.common.conversation.chaos import Chaos, Incidents
from colonnade.common.conversation.conversation import SERVER, Carrier
from colonnade.common.conversation.parcels import Begin, Failure, Hello, Preparing, Save, Saved, Spent
from colonnade.common.crypto.pki.identity import Identity
from colonnade.common.crypto.sealing import Session
from colonnade.common.data.columns.features import Features
from colonnade.common.data.columns.kept_encoder import EncoderFile
from colonnade.common.data.draws import Draws, keep_generators, own_draws
from colonnade.common.data.scored_rows import ScoredRows
from colonnade.common.errors import CheckpointError, ContractError, EnvironmentFault, FloodError, declared
from colonnade.common.observability.telemetry import Telemetry
from colonnade.common.privacy.accounting.ledger import Ledger
from colonnade.common.privacy.accounting.plan import describe_plan
from colonnade.common.run.checkpoints import Checkpoints, Owner
from colonnade.common.run.device import release_free_memory
from colonnade.common.run.files import write_durably
from colonnade.common.run.phases import CHECKPOINT, COMPUTING
from colonnade.common.run.run_cache import RunCache
from colonnade.common.run.run_folder import PartyFolder
from colonnade.common.run.state import Snapshot, State

IDLE_SESSIONS = 1000  # each leaves lines in the ledger
_MANY = 1 << 22  # numbers of a table whose preparation is announced: it may take a second


@dataclass
class PartySessions:
    """State of a party over all connections and sessions.

    Args:
        out: the party's folder; None in a simulation, where only `store` keeps something.
        run_cache: None for the folder's.
        timetable: makes the schedule, and thus partitions the rows.
        incidents: implements injected pauses and crashes; None for those of a process.
        busy: wraps what the party side sends; on the virtual clock a message leaves when earlier work is done.
        ranks: the processes that compute for this one; None without.

    Attributes:
        begun: when the server last began or ended a session; seconds of the monotonic clock.
        state: the newest session's; None before the first.
        idle: set while a prediction waits for the next request.
    """

    name: str
    federation: FederationConfig
    config: PartyConfig
    base: Path
    out: Path | None
    device: torch.device
    store: Checkpoints
    telemetry: Telemetry
    task: PartyTask
    identity: Identity | None = None
    run_cache: RunCache | None = None
    timetable: Callable[[FederationConfig, int, int], Schedule] = Schedule
    incidents: Incidents | None = None
    busy: Callable[[Carrier], Carrier] = lambda carry: carry
    ranks: Group | None = None
    begun: float = field(default=0.0, init=False)
    progress: TrainingProgress = field(default_factory=TrainingProgress, init=False)
    state: State | None = field(default=None, init=False)
    idle: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    line: PartyLine | None = field(default=None, init=False)
    capture: Capture | None = field(default=None, init=False)
    _folder: PartyFolder | None = field(init=False)
    _ledger: Path | None = field(init=False)
    _schedule: Schedule = field(init=False)
    _ctx: ClientContext = field(init=False)
    _privacy: Privacy = field(init=False)
    _rows_known: str = field(default="", init=False)
    _pin: Pin = field(init=False)
    _draws: Draws = field(init=False)
    _scored: ScoredRows | None = field(init=False)
    _kept: Path | None = field(init=False)
    _rows: PartyRows | None = field(default=None, init=False)
    _saving: asyncio.Task[None] | None = field(default=None, init=False)
    _told: bool = field(default=False, init=False)
    _idle: int = field(default=0, init=False)  # consecutive sessions in which no round was completed

    def __post_init__(self) -> None:
        self._folder = own = None if self.out is None else PartyFolder(self.out)
        self._ledger, self._kept = (None, None) if own is None else (own.ledger, self.task.run_cache(own))
        self._run_cache = self.run_cache or RunCache(self._kept)
        public = self.federation.public_start or self.incidents is not None
        self._pin = Pin(self.name, self.out, self.store, predicts=self.task.predicts, public=public)
        self._draws = own_draws(self.federation, self.name, self._pin.start.value)
        self._scored = None if self.out is None else ScoredRows(self.out, self._tell_batch, self._warn)

    def take(self, features: Features) -> None:
        """Takes the party's table, after the server's welcome.

        Raises ConfigError if the federation is weaker than our policy or its privacy budget pays for no round,
        DataError if alignment cannot use the table's keys.
        """
        if self.federation.align == "none":
            self.prepare(features)
            return
        policy = self.config.policy
        policy.refuse(self.name, self.federation)
        self._rows = PartyRows(
            self.name, self.federation, policy, features,
            run_cache=self._run_cache, kept=self._kept, out=self.out,
            telemetry=self.telemetry, progress=self.progress, whole=not self.task.predicts,
            identity=self.identity, keeping=self._keeping(),
        )  # fmt: skip

    def forget_rows(self) -> None:
        """Drops the rows of the newest prediction, whose table was replaced."""
        self._run_cache.forget("alignment")

    async def announce(self, membership: Membership, features: Features) -> None:
        """Tells the server that `prepare` may take long."""
        if features.disk is not None or features.values.numel() > _MANY:
            await membership.announce(Preparing())

    def _keeping(self) -> Keeping:
        if self.out is None:
            return Keeping()
        policy, own = self.config.policy, self.config.identity
        return Keeping.of(
            self.federation, Place(self.config.alignments, self.base, self.out, self.name),
            pinned=self.identity is not None and lasting(own and self.base / own),
            policy=policy.alignment_digest, reuse=policy.reuse_alignment,
            processors=torch.get_num_threads(), warn=self._warn,
        )  # fmt: skip

    def prepare(self, features: Features) -> None:
        """Fits the encoder, or reads the run's, and plans the budget: steps that depend on the aligned rows."""
        if self.progress.privacy is not None:
            self.progress.privacy.close()
        others = self.task.predicts and self.federation.align != "none"  # rows may differ from training
        own, rows = self._folder, len(features.values)
        trained = len(kept_rows(RunCache(own.run_cache), self.name)) if own and others else rows
        self._schedule = self.timetable(self.federation, trained, features.official_test)
        plan, places = self._schedule.privacy, None
        if plan is not None:
            refuse_longer(plan, self._ledger, lambda sigma: self._rounds_with(sigma, trained, features.official_test))
        if own is not None:
            places = aligned_places(self.federation, plan, own, features.ids, trained, predicts=others)
        self._privacy = Privacy(
            self.name, self.federation, self.config.policy, plan, self._ledger, rows=rows, places=places,
            predicts=self.task.predicts,
        )  # fmt: skip
        self.progress.privacy = self._privacy
        kept = None if self.out is None else EncoderFile(self.out, begun=bool(self.store.run()))
        self._ctx = replace(
            party_context(
                self.name, self.federation, self.config, features, self._schedule,
                base=self.base, device=self.device, kept=kept, others=others,
            ),
            warn=self._warn,
            idle=self.idle,
            draws=self._draws,
            identity=self.identity,
            run_cache=self._run_cache,
            ranks=self.ranks,
        )  # fmt: skip
        for doubt in () if self.task.predicts else (*self._ctx.features.doubts, *unused(self.federation, self.config)):
            self._warn(str(doubt))
        if self.task.predicts and own is not None and self._scored is not None:
            self._ctx.keep = OwnPredictions(own.own_predictions, features.ids, self.federation.classes).add
            self._ctx.explain = OwnLines(own.reasons, features.ids, EXPLAINED).add
            self._ctx.scored = self._scored.add
            self._scored.take(features)
        self._rows_known = ""
        if prediction.summed(self.federation):
            aligned = self.federation.align != "none" and features.ids is not None
            keys = digest_in_order(features.ids or (), self.federation.keys) if aligned else b""
            purpose = PREDICTION if self.task.predicts else TRAINING
            self._rows_known = rows_known(purpose, rows, features.official_test, keys)

    def _rounds_with(self, sigma: float, rows: int, official_test: int) -> int:
        """The rounds that the budget pays for with a noise multiplier."""
        privacy = self.federation.privacy
        assert privacy is not None  # there is a plan
        given = privacy.model_copy(update={"noise_multiplier": sigma})
        federation = self.federation.model_copy(update={"privacy": given})
        return self.timetable(federation, rows, official_test).rounds

    def greeting(self, hello: Hello) -> Hello:
        """The Hello with our checkpoints and pinned run."""
        run = self._pin.run
        held = self.store.usable(self._owner(run)) if run else []
        return replace(hello, run=run, held=tuple(held), aligned=self._run_cache.number("alignment"))

    async def run(self, membership: Membership, hello: Hello) -> None:
        """Takes part in session after session until the run is over. Raises PartyAway if the connection broke: join
        again.
        """
        try:
            while (begin := await membership.begin()) is not None:
                self._admit(membership, begin)
                before = self.progress.done
                if await self._go_on(membership, begin):
                    return
                self._idle = 0 if self.progress.done > before else self._idle + 1
                if self._idle >= IDLE_SESSIONS:
                    expected = f"a round in one of {IDLE_SESSIONS} sessions"
                    flood = FloodError(SERVER, "Rewind", "", expected, "none")
                    membership.post(Failure("", *declared(flood)))
                    raise flood
                await self._saved()
                membership.greet_again(self.greeting(hello))
            if not self.task.predicts:
                self._pin.refuse_early_end(self.federation.absence == "rollback", lambda: self._last_round)
            self._warn("the server has finished without us: we joined too late to take part")
        finally:
            await self._saved()
            if self._scored is not None:
                self._scored.end()
            if self.progress.privacy is not None:  # otherwise nothing has been spent
                self.progress.privacy.close()
            with suppress(EnvironmentFault):  # the end is reported; the previous pin stays valid
                self._pin.seal()

    @property
    def _last_round(self) -> int:
        """The round before which the run cannot end; 0 before the alignment, when it is unknown."""
        return self._schedule.earliest_end if self.progress.privacy is not None else 0

    def _admit(self, membership: Membership, begin: Begin) -> None:
        """Pins the run, and refuses a Begin that would discard some of it; the error is reported to the server."""
        with membership.telling():
            try:
                if begin.backed_off > MOST_BACK_OFFS:  # more often than can be agreed
                    expected = f"at most {MOST_BACK_OFFS}"
                    raise ContractError(SERVER, "Begin", "backed_off", expected, str(begin.backed_off))
                self._present(begin)
                self._pin.admit(begin)
            except ContractError as wrong:
                membership.post(Failure("", *declared(wrong)))
                raise

    async def _go_on(self, membership: Membership, begin: Begin) -> bool:
        if self._rows is not None:
            aligned = await self._rows.align(membership, begin)
            if aligned is None:
                return False
            await self.announce(membership, aligned)
            with membership.telling():
                self.prepare(aligned)
                self._pin.seal()  # records the keys that others have tested
            if not self.task.predicts:  # predictions may align other rows again
                self._rows = None  # frees the unscaled table; the kept one is scaled
            release_free_memory()
        return await self._attend(membership, begin)

    async def _attend(self, membership: Membership, begin: Begin) -> bool:
        owner = self._owner(begin.run)
        state = self.state = State(self.store.load(begin.round, owner) if begin.round else None)
        if not self.task.predicts:
            self.store.drop_after(begin.round)
        if self.incidents is None:  # the members of a simulation share torch's generators, which its server keeps
            keep_generators(state, self.device, self._draws)
        with ExitStack() as ending:
            ending.callback(self._ended)
            ledger = Ledger(self._ledger, after=self.task.repeats_after(begin.round))
            ending.callback(ledger.close)
            self.capture, chaos = self._capture(begin.session, ending), self._chaos()
            if chaos is not None:
                ending.callback(chaos.end)
            session = Session(
                self.federation.id, begin.run, begin.session, self.federation.hashes(),
                roster=self.federation.pins, round=begin.round, backed_off=begin.backed_off,
                parties=self._present(begin), rows=self._rows_known,
            )  # fmt: skip
            line = self.line = PartyLine(
                self.task, self._ctx, self._privacy, self.progress,
                session=session, round=begin.round, state=state, ledger=ledger,
                post=membership.post, outlet=membership.outlet, chaos=chaos, capture=self.capture, busy=self.busy,
            )  # fmt: skip
            link = line.link
            link.last = None if self.task.predicts else self._schedule.rounds
            self._tell_planned()
            self.telemetry.event(
                "begin",
                party=self.name,
                round=begin.round,
                rounds=self._schedule.rounds,
                device=str(self.device),
            )
            link.on_save = lambda save: self._save(membership, owner, save, state)
            transcript, deliver = line.begin(self.telemetry)
            deliver = self._instructions(begin).checked(self._pin.before_rounds(deliver, link.lose), link.lose)
            side = lambda: self._half(membership, line, transcript)  # noqa: E731
            return await membership.attend(deliver, side, link=link)

    def _ended(self) -> None:
        self.idle.clear()
        self.begun = time.monotonic()

    def _present(self, begin: Begin) -> tuple[str, ...]:
        """The parties of a prediction, as the server names them; empty in training, which needs the whole roster.

        Raises ContractError if we are not among them, one is not in the roster, or a sum would lack one.
        """
        if not self.task.predicts:
            return ()
        names, there = self.federation.names, begin.parties
        if prediction.summed(self.federation) and there != names:
            raise ContractError(SERVER, "Begin", "parties", "all, since their outputs are summed", ", ".join(there))
        if self.name not in there or there != tuple(name for name in names if name in there):
            expected = f"{self.name}, and others of the roster"
            raise ContractError(SERVER, "Begin", "parties", expected, ", ".join(there))
        return there

    def _instructions(self, begin: Begin) -> Instructions:
        parties = len(self.federation.names)
        if self.task.predicts:
            return Instructions(self.name, begin.round, 0, (), self._pin, saves=False, parties=parties)
        return Instructions(self.name, begin.round, self._last_round, self.store.rounds(), self._pin, parties=parties)

    def _tell_planned(self) -> None:
        """Tells the party's operator once the epsilon of the agreed privacy."""
        plan = self._schedule.privacy
        if plan is None or self.task.predicts or self._told:
            return
        self._told = True
        for text, weak in describe_plan(plan, len(self.federation.names)):
            said = f"federation.privacy: {text}"
            self.telemetry.event("privacy", party=self.name, said=said, weak=weak)

    def _warn(self, reason: str) -> None:
        self.telemetry.event("warning", party=self.name, reason=reason)

    def _tell_batch(self, record: dict[str, Any], said: str) -> None:
        self.telemetry.event("batch", party=self.name, said=said, rows=record["rows"])

    def _capture(self, session: int, ending: ExitStack) -> Capture | None:
        """Capture of all messages on our link, closest to the wire, if configured."""
        if self.config.capture is None or self.task.predicts or self.out is None:  # a capture is of training
            return None
        if self.incidents is None:
            self._warn("capture: everything that is sent and received is kept in clear on this party's disk")
        capture = Capture(self.out, self.config.capture, self.federation, self._schedule, session)

        def close() -> None:
            capture.close()
            self.telemetry.event("capture", party=self.name, bytes=capture.size)

        ending.callback(close)
        return capture

    def _chaos(self) -> Chaos | None:
        if (incidents := self.incidents) is None:
            assert self._folder is not None  # of a process
            incidents = RealIncidents(self._folder.chaos)
            if self.config.chaos.computing:
                self._warn(UNUSED_RATE)
        faults, names = self.config.chaos, self.federation.names
        if faults == ChaosConfig(computing=faults.computing):  # that is none of the line
            return None
        many = self.federation.protocol.coded_batch(self.federation.batch, len(names))
        index = PatternIndex(names.index(self.name), len(names), many)
        return Chaos(faults, index, self.federation.seed, incidents, partial(self.telemetry.event, party=self.name))

    async def _half(self, membership: Membership, line: PartyLine, transcript: PartyTranscript) -> None:
        self._tell_spent(membership)
        self.progress.phases.turn(COMPUTING)
        try:
            await line.side()
            self.progress.phases.turn(CHECKPOINT)
            await self._saved()
            await transcript.conclude(lambda: membership.gone)
        finally:
            self.progress.phases.turn()
            self._tell_spent(membership)

    def _tell_spent(self, membership: Membership) -> None:
        """Reports the spent budget: at the beginning, with every checkpoint, and at the end of a session."""
        if self._schedule.privacy is not None:
            membership.post(Spent(self._privacy.releases))

    def _save(self, membership: Membership, owner: Owner, save: Save, state: State) -> None:
        """Takes a snapshot at once; it is written while the rounds continue, after the previous one."""
        self._tell_spent(membership)
        with self.progress.phases.aside(CHECKPOINT):
            writing = asyncio.to_thread(self._write, save, state.capture(), owner)
        report = self._report(membership, save, writing, self._saving)
        self._saving = asyncio.get_running_loop().create_task(report)

    def _write(self, save: Save, snapshot: Snapshot, owner: Owner) -> None:
        self._pin.note(save)
        self.store.save(save.round, snapshot, owner)
        self.store.prune({save.round, save.keep, save.best})
        self._pin.seal(save)

    async def _report(
        self, membership: Membership, save: Save, writing: Awaitable[None], before: asyncio.Task[None] | None
    ) -> None:
        if before is not None:  # which does not name this checkpoint and would remove it
            await asyncio.wait({before})
        try:
            await writing
        except (EnvironmentFault, CheckpointError) as failed:
            membership.post(Saved(save.round, declared(failed)[0]))
        else:
            self.progress.saved = save.round
            self.telemetry.event("checkpoint", party=self.name, round=save.round, rounds=self._schedule.rounds)
            membership.post(Saved(save.round))

    async def _saved(self) -> None:
        if self._saving is not None:
            await asyncio.wait({self._saving})

    def _owner(self, run: str) -> Owner:
        return owner_of(self.federation, self.name, self.config, self.base, run, trains=not self.task.predicts)


class RealIncidents:
    """Signals to this process. Each happens once in a run, even if its round is repeated after a restart."""

    def __init__(self, record: Path) -> None:
        self._record = record

    def pause(self, chaos: Chaos, pause: Pause) -> None:
        """Sends SIGSTOP now; a separate process sends SIGCONT later."""
        if self._first(f"pause@{pause.round}"):
            chaos.report("paused", round=pause.round, seconds=pause.seconds)
            wake = f"sleep {pause.seconds}; kill -CONT {os.getpid()}"
            subprocess.Popen(["/bin/sh", "-c", wake], start_new_session=True)  # noqa: S603
            os.kill(os.getpid(), signal.SIGSTOP)

    def crash(self, chaos: Chaos, round: int) -> None:
        if self._first(f"crash@{round}"):
            chaos.report("crashed", round=round)
            os.kill(os.getpid(), signal.SIGKILL)

    def _first(self, what: str) -> bool:
        happened = json.loads(self._record.read_text(encoding="utf-8")) if self._record.exists() else []
        if what in happened:
            return False
        write_durably(self._record, json.dumps([*happened, what]).encode())
        return True
