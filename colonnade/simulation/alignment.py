"""An alignment of all members' tables on the virtual clock, before a simulated run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from torch import Tensor

from colonnade.client.alignment.rows import PartyRows
from colonnade.client.training.progress import TrainingProgress
from colonnade.common.alignment.kept.keeping import Keeping, Place
from colonnade.common.alignment.keys import RowKeys
from colonnade.common.alignment.messages import alignment_kinds, alignment_limits
from colonnade.common.alignment.psi_member import NAME as SEED
from colonnade.common.alignment.psi_member import Seed
from colonnade.common.alignment.record import AlignmentRecord
from colonnade.common.config.members import Config
from colonnade.common.conversation import inprocess
from colonnade.common.conversation.control import Item
from colonnade.common.conversation.conversation import SERVER, Link
from colonnade.common.conversation.inprocess import MemoryConnection
from colonnade.common.conversation.membership import Begin
from colonnade.common.crypto.sealing import Session
from colonnade.common.data.sources import load_features, load_labels
from colonnade.common.errors import ConfigError
from colonnade.common.observability.telemetry import Telemetry
from colonnade.common.parsing.error_attribution import whose
from colonnade.common.run.run_cache import RunCache
from colonnade.server.alignment.rows import ServerRows, server_keeping
from colonnade.simulation.files import RunFiles


async def find_rows(
    config: Config, base: Path, files: RunFiles | None = None, telemetry: Telemetry | None = None
) -> Mapping[str, Tensor]:
    """Rows of every member's source that all members have, int64 (common,), in their common order."""
    federation, own, telemetry = config.federation, config.server, telemetry or Telemetry()
    if own is None:
        raise ConfigError("no `server` section", hint="the server's labels are needed")
    names, out = list(federation.names), None if files is None else files.folder.path
    caches = {} if files is None else {member: files.tables(member) for member in (SERVER, *names)}
    kept = {member: None if files is None else files.folder.member(member).run_cache for member in (SERVER, *names)}
    with whose(SERVER):
        ids = load_labels(own.labels, base, federation.task, own.copies(caches.get(SERVER))).ids
        record = AlignmentRecord(RunCache(kept[SERVER]), RowKeys.of(ids, federation.keys, SERVER), SERVER)
    seed = Seed(None if (place := kept[SERVER]) is None else place / SEED)
    keeping = Keeping() if out is None else server_keeping(federation, own, base, out, telemetry, secure=False)
    server = ServerRows(federation, record, telemetry, {}, _use, seed, keeping)
    rows = {}
    for name in names:
        party = config.parties[name]
        with whose(name):
            table = load_features(party.data, federation.party_index(name), base, caches.get(name))
            rows[name] = PartyRows(
                name, federation, party.policy, table,
                run_cache=RunCache(kept[name]), kept=kept[name], out=None if files is None else files.home(name),
                telemetry=Telemetry(), progress=TrainingProgress(),
                keeping=Keeping() if out is None else Keeping.of(
                    federation, Place(party.alignments, base, out, name), pinned=False,
                    policy=party.policy.alignment_digest, reuse=party.policy.reuse_alignment,
                ),
            )  # fmt: skip
    for cache in caches.values():
        cache.keep()
    aligned = server.agreed({name: one.record.number for name, one in rows.items()})
    begin = Begin(1, federation.names, "simulated", 0, aligned)
    session = Session(federation.id, begin.run, begin.session, federation.hashes())
    kinds, limits = alignment_kinds(federation), alignment_limits(len(names) + 1)
    cohort, ends = inprocess.meet(names, kinds, limits)
    serving = asyncio.ensure_future(server.align(cohort, session))
    sides = [asyncio.ensure_future(rows[name].find(Attendance(ends[name]), begin)) for name in names]
    try:
        await asyncio.gather(serving, *sides)
    finally:  # the first error is the one that counts
        for task in (serving, *sides):
            task.cancel()
        await asyncio.gather(serving, *sides, return_exceptions=True)
    records = {SERVER: record} | {name: one.record for name, one in rows.items()}
    return {member: each.rows(serving.result()) for member, each in records.items()}


def _use(_rows: Tensor) -> None: ...


class Attendance:
    """A party's conversation over a connection in memory, with what a `Membership` has for it."""

    def __init__(self, end: MemoryConnection) -> None:
        self._end, self.post, self.outlet = end, end.post, end.outlet

    def telling(self) -> AbstractContextManager[None]:
        return nullcontext()

    async def attend(
        self,
        deliver: Callable[[Item], None],
        side: Callable[[], Awaitable[None]],
        *,
        last: bool,  # noqa: ARG002  # `Attending`'s
        link: Link,
    ) -> bool:
        """Runs the party side; there is nobody who could go away."""
        self._end.attach(deliver, link.lose, link)
        await side()
        return True
