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
    names, begin = list(federation.names), Begin(1, federation.names, "simulated", 0)
    kinds, limits = alignment_kinds(federation), alignment_limits(len(names) + 1)
    cohort, ends = inprocess.meet(names, kinds, limits)
    caches = {} if files is None else {member: files.tables(member) for member in (SERVER, *names)}
    with whose(SERVER):
        ids = load_labels(own.labels, base, federation.task, own.copies(caches.get(SERVER))).ids
        keys = {SERVER: RowKeys.of(ids, federation.keys, SERVER)}
    rows = {}
    for name in names:
        with whose(name):
            table = load_features(config.parties[name].data, federation.party_index(name), base, caches.get(name))
            policy, home = config.parties[name].policy, None if files is None else files.home(name)
            rows[name] = PartyRows(
                name, federation, policy, table,
                run_cache=RunCache() if files is None else files.run_cache(name),
                kept=None if files is None else files.folder.party(name).run_cache, out=home,
                telemetry=Telemetry(), progress=TrainingProgress(),
                keeping=Keeping() if files is None else Keeping.of(  # beside the run, which is not begun yet
                    federation, Place(config.parties[name].alignments, base, files.folder.path, name), pinned=False,
                    policy=policy.alignment_digest, reuse=policy.reuse_alignment,
                ),
            )  # fmt: skip
            keys[name] = rows[name].record.keys
    for cache in caches.values():
        cache.keep()
    if files is not None and (before := files.aligned(keys)) is not None:
        telemetry.event("aligned", party=SERVER, rows=len(keys[SERVER]), common=len(before[SERVER]), seconds=0.0)
        return before
    if files is None:
        server = ServerRows(federation, AlignmentRecord(RunCache(), keys[SERVER], SERVER), telemetry, {}, _use)
    else:
        out, record = files.folder.path, files.alignment(SERVER, keys[SERVER])
        keeping = server_keeping(federation, own, base, out, telemetry, secure=False)
        server = ServerRows(
            federation, record, telemetry, {}, _use, Seed(files.folder.run_cache / SEED), keeping
        )  # fmt: skip
    session = Session(federation.id, begin.run, begin.session, federation.hashes())
    serving = asyncio.ensure_future(server.align(cohort, session))
    sides = [asyncio.ensure_future(rows[name].find(Attendance(ends[name]), begin)) for name in names]
    try:
        await asyncio.gather(serving, *sides)
    finally:  # the first error is the one that counts
        for task in (serving, *sides):
            task.cancel()
        await asyncio.gather(serving, *sides, return_exceptions=True)
    records = {SERVER: server.record} | {name: own.record for name, own in rows.items()}
    return {member: record.rows(serving.result()) for member, record in records.items()}


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
