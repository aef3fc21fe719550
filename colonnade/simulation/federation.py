"""A whole federation in one event loop on the virtual clock: the same protocol code, no wire, no waiting.

Time passes only as the members' `chaos` sections say; computing takes none by default (computing.py). An hour of
stragglers passes in seconds, and always in the same way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from colonnade.client.member.line import PartyLine, injected_faults
from colonnade.client.member.task import training
from colonnade.client.privacy.stage import Privacy
from colonnade.client.training.context import ClientContext
from colonnade.client.training.progress import TrainingProgress
from colonnade.client.transcript.capture import Capture
from colonnade.common.config.chaos import Pause
from colonnade.common.config.compression import form_of
from colonnade.common.config.members import Config
from colonnade.common.contracts.registry import CONTRACTS
from colonnade.common.contracts.schedule import Schedule
from colonnade.common.conversation import inprocess
from colonnade.common.conversation.chaos import Chaos
from colonnade.common.conversation.compression import Compressor
from colonnade.common.conversation.control import Item, Save
from colonnade.common.conversation.conversation import SERVER, Carrier, Cohort
from colonnade.common.conversation.inprocess import Delay, MemoryConnection
from colonnade.common.conversation.mailbox import Mailbox
from colonnade.common.errors import CheckpointError, ConfigError, EnvironmentFault, TrainingDiverged, declared
from colonnade.common.messaging.message import Message, snapshot
from colonnade.common.observability.telemetry import Event, Telemetry
from colonnade.common.privacy.accounting.ledger import Ledger
from colonnade.common.run.state import Snapshot, State
from colonnade.common.run.user_code import naming_user_code
from colonnade.server.member.context import Timetable
from colonnade.server.member.divergence import after_divergence, refuse_sustained, restore, save_if_due
from colonnade.server.member.planned import tell_planned
from colonnade.server.member.saving import Saving
from colonnade.server.member.traffic import Totals
from colonnade.server.protocols import SERVE
from colonnade.server.training.context import ServerContext
from colonnade.simulation.alignment import find_rows
from colonnade.simulation.computing import Benches
from colonnade.simulation.contexts import Side, client_context, refuse_other_rows, server_context
from colonnade.simulation.files import RunFiles
from colonnade.simulation.outcome import Outcome

_BACK = "goes back"  # status of an attempt that is rolled back
Snapshots = Mapping[str, Snapshot]


@dataclass
class Simulation:
    """One run.

    Args:
        delay: seconds that items take, in addition to the parties' chaos.
        only: the parties that run; the whole roster by default.
        start: round to resume from, and every member's state after it.
        on_cohort: called with the server's links before the run begins.
        files: of the run: ledgers, checkpoints, captures; None keeps none.
        sample: rows of the sources to use, int64; None for all.
        timetable: makes every member's schedule, and thus partitions the rows.
        thorough: True for every metric in every evaluation, not only after the last round.
        aligned: every member's rows in their common order, as `find_rows` gives them; None to find them.
        instead: replacements of members' sides, by name, for attacks and tests.
    """

    config: Config
    base: Path = Path()
    delay: Delay | None = None
    only: list[str] | None = None
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
    outcome: Outcome | None = field(default=None, init=False)
    _benches: Benches = field(init=False)
    _rows: Mapping[str, Tensor] = field(default_factory=dict, init=False)
    _ahead: float = field(default=0.0, init=False)  # offset of event times to the clock, in seconds
    _saving: Saving | None = field(default=None, init=False)
    _ending: ExitStack = field(default_factory=ExitStack, init=False)  # closed before the run's end is said
    _events: list[Event] = field(default_factory=list, init=False)
    _messages: list[tuple[str, str, Message]] = field(default_factory=list, init=False)

    def run(self, loop: Callable[[float], inprocess.VirtualLoop] = inprocess.VirtualLoop) -> Outcome:
        """Runs server and parties to their end. `loop` makes an event loop whose clock starts at its argument."""
        self._events, self._messages = [], []
        with torch.random.fork_rng(devices=[]), ExitStack() as ending:  # models may draw from torch's own generator
            ending.callback(self._ending.close)
            if self.files is None and self.config.federation.back_off and not self.start[0]:
                folder = Path(ending.enter_context(TemporaryDirectory(prefix="colonnade-")))
                self.files = RunFiles(folder, self.config, self.base, whole=self.sample is None)
                ending.callback(setattr, self, "files", None)
            while True:
                begin = 0.0 if self.files is None else self._resume(self.files)
                with suppress(GoBack):
                    return inprocess.run_virtual(self._main(), begin, loop)
                assert self.files is not None  # otherwise no checkpoint to go back to exists
                self.files.begun = True

    def _resume(self, files: RunFiles) -> float:
        """Resumes a run from its members' checkpoints. Returns the initial reading of the clock."""
        begin, earlier = files.seconds_before(), 0.0  # events of processes are in seconds since 1970
        begin = max([begin, *(event["time"] for event in self._events)])
        if round := files.begin():
            self.start = (round, files.states(round))
            earlier = State(self.start[1][SERVER]).keep("clock", dict[str, float]).get("seconds", 0.0)
        self._ahead = max(begin - earlier, 0.0)
        return earlier

    async def _main(self) -> Outcome:
        self._benches = Benches(self.config)
        await self._align()
        outcome = self._outcome()
        totals = outcome.totals
        federation, contract = self.config.federation, CONTRACTS[self.config.federation.protocol.name]
        cohort, ends = inprocess.meet(
            list(federation.names), contract.kinds, contract.limits_of(federation),
            self.delay or (lambda _from, _to, _item: 0.0), Mailbox(lambda party, _: totals.late.update([party])),
            between=partial(self._between, outcome), enough=lambda: outcome.server.over,
            compress=partial(Compressor, form_of(federation.compress.down), outcome.server.draws),
            outward=partial(self._outward, outcome),
        )  # fmt: skip
        self._cohort = cohort
        for name, link in cohort.items():
            totals.link(name, link)
        self.on_cohort(cohort)
        sides: list[asyncio.Future[None]] = []
        for name in self.only or federation.names:
            cohort[name].watch = outcome.server.watch
            sides.append(asyncio.ensure_future(self._participate(outcome, name, ends[name])))
        rounds, parties = outcome.server.schedule.rounds, list(federation.names)
        if self.start[0] > rounds:
            raise ConfigError(
                f"{self.start[0]} rounds are done, and the configuration ends after {rounds}",
                hint="resume it with more federation.epochs or federation.rounds",
            )
        if self.files is not None:
            self.files.keep_config()
        tell_planned(outcome.server)
        outcome.server.telemetry.event("begin", rounds=rounds, parties=parties, round=self.start[0])
        self.outcome = outcome
        try:
            with self._benches.counting():
                await self._serve(outcome, cohort, sides)
            outcome.status = "completed"
        except TrainingDiverged as diverged:
            outcome.error = str(diverged)
            await after_divergence(outcome.server, self._saving, diverged)
            outcome.status = _BACK
            raise GoBack from None
        except asyncio.CancelledError:
            outcome.status = "interrupted"
            raise
        except Exception as error:
            outcome.error = str(error)
            raise
        finally:
            if outcome.status != _BACK:
                self._end(outcome)
        return outcome

    def _outward(self, outcome: Outcome, name: str, carry: Carrier) -> Carrier:
        return self._benches.outward(SERVER, self._recorded(outcome, SERVER, name, carry))

    def _participate(self, outcome: Outcome, name: str, end: MemoryConnection) -> Coroutine[Any, Any, None]:
        """Sets up a party, and returns its side of the run."""
        federation, server = self.config.federation, outcome.server
        round, states = self.start
        state, progress = State(states.get(name)), TrainingProgress()
        ledger = Ledger(None) if self.files is None else self.files.ledger(name, round)
        self._ending.callback(ledger.close)
        spent = None if self.files is None else self.files.folder.party(name).ledger
        plan, policy = server.schedule.privacy, self.config.parties[name].policy
        privacy = outcome.privacy[name] = Privacy(name, federation, policy, plan, spent)
        self._ending.callback(privacy.close)
        outcome.left[name] = progress.traffic.sent
        faults, ctx = self.config.parties[name].chaos, self._context(server, name)
        line = PartyLine(
            training(federation, self.instead.get(name)), ctx, privacy, progress,
            session=ctx.session, round=round, state=state, ledger=ledger,
            post=self._recorded(outcome, name, SERVER, end.post), outlet=end.outlet,
            chaos=injected_faults(name, federation, faults, VirtualIncidents(), server.telemetry),
            capture=self._capture(outcome, name), busy=partial(self._benches.outward, name),
        )  # fmt: skip
        outcome.clients[name] = line.ctx
        line.link.on_save = partial(self._save, outcome, name, state)
        return self._side(server, line, end)

    async def _side(self, server: ServerContext, line: PartyLine, end: MemoryConnection) -> None:
        transcript, deliver = line.begin(server.telemetry)
        end.attach(deliver, line.link.lose, line.link)
        try:
            await self._benches.work(line.ctx.name, line.side())
            await transcript.conclude()
        except TrainingDiverged:
            raise server.watch.blame_sender(line.ctx.name) from None

    def _end(self, outcome: Outcome) -> None:
        ctx = outcome.server
        if outcome.status != "completed":
            outcome.seconds = ctx.clock()
        outcome.best_saved = 0 if self._saving is None else self._saving.best
        ctx.telemetry.event("end", status=outcome.status, round=ctx.round)

    async def _align(self) -> None:
        if self.aligned is not None:
            self._rows = self.aligned
        elif self.config.federation.align != "none":
            telemetry = Telemetry(None, self._tell_aligned, clock=self._time)
            self._rows = await find_rows(self.config, self.base, self.files, telemetry)

    def _tell_aligned(self, event: Event) -> None:
        if self.telemetry is not None and event["kind"] != "aligning":  # its progress takes no time here
            self.telemetry.pass_on(event)

    def _time(self) -> float:
        return self._benches.clock() + self._ahead

    async def _serve(self, outcome: Outcome, cohort: Cohort, sides: list[asyncio.Future[None]]) -> None:
        """Runs the server side concurrently with the parties: an error of a party ends it."""
        protocol = self.config.federation.protocol
        side = self.instead.get(SERVER, SERVE[protocol.name])(outcome.server, cohort, protocol)
        serving = asyncio.ensure_future(self._work(outcome, side))
        tasks = [serving, *sides]
        try:
            while not serving.done():
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in [task for task in tasks if task.done()]:
                    task.result()
                    tasks.remove(task)
            outcome.seconds = self._benches.clock()
            await asyncio.gather(*sides)
        except TrainingDiverged:
            if self._saving is not None:  # while the others can still save
                await self._saving.settle(self.config.federation.timeouts.answer)
            raise
        finally:  # the first error is the one that counts
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._ending.close()

    async def _work(self, outcome: Outcome, side: Awaitable[None]) -> None:
        with naming_user_code(SERVER, outcome.server.own_code):
            await self._benches.work(SERVER, side)

    def _outcome(self) -> Outcome:
        events = self._events
        listeners = (events.append,) if self.telemetry is None else (events.append, self.telemetry.pass_on)
        telemetry = Telemetry(None, *listeners, clock=self._time, log="simulation")
        rows = self._rows.get(SERVER, self.sample)
        server = server_context(
            self.config, self.base, telemetry, rows, files=self.files, timetable=self.timetable, protected=True
        )  # fmt: skip
        if server.releases is not None:
            self._ending.callback(server.releases.close)
        server.thorough = self.thorough
        server.clock = partial(self._benches.clock, asyncio.get_running_loop())
        if (files := self.files) is not None:
            store, folder = files.checkpoints(SERVER), files.folder.checkpoints
            checkpoint, owner = self.config.federation.checkpoint, files.owner(SERVER)
            self._saving = Saving(store, folder, owner, checkpoint, telemetry, server.clock)
        round, states = self.start
        restore(server, self._saving, round, states.get(SERVER))
        server.confirm()
        server.look_at_classes()
        outcome = Outcome(server, Totals(self.config.federation.names), events=events, messages=self._messages)
        outcome.totals.restore(server.state.keep("traffic", dict[str, int]))
        server.traffic = outcome.totals.payload
        return outcome

    def _capture(self, outcome: Outcome, name: str) -> Capture | None:
        if (wanted := self.config.parties[name].capture) is None or self.files is None:
            return None
        found = Capture(self.files.home(name), wanted, self.config.federation, outcome.server.schedule)
        self._ending.callback(found.close)
        return outcome.captures.setdefault(name, found)

    def _context(self, server: ServerContext, name: str) -> ClientContext:
        ctx = client_context(
            self.config, name, self.base, sample=self._rows.get(name, self.sample),
            files=self.files, timetable=self.timetable, warn=partial(warn, server.telemetry, name),
        )  # fmt: skip
        refuse_other_rows(name, ctx.features.shape[0], len(server.labels))
        return ctx

    async def _between(self, outcome: Outcome, round: int) -> None:
        await self._benches.rest()
        if self.save:
            outcome.saved[round] = {SERVER: outcome.server.state.capture()}
            self._request_save(Save(round))
        ctx, saving = outcome.server, self._saving
        refuse_sustained(ctx, saving, round)
        if saving is not None:
            ctx.state.keep("clock", dict[str, float])["seconds"] = ctx.clock()
            await save_if_due(ctx, saving, outcome.totals, round, self._request_save)

    def _request_save(self, save: Save) -> None:
        for link in self._cohort.values():
            link.request_save(save)

    def _save(self, outcome: Outcome, name: str, state: State, save: Save) -> None:
        snapshot = state.capture()
        if self.save:
            outcome.saved[save.round][name] = snapshot
        if self.files is None or self._saving is None:
            return
        try:
            self.files.save(name, save, snapshot)
            self._saving.saved(name, save.round)
        except (EnvironmentFault, CheckpointError) as failed:
            self._saving.saved(name, save.round, declared(failed)[0])

    def _recorded(self, outcome: Outcome, sender: str, to: str, carry: Carrier) -> Carrier:
        def carry_and_record(item: Item) -> None:
            if isinstance(item, Message):
                outcome.messages.append((sender, to, snapshot(item)))
            carry(item)

        return carry_and_record if self.record else carry


def warn(telemetry: Telemetry, party: str, reason: str) -> None:
    telemetry.event("warning", party=party, reason=reason)


class VirtualIncidents:
    """Pauses hold a party's messages; crashes need real processes."""

    def pause(self, chaos: Chaos, pause: Pause) -> None:
        chaos.report("paused", round=pause.round, seconds=pause.seconds)
        chaos.hold(pause.seconds)

    def crash(self, chaos: Chaos, round: int) -> None:  # noqa: ARG002  # the port's
        raise ConfigError(
            f"chaos.crash = {round}: nothing can crash on the virtual clock", hint="run it with `up`, or pause instead"
        )


class GoBack(Exception):
    """All members go back to an earlier checkpoint."""
