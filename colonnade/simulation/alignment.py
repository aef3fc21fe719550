"""An alignment of all members' tables on the virtual clock, before a simulated run."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from torch import Tensor

from colonnade.client.alignment.finding import PartyFinding
from colonnade.client.alignment.matching import Matching
from colonnade.client.alignment.reuse import PartyReuse, ReuseTerms
from colonnade.client.privacy.egress import Egress
from colonnade.common.alignment.checks.modes import one_time
from colonnade.common.alignment.exponent import MakeExponent
from colonnade.common.alignment.kept.keeping import Keeping, Place
from colonnade.common.alignment.keys import RowKeys
from colonnade.common.alignment.messages import alignment_kinds, alignment_limits
from colonnade.common.alignment.record import AlignmentRecord
from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.members import Config
from colonnade.common.conversation import inprocess
from colonnade.common.conversation.conversation import SERVER, Cohort, Link
from colonnade.common.conversation.inprocess import MemoryConnection
from colonnade.common.crypto.sealing import Session
from colonnade.common.data.sources import load_features, load_labels
from colonnade.common.errors import ConfigError
from colonnade.common.parsing.error_attribution import whose
from colonnade.common.privacy.accounting.ledger import Ledger
from colonnade.common.privacy.release import release_clear
from colonnade.common.run.run_cache import RunCache
from colonnade.server.alignment.finding import KeptPart, ServerFinding, aligned_anew
from colonnade.server.alignment.relay import Aligning
from colonnade.server.alignment.reuse import Agreed
from colonnade.simulation.files import RunFiles


async def find_rows(
    config: Config, base: Path, files: RunFiles | None = None, note: Callable[..., None] = lambda _kind, **_about: None
) -> Mapping[str, Tensor]:
    """Rows of every member's source that all members have, int64 (common,), in their common order."""
    federation, own = config.federation, config.server
    if own is None:
        raise ConfigError("no `server` section", hint="the server's labels are needed")
    names, session = list(federation.names), Session(federation.id, "simulated", 1, federation.hashes())
    kinds, limits = alignment_kinds(federation), alignment_limits(len(names) + 1)
    cohort, ends = inprocess.meet(names, kinds, limits)
    caches = {} if files is None else {member: files.tables(member) for member in (SERVER, *names)}
    with whose(SERVER):
        ids = load_labels(own.labels, base, federation.task, own.copies(caches.get(SERVER))).ids
        keys = {SERVER: RowKeys.of(ids, federation.keys, SERVER)}
    for name in names:
        with whose(name):
            ids = load_features(config.parties[name].data, federation.party_index(name), base, caches.get(name)).ids
            keys[name] = RowKeys.of(ids, federation.keys, name)
    for cache in caches.values():
        cache.keep()
    if files is not None and (before := files.aligned(keys)) is not None:
        note("aligned", rows=len(keys[SERVER]), common=len(before[SERVER]), seconds=0.0)
        return before
    sides: dict[str, Coroutine[Any, Any, Tensor]] = {
        SERVER: _server_side(config, base, keys[SERVER], session, cohort=cohort, files=files, note=note)
    }
    for name in names:
        sides[name] = _party_side(name, config, base, keys[name], session, end=ends[name], files=files)
    tasks = [asyncio.ensure_future(side) for side in sides.values()]
    try:
        return dict(zip(sides, await asyncio.gather(*tasks), strict=True))
    finally:  # the first error is the one that counts
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _server_side(
    config: Config,
    base: Path,
    keys: RowKeys,
    session: Session,
    *,
    cohort: Cohort,
    files: RunFiles | None,
    note: Callable[..., None],
) -> Tensor:
    federation, own = config.federation, config.server
    assert own is not None  # checked by the caller
    keeping = Keeping() if files is None else Keeping.of(
        federation, Place(own.alignments, base, files.folder.path, SERVER), pinned=False
    )  # fmt: skip
    part = None if (kept := keeping.held(keys)) is None else KeptPart(kept.identity, kept.rows)
    record = AlignmentRecord(RunCache(), keys, SERVER) if files is None else files.alignment(SERVER, keys)

    def aligning(
        *, keys: RowKeys, agreed: Agreed, after: int, already: int, keep: Callable[[str, Tensor], None]
    ) -> Aligning:
        return Aligning(
            federation, keys, session, cohort, keep=keep, exponent=_exponent(keeping, federation),
            after=after, already=already, checks=federation.align_checks, nonces=agreed.nonces,
        )  # fmt: skip

    finding = ServerFinding(federation, cohort, aligning, keeping, record, part)
    try:
        rows = await finding()
        keeping.close(complete=True)
    finally:
        keeping.close()
    if finding.without:
        note("warning", reason=aligned_anew(finding.without))
    note("aligned", rows=len(keys), common=len(rows), reused=finding.reused, seconds=0.0)
    return rows


async def _party_side(
    name: str,
    config: Config,
    base: Path,
    keys: RowKeys,
    session: Session,
    *,
    end: MemoryConnection,
    files: RunFiles | None,
) -> Tensor:
    """A party's side; with `files`, it keeps a ledger and counts others' keys."""
    federation, policy = config.federation, config.parties[name].policy
    if files is None:
        record, keeping = AlignmentRecord(RunCache(), keys, name), Keeping()
        ledger, foreign = Ledger(None), None
    else:
        record, ledger, foreign = files.alignment(name, keys), files.ledger(name, sys.maxsize), files.foreign_keys(name)
        keeping = Keeping.of(
            federation, Place(config.parties[name].alignments, base, files.folder.path, name), pinned=False,
            policy=policy.alignment_digest, reuse=policy.reuse_alignment,
        )  # fmt: skip
    egress = Egress(end.post, SERVER, release_clear, ledger)
    kinds, limits = alignment_kinds(federation), alignment_limits(len(federation.names) + 1)
    link, admit_masked = Link(SERVER, kinds, limits, egress, outlet=end.outlet), egress.admit_masked
    end.attach(link.deliver, link.lose, link)
    reuse = PartyReuse(name, federation, policy, session, link, kept=keeping.held(keys), admit_masked=admit_masked)

    def matching(*, terms: ReuseTerms, after: int, already: int, keep: Callable[[str, Tensor], None]) -> Matching:
        return Matching(
            name, federation, policy, keys, session=session, server=link, admit_masked=admit_masked, keep=keep,
            foreign=foreign, exponent=_exponent(keeping, federation), after=after, already=already,
            checks=federation.align_checks, nonces=terms.nonces,
        )  # fmt: skip

    with closing(ledger):
        try:
            rows = await PartyFinding(reuse, matching, keeping, record)()
            if foreign is not None:
                foreign.settle()
            keeping.close(complete=True)
            return rows
        finally:
            keeping.close()


def _exponent(keeping: Keeping, federation: FederationConfig) -> MakeExponent:
    return keeping.fresh if one_time(federation.align_checks) else keeping.exponent
