"""Coordinated checkpoints: every member saves the same round, and the server commits it when all have."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from colonnade.common.config.run_options import CheckpointConfig
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.conversation.parcels import Save
from colonnade.common.errors import CheckpointError, EnvironmentFault, PartyLost, disk_faults
from colonnade.common.observability.telemetry import Telemetry
from colonnade.common.run.checkpoints import Checkpoints, Owner
from colonnade.common.run.files import write_durably
from colonnade.common.run.json_text import sealed, unsealed, whole
from colonnade.common.run.run_folder import RunFolder
from colonnade.common.run.state import Snapshot

COMMITTED = "committed.json"  # file name of the record of commits, in the checkpoints' folder

_NONE = 0, 0, 0, 0


@dataclass
class _Pending:
    """A checkpoint that not every member has saved yet."""

    round: int
    best: int
    waiting: set[str]
    begun: float
    done: asyncio.Future[None]
    keep: int
    sound: bool
    writing: asyncio.Task[None] | None = field(default=None)


class Saving:
    """The server side of checkpoints.

    Rounds continue while a checkpoint is written. The next one begins only after it is committed or given up, and the
    previous one is kept until then.

    Args:
        folder: has the record of commits; None if no checkpoint is ever due.
        clock: seconds from an arbitrary origin.
        grown: returns the lengths of append-only records by name; each commit stores them.

    Attributes:
        committed: the newest round that every member has saved, 0 if none.
        best: the best round, if every member has saved it; kept in addition to the newest two.
        sound: the newest committed round in which nothing grew (see `GrowthWatch`), 0 if none. While something grows it
            is kept instead of the second newest.
        backed_off: number of rollbacks to a sound round after a divergence.
    """

    def __init__(
        self,
        store: Checkpoints,
        folder: Path | None,
        owner: Owner,
        config: CheckpointConfig,
        telemetry: Telemetry,
        clock: Callable[[], float] = time.monotonic,
        *,
        grown: Callable[[], dict[str, int]] = dict,
    ) -> None:
        self._grown = grown
        self.keeps = folder is not None
        self._store, self._record, self._owner = store, (folder or Path()) / COMMITTED, owner
        self._config, self._telemetry, self._clock = config, telemetry, clock
        self._pending: _Pending | None = None
        self._unrecorded: EnvironmentFault | None = None
        self._last_time = clock()
        self.committed, self.best, self.sound, self.backed_off = read_committed(self._record) if self.keeps else _NONE

    def due(self, round: int, last: int, best: int = 0) -> bool:
        """True if a checkpoint is due after this round: periodic, the last, or the best."""
        if self.keeps and round in (last, best):
            return True
        if self._pending is not None or not self.keeps:
            return False
        by_rounds = bool(self._config.rounds) and round % self._config.rounds == 0
        by_time = bool(self._config.seconds) and self._clock() - self._last_time >= self._config.seconds
        return by_rounds or by_time

    async def make_way(self, limit: float) -> None:
        """Ends the pending checkpoint, if any, before the next begins; gives it up if a party does not save its part.

        The parties have `limit` seconds. The wait for the server's own file has no limit.
        """
        if (pending := self._pending) is not None:
            if pending.writing is not None:
                await asyncio.wait({pending.writing})
            await asyncio.wait({pending.done}, timeout=limit)
            if self._pending is pending:
                silent = ", ".join(sorted(pending.waiting))
                self.give_up(silent, f"it has not confirmed its checkpoint within {limit:g} s")
        self._refuse_unrecorded()

    async def begin(
        self,
        round: int,
        snapshot: Snapshot,
        parties: Iterable[str],
        ask: Callable[[Save], None],
        best: int = 0,
        *,
        sound: bool = True,
    ) -> None:
        """Saves the server's part in the background and requests the parties'. Needs `make_way` before it.

        `best` is the best round so far; `sound` is True if nothing grows in this round.
        """
        loop = asyncio.get_running_loop()
        keep, model = self.sound or self.committed, round if best == round else self.best or round
        pending = _Pending(round, best, {SERVER, *parties}, self._clock(), loop.create_future(), keep, sound)
        self._pending, self._last_time = pending, self._clock()
        pending.writing = loop.create_task(self._save_own(pending, snapshot))
        ask(Save(round, keep, self.best, model if best else 0))

    def restored(self, round: int) -> None:
        """Notes that the run resumes from a checkpoint of all members; it is kept until a newer one is committed."""
        self.committed = round
        # A lost record says 0. A checkpoint taken without a sound one before it is itself sound (`worth_saving`).
        self.sound = min(self.sound, round) or round

    async def settle(self, limit: float, *, sound: bool = True) -> None:
        """Waits at most `limit` seconds until a pending sound checkpoint is committed or given up."""
        if self._pending is not None and self._pending.sound >= sound:
            await asyncio.wait({self._pending.done}, timeout=limit)

    async def go_back(self, backed_off: int, limit: float) -> int:
        """Drops the checkpoints of a divergence. Returns the round to continue from: the newest sound one, or 0.

        Waits as `settle`, so that the round does not depend on the speed of members' disks.
        """
        await self.settle(limit)
        if (pending := self._pending) is not None:
            self._pending = None
            pending.done.set_result(None)
            if pending.writing is not None:
                await asyncio.wait({pending.writing})  # else its file would appear after the removal
        self.committed, self.backed_off = self.sound, backed_off
        self.best = self.best if self.best <= self.sound else 0
        with disk_faults(f"{self._record} cannot be written", "make room on the disk"):
            self._write()
        self._store.prune({self.sound, self.best})
        return self.sound

    def saved(self, member: str, round: int, error: str = "") -> None:
        pending = self._pending
        if pending is None or pending.round != round or member not in pending.waiting:
            return  # that checkpoint was given up
        if error:
            self.give_up(member, error)
            return
        pending.waiting.discard(member)
        if not pending.waiting:
            self._commit(pending)

    def give_up(self, member: str, reason: str) -> None:
        if self._pending is not None:
            pending, self._pending = self._pending, None
            pending.done.set_result(None)
            self._telemetry.event("checkpoint_failed", round=pending.round, party=member, reason=reason)

    async def finish(self, limit: float) -> None:
        """Waits until the pending checkpoint is committed or given up.

        Raises PartyLost if a party has not saved within `limit` seconds.
        """
        if (pending := self._pending) is not None:
            await asyncio.wait({pending.done}, timeout=limit)
        self._refuse_unrecorded()
        if pending is not None and not pending.done.done():
            silent = ", ".join(sorted(pending.waiting))
            raise PartyLost(
                silent,
                f"no checkpoint of round {pending.round} within {limit:g} s",
                hint="raise federation.timeouts.answer, or look at its disk",
            )

    async def _save_own(self, pending: _Pending, snapshot: Snapshot) -> None:
        error = ""
        try:
            await asyncio.to_thread(self._store.save, pending.round, snapshot, self._owner)
        except (EnvironmentFault, CheckpointError) as failed:
            error = str(failed)
        try:
            self.saved(SERVER, pending.round, error)
        except EnvironmentFault as unrecorded:
            self._unrecorded = unrecorded  # this task is not awaited: raised at the next wait for a checkpoint

    def _refuse_unrecorded(self) -> None:
        if self._unrecorded is not None:
            raise self._unrecorded

    def _commit(self, pending: _Pending) -> None:
        before, self._pending = (self.committed, self.best, self.sound), None
        pending.done.set_result(None)  # waiters run only after this function returns
        self.committed = pending.round
        self.best = pending.round if pending.best == pending.round else self.best
        self.sound = pending.round if pending.sound else self.sound
        try:
            self._write()
            self._store.prune({pending.round, pending.keep, self.best})
        except OSError as failed:
            self.committed, self.best, self.sound = before
            self._telemetry.event("checkpoint_failed", round=pending.round, party=SERVER, reason=str(failed))
        else:
            seconds = round(self._clock() - pending.begun, 6)
            self._telemetry.event("checkpoint", round=pending.round, seconds=seconds)

    def _write(self) -> None:
        self._record.parent.mkdir(parents=True, exist_ok=True)
        record = {"round": self.committed, "best": self.best, "sound": self.sound, "backed_off": self.backed_off}
        record |= {"model": self.best} if self.best else {}
        record |= {name: count for name, count in self._grown().items() if count}
        write_durably(self._record, sealed(record))


def common_round(held: Mapping[str, Collection[int]], committed: int) -> int:
    """The newest round that all members hold; 0, the beginning, if nothing was committed yet.

    Raises CheckpointError if a round was committed, but no round is held by all.
    """
    common = set.intersection(*map(set, held.values()))
    if not common and committed:
        without = [name for name, rounds in held.items() if committed not in rounds]
        text = f"no checkpoint is whole at all members: {', '.join(without) or 'some'} lack that of round {committed}"
        hint = "resume every member from its own folder of this run, or begin a new run"
        raise CheckpointError(text, hint=hint, shared=text)
    return max(common, default=0)


def refuse_older(record: Path, name: str, count: int, path: Path) -> None:
    """Raises CheckpointError if an append-only record is shorter than at the newest commit.

    `name` and `count` are its name and length as in `Saving.grown`, `path` its file, and `record` the record of
    commits.
    """
    try:
        noted = whole(unsealed(record.read_bytes()).get(name, 0))
    except (OSError, ValueError):
        return  # missing or altered, as in `read_committed`
    if count < noted:
        what = "is older than the newest checkpoint" if count else "is missing"
        raise CheckpointError(
            f"{path} {what}: it says which {name} were given",
            hint="restore it from a newer copy, or begin a new run in another folder",
        )


def read_committed(record: Path) -> tuple[int, int, int, int]:
    """Round, best, sound (by default the round) and number of rollbacks; zeros if the record is missing or altered."""
    try:
        content = unsealed(record.read_bytes())
        round = whole(content["round"])
        best, sound, backed_off = content.get("best", 0), content.get("sound", round), content.get("backed_off", 0)
        return round, whole(best), whole(sound), whole(backed_off)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return _NONE  # the members' checkpoints decide


def run_number(folder: RunFolder, store: Checkpoints) -> str:
    """The run's number: drawn when the run begins, and read again when it resumes.

    Raises CheckpointError if its record was altered, or is missing although there are checkpoints.
    """
    if (number := folder.number()) is not None:
        return number
    if not folder.run.exists() and not (run := store.run()):
        return secrets.token_hex(8)
    what = "is torn or was altered" if folder.run.exists() else f"is missing, and there are checkpoints of run {run}"
    raise CheckpointError(f"{folder.run} {what}", hint="restore it from a copy of this folder, or begin a new run")
