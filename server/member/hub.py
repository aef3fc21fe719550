"""Membership: which parties are connected, and their links."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from colonnade.common.alignment.messages import alignment_kinds, all_limits
from colonnade.common.config.compression import form_of
from colonnade.common.config.federation import FederationConfig
from colonnade.common.contracts.contract import Contract
from colonnade.common.contracts.schedule import Schedule
from colonnade.common.conversation import parcels as said
from colonnade.common.conversation.compression import Compressor
from colonnade.common.conversation.conversation import Cohort, Link
from colonnade.common.conversation.mailbox import Mailbox
from colonnade.common.conversation.parcels import Save, Statement
from colonnade.common.conversation.relay import Relay
from colonnade.common.conversation.session import ENDED, TAKING_PART, Stage
from colonnade.common.conversation.stream import Stream
from colonnade.common.data.draws import Draws, SecretDraws
from colonnade.common.errors import (
    ColonnadeError,
    ContractError,
    FloodError,
    IdentityError,
    PartyAway,
    PartyFailed,
    PartyLost,
    RefusedError,
    TrainingDiverged,
    declared,
)
from colonnade.common.messaging.message import Message
from colonnade.common.observability.telemetry import Telemetry
from colonnade.common.run.files import write_kept
from colonnade.common.run.json_text import whole
from colonnade.common.run.phases import CHECKPOINT, COMPUTING, EVALUATION, WAITING, Phases
from colonnade.common.run.run_folder import RunFolder
from colonnade.server.member.admission import Admission, claimed
from colonnade.server.member.party import Intake, Member, Versions, first_hello, screened
from colonnade.server.member.saving import common_round
from colonnade.server.member.spending import Spending
from colonnade.server.member.traffic import Totals
from colonnade.server.training.watch import GrowthWatch

_FLOODED = "look at that party's program: an honest one sends what it is asked for"


class Hub:
    """Admits parties, keeps their links, and applies the absence policy when one goes away.

    Args:
        saved: called for every checkpoint that a party saved or failed to save: (party, round, error).
        away: called for every party of a session that goes away.
    """

    def __init__(
        self,
        federation: FederationConfig,
        contract: Contract[Any],
        admission: Admission,
        run: str,
        telemetry: Telemetry,
        *,
        saved: Callable[[str, int, str], None] = lambda _party, _round, _error: None,
        away: Callable[[str], None] = lambda _party: None,
        numbers: SessionNumbers | None = None,
        draws: Draws | None = None,
    ) -> None:
        self._federation, self._admission, self._numbers = federation, admission, numbers or SessionNumbers()
        self._run, self._telemetry, self._saved, self._told_away = run, telemetry, saved, away
        self._kinds = {**contract.kinds, **alignment_kinds(federation)}
        self._limits = all_limits(federation, contract)
        self._draws = draws or SecretDraws.fresh()
        self._changed = asyncio.Event()
        self._closing: set[asyncio.Future[None]] = set()
        self.phases = Phases(COMPUTING, WAITING, EVALUATION, CHECKPOINT)  # of the server side
        self._mailbox = Mailbox(self._late, self.phases, self._faulty)
        self._links: dict[str, Link] = {}
        self._relay = Relay({})
        self._names = federation.names  # of the parties that take part
        self._failure: Exception | None = None
        self._fault: Exception | None = None  # of a party that is connected, until all begin anew
        self._away: dict[str, float] = {}
        self._put_out: dict[str, FloodError] = {}  # by party, until the run's next session begins
        self._over = False
        self.revocations = Revocations(admission, telemetry, federation.timeouts.away)
        self.members: dict[str, Member] = {}
        self.totals = Totals(federation.names)
        self.versions = Versions(telemetry)
        self.spending = Spending()
        self.session, self.round, self.aligned, self.backed_off = 0, 0, "", 0  # the last two are sent in Begin
        self.watch: GrowthWatch | None = None

    async def greet(self, connection: Stream, pem: bytes | None) -> None:
        party = claimed(pem)
        try:
            await screened(self._admission, pem)
            hello = await first_hello(connection)
            party = hello.party[:80]
            self._admission.check(hello, pem)
            self._let_in(connection, pem, hello)
        except ColonnadeError as refused:
            self._telemetry.refused(party, str(refused), connection.address)
            connection.post(said.Refusal(*declared(refused)))
            await connection.close()

    async def assemble(self, patience: float, names: Collection[str] | None = None) -> None:
        """Waits until all parties, or those in `names`, are present and ready.

        Raises PartyLost if some did not come within `patience` seconds; the message names all of them.
        """
        try:
            async with asyncio.timeout(patience):
                while missing := [name for name in self.missing() if names is None or name in names]:
                    if self._failure is not None:
                        raise self._failure
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            came = "come back" if self.session else "join"
            raise PartyLost(
                ", ".join(missing),
                f"did not {came} within {patience:g} s",
                hint="start the missing parties; one that still reads its table joins when it has: raise "
                "federation.timeouts.away to wait longer",
            ) from None

    def begin(
        self,
        held: list[int],
        committed: int,
        between: Callable[[int], Awaitable[None]],
        enough: Callable[[], bool] = lambda: False,
        names: Collection[str] | None = None,
    ) -> tuple[Cohort, int]:
        """Begins a session: sends every party the round to continue from.

        Args:
            held: rounds of the server's own checkpoints.
            committed: the newest round that every member has saved, 0 if none.
            between: awaited after every round.
            enough: returns True to end the run early.
            names: the participants; None for the whole roster.

        Returns the parties' links and the round to restore. Raises CheckpointError if a common checkpoint is missing.
        """
        self._names = names = self._federation.names if names is None else tuple(names)
        everyones = {name: self.members[name].hello.held for name in names}
        round = common_round({"the server": held, **everyones}, committed)
        before, self.session = self.session, self._numbers.after(self.session)
        self._mailbox.abandon()
        self._relay.stop()
        self._mailbox = Mailbox(self._late, self.phases, self._faulty)
        self._away.clear()
        self._put_out.clear()
        self._fault = None
        self._links.clear()
        for name in names:
            self._links[name] = self._link(name)
            self._links[name].known = round
            self._start(name, round)
            self._prepare(name, self.members[name])
        if before or round:
            self._telemetry.event("resume", round=round, session=self.session)
        self.round = round
        cohort = Cohort(self._links, self._mailbox, self._round_opens, between, enough)
        self._relay = cohort.relay
        return cohort, round

    def rewind(self, reason: str) -> None:
        """Makes every participant stop and say Hello again."""
        self._mailbox.abandon()
        self._relay.stop()
        for party, member in self.members.items():
            if party in self._links:
                member.say(said.Rewind(reason))

    def request_save(self, save: Save) -> None:
        for link in self._links.values():
            link.request_save(save)

    @property
    def here(self) -> tuple[str, ...]:
        missing = self.missing()
        return tuple(name for name in self._federation.names if name not in missing)

    @property
    def whole(self) -> bool:
        """True if every party of the session is present: none is away, has failed or has said farewell."""
        return not self._away and not any(self.members[name].state in ENDED for name in self._links)

    async def gate(self) -> None:
        """Called between rounds: admits returned parties, and waits for absent ones if that is the policy.

        Raises:
            PartyAway: the policy is to roll back; or a returned party lacks the keys that the others agreed on.
            PartyLost: a party stayed away for too long.
            PeerError: a party failed, or was revoked, and will not come back.
        """
        limit, loop = self._federation.timeouts.away, asyncio.get_running_loop()
        await self.revocations.seen()
        while True:
            if (fault := self._failure or self._fault) is not None and self._federation.absence != "continue":
                raise fault  # waiting for it would be in vain
            if self._away and self._federation.absence == "rollback":
                raise PartyAway(next(iter(self._away)), "its connection broke")
            for party in [party for party in self._away if party in self.members]:
                self._rejoin(party)
            if overdue := [party for party, since in self._away.items() if loop.time() - since > limit]:
                raise PartyLost(
                    ", ".join(overdue), f"stayed away for more than {limit:g} s", hint="raise federation.timeouts.away"
                )
            if not self._away or self._federation.absence != "wait":
                return
            self._changed.clear()
            left = min(self._away.values()) + limit - loop.time() + 0.01
            with suppress(TimeoutError):  # the party and its time of departure are recorded above
                async with asyncio.timeout(left):
                    await self._changed.wait()

    async def watch_absence(self) -> None:
        """Detects departures at once, even while no message is awaited. Runs until cancelled. Raises as `gate`."""
        while True:
            await self.gate()
            self._changed.clear()
            await self._changed.wait()

    def excuse(self, party: str) -> None:
        self._failure = None
        self.members.pop(party, None)

    async def watch_revocations(self) -> None:
        await self.revocations.watch(self._expel_revoked)

    def say_failure(self, party: str, error: BaseException) -> None:
        """Tells every party that the run failed, except a party at fault that reported the failure itself."""
        for name, member in list(self.members.items()):
            if name != party or member.state not in ENDED:  # else the party reported the failure itself
                member.say(said.Failure(party, *declared(error)))

    async def part(self, patience: float | None) -> None:
        """Says farewell and waits for the parties' farewells, without a limit for None. No party can join any more."""
        self._over = True
        self._mailbox.abandon()
        for member in list(self.members.values()):
            member.say(said.Farewell())  # one that joined too late to take part has no farewell to say
        with suppress(TimeoutError):  # a party still silent then has received all that it needs
            async with asyncio.timeout(patience):
                for member in list(self.members.values()):
                    await member.parted.wait()
        for member in list(self.members.values()):
            member.end()
        await asyncio.gather(*(member.connection.close() for member in self.members.values()))

    def queues(self) -> dict[tuple[str, str], int]:
        """Queue lengths by (queue, party): unsent messages of the connection, unread messages of the server side."""
        unsent = {("unsent", party): member.connection.unsent for party, member in list(self.members.items())}
        return {**unsent, **{("unread", party): self._mailbox.unread(party) for party in self._federation.names}}

    def _let_in(self, connection: Stream, pem: bytes | None, hello: said.Hello) -> None:
        party = hello.party
        if self._over:
            raise RefusedError(f"{party!r}: the run is over", hint="begin a new run")
        if (flood := self._put_out.get(party)) is not None:
            raise RefusedError(f"{party!r} was cut off until the rounds begin anew: {flood}", hint=_FLOODED)
        if (before := self.members.get(party)) is not None:  # the old connection is dead, not yet noticed
            self._refuse(before.connection, f"{party!r} has joined over another connection")
            self._forget(party, before, PartyAway(party, "it has joined over another connection"))
        connection.peer, connection.session = party, 0
        member = self.members[party] = Member(connection, pem, hello)
        member.say(said.Welcome())
        self.totals.connect(party, connection)
        inlet = Intake(member, partial(self._links.get, party))
        connection.attach(partial(self._hear, party, member), partial(self._lose, party, member), inlet)
        self._telemetry.event("join", party=party, joined=len(self.members), of=len(self._federation.names))
        self.versions.note(party, hello.version)
        self._changed.set()

    def _hear(self, party: str, member: Member, parcel: said.Parcel) -> None:
        member.count(parcel, self.round)
        before = member.state
        self.spending.receive(party, parcel)
        match parcel:
            case said.Failure(reason=TrainingDiverged.telling) if self.watch and party in self._links:
                if before not in ENDED:  # it waits for Rewind, or the end
                    self._links[party].lose(self.watch.blame_sender(party))
                return
        try:
            if not member.hear(parcel):
                return
        except ContractError:
            wrong = f"it sent {type(parcel).__name__} out of turn"
            if isinstance(parcel, Message):
                kind, got = type(parcel).__name__, f"round {parcel.round}"
                wrong = str(ContractError(party, kind, "", "nothing before Begin", got))
            self._expel(party, member, wrong)
            return
        match parcel:
            case said.Failure(reason=reason, hint=hint):
                self._telemetry.event("failed", party=party, reason=reason)
                self._fail(party, PartyFailed(party, reason, hint=hint))
                self._told_away(party)
            case said.Spent(releases=releases):
                if wrong := self.spending.state(party, releases):
                    self._expel(party, member, wrong)
            case said.Preparing():
                member.prepares = True
                self._prepare(party, member)
            case said.Saved(round=round, error=error):
                member.note_saved(round, error)
                self._saved(party, round, error)
            case said.Hello():
                self._hear_again(party, member, parcel)
            case Message() | Statement() if before in TAKING_PART:  # else it belongs to the stopped session
                self._links[party].deliver(parcel)

    def _prepare(self, party: str, member: Member) -> None:
        """Gives a party that prepares its table more time, once its session has begun."""
        if member.prepares and member.state in TAKING_PART:
            member.prepares = False
            if self._mailbox.prepare(party):
                self._telemetry.event("preparing", party=party)

    def confirm(self, schedule: Schedule) -> None:
        """All members have the same rows: parties that have stated more than the plan allows before are cut off."""
        for party, wrong in self.spending.confirm(schedule).items():
            if (member := self.members.get(party)) is not None:
                self._expel(party, member, wrong)

    def _hear_again(self, party: str, member: Member, hello: said.Hello) -> None:
        try:
            member.renew(hello, self._admission)
        except ColonnadeError as refused:
            self._expel(party, member, declared(refused)[0])
        else:
            self._changed.set()

    def _lose(self, party: str, member: Member, error: Exception) -> None:
        ended = member.state in ENDED
        member.hear(error)
        if ended or self.members.get(party) is not member:
            return
        self._telemetry.event("leave", party=party, reason=str(error))
        if isinstance(error, FloodError) and party in self._links:
            self._put_out[party] = self._failure = error  # waiting for it would be in vain
        self._forget(party, member, error)

    def _forget(self, party: str, member: Member, error: Exception) -> None:
        """Removes a party; its link raises the error, and the absence policy applies."""
        member.end()
        self.members.pop(party, None)
        self._changed.set()
        if party in self._links:
            self._away.setdefault(party, asyncio.get_running_loop().time())
            self._fail(party, error)
            if isinstance(error, PartyAway) and self._federation.absence == "wait":
                self._mailbox.excuse(party)
            self._told_away(party)

    def _fail(self, party: str, error: Exception) -> None:
        if isinstance(error, PartyFailed):
            self._failure = error
            self._changed.set()
        if party in self._links:
            self._links[party].lose(error)

    def _faulty(self, party: str, error: Exception) -> None:
        """Handles a party that broke the contract or sent numbers that are not finite.

        A round may go on with the others; the run does so only if the absence policy allows it.
        """
        if isinstance(error, PartyLost | PartyFailed | FloodError):
            return  # told where they are found
        self._fault = self._fault or error
        if self._federation.absence == "continue":
            self._telemetry.event("warning", party=party, reason=f"{error}; rounds go on without it")

    def _rejoin(self, party: str) -> None:
        """Admits a returned party to the current session. Raises PartyAway if that session has shared keys."""
        if self._links[party].keyed:
            raise PartyAway(party, "it is back, and everyone agrees on new keys")
        seconds = round(asyncio.get_running_loop().time() - self._away.pop(party), 3)
        self._links[party].renew(self.members[party].carry)
        self.session = self._numbers.after(self.session)  # a party never joins the same session twice
        restored = self._start(party, max((r for r in self.members[party].hello.held if r <= self.round), default=0))
        self._telemetry.event("rejoin", party=party, round=self.round, restored=restored, seconds=seconds)

    def _start(self, party: str, round: int) -> int:
        self.members[party].begin(
            said.Begin(self.session, self._names, self._run, round, self.aligned, self.backed_off)
        )
        return round

    def _link(self, party: str) -> Link:
        compress = Compressor(form_of(self._federation.compress.down), self._draws, party)
        link = Link(party, self._kinds, self._limits, self.members[party].carry, self._mailbox, compress=compress)
        link.watch = self.watch
        self.totals.link(party, link)
        return link

    def _expel_revoked(self, reasons: Mapping[str, str]) -> None:
        for party, reason in reasons.items():
            member = self.members.get(party)
            if member is not None and member.state not in ENDED:
                cut_off = self._expel(party, member, f"its certificate is revoked: {reason}")
                if party in self._links:  # the run began with it: end without waiting for the next gate
                    self._failure = cut_off

    def _expel(self, party: str, member: Member, reason: str) -> RefusedError:
        self._telemetry.refused(party, reason)
        self._refuse(member.connection, f"{party!r}: {reason}")
        self._telemetry.event("leave", party=party, reason=reason)
        cut_off = RefusedError(f"{party!r} was cut off: {reason}")
        self._forget(party, member, cut_off)
        return cut_off

    def _refuse(self, connection: Stream, reason: str) -> None:
        connection.post(said.Refusal(reason))
        closing = asyncio.ensure_future(connection.close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    def missing(self) -> list[str]:
        there = {name for name, member in self.members.items() if member.state not in (Stage.STOPPED, Stage.OVER)}
        return [name for name in self._federation.names if name not in there]

    def _round_opens(self, round: int) -> None:
        self.round = round
        self.phases.turn(COMPUTING)

    def _late(self, party: str, message: Message) -> None:
        self.totals.late[party] += 1
        self._telemetry.event("late", party=party, kind_of=type(message).__name__, round=message.round, now=self.round)


_PERIOD = 1.0  # seconds between two reads
_PATIENCE = 10.0  # seconds without the list after which no round is opened


class Revocations:
    """Tracks whether the revocation list can be read; rounds may be held back for at most `limit` seconds."""

    def __init__(self, admission: Admission, telemetry: Telemetry, limit: float) -> None:
        self._admission, self._telemetry, self._limit = admission, telemetry, limit
        self._unseen: float | None = None  # since when the list is unreadable

    async def watch(self, expel: Callable[[Mapping[str, str]], None]) -> None:
        """Calls `expel` with the revoked parties and the reasons, every second. Runs until cancelled."""
        said = ""
        while True:
            await asyncio.sleep(_PERIOD)
            try:
                expel(self._admission.revoked())
                said, self._unseen = "", None
            except IdentityError as broken:
                if self._unseen is None:
                    self._unseen = asyncio.get_running_loop().time()
                if str(broken) != said:
                    self._telemetry.event("revocations", reason=str(broken))
                said = str(broken)

    async def seen(self, _round: int = 0) -> None:
        """Called between rounds: if the list has been unreadable for some seconds, waits until it is read again.

        Raises IdentityError if it stays unreadable for longer than `limit`.
        """
        loop, reported = asyncio.get_running_loop(), False
        while self._unseen is not None and (age := loop.time() - self._unseen) > _PATIENCE:
            if age > _PATIENCE + self._limit:
                raise IdentityError(
                    f"the list of revoked certificates could not be read for {age:.0f} s",
                    hint="mend the file that server.revoked names, and go on with the run: --resume",
                )
            if not reported:
                reported = True
                self._telemetry.event("revocations", reason="no round is opened until the list is read again")
            await asyncio.sleep(_PERIOD)


_MOST = (1 << 32) - 2  # one less than the wire's largest, so that the next still fits


@dataclass(frozen=True)
class SessionNumbers:
    """Source of session numbers. Parties refuse a session whose number is not larger than the previous one.

    Numbers are seconds since 1970 (`clock`), so they increase even if the file is lost or the folder is an older copy.
    The file protects against a clock that goes back. Without a folder, in a simulation, they count from 1.
    """

    folder: Path | None = None
    clock: Callable[[], float] = time.time

    def after(self, last: int) -> int:
        """A number larger than `last` and all earlier ones; it is on disk when this returns."""
        if self.folder is None:
            return last + 1
        number = max(last + 1, int(self.clock()))
        path = RunFolder(self.folder).session
        number = max(number, kept(path) + 1)
        write_kept(path, str(number).encode())
        return number


def kept(path: Path) -> int:
    try:
        return whole(int(path.read_text(encoding="utf-8")), _MOST)
    except (OSError, ValueError):
        return 0  # rely on the clock
