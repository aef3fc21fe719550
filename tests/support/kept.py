"""Members that keep their alignments from run to run, in one event loop on the virtual clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from colonnade.client.alignment.finding import PartyFinding
from colonnade.client.alignment.matching import Matching
from colonnade.client.alignment.reuse import PartyReuse
from colonnade.common.alignment.checks import checks_of, one_time
from colonnade.common.alignment.keeping import Keeping
from colonnade.common.alignment.keys import RowKeys
from colonnade.common.alignment.limits import DailyLimits, ForeignKeys
from colonnade.common.alignment.store import AlignmentRecord, AlignmentStore, KeptAlignment, roster_digest
from colonnade.common.config.alignment import AlignmentsConfig
from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.policy import PolicyConfig
from colonnade.common.conversation import inprocess
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.crypto.pki.identity import Identity
from colonnade.common.crypto.sealing import Session
from colonnade.common.messaging.message import Message
from colonnade.common.run.run_cache import RunCache
from colonnade.server.alignment.finding import KeptPart, ServerFinding
from colonnade.server.alignment.relay import Aligning
from tests.support.alignment import Change, together, watched


@dataclass
class Found:
    """Results of every member: its rows or its error, how many were reused, and every message: (from, to, message)."""

    rows: dict[str, Tensor | Exception] = field(default_factory=dict)
    reused: dict[str, int] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    messages: list[tuple[str, str, Message]] = field(default_factory=list)

    def kinds(self) -> set[str]:
        return {type(message).__name__ for _from, _to, message in self.messages}


@dataclass
class Members:
    """Members with a folder each.

    Args:
        folder: of all of them.
        agreed: the agreed section.
        tables: the ids of every member's rows.
        policies: of the parties.
        identities: keys and certificates; none without TLS.
        days: that alignments are kept.
        limits: of each member, on what others test in a day.
    """

    folder: Path
    agreed: FederationConfig
    tables: dict[str, Sequence[str]]
    policies: dict[str, PolicyConfig] = field(default_factory=dict)
    identities: dict[str, Identity] = field(default_factory=dict)
    days: float = 30.0
    limits: dict[str, AlignmentsConfig] = field(default_factory=dict)
    now: float = 1e9
    runs: int = 0
    warnings: list[str] = field(default_factory=list)

    def policy(self, member: str) -> PolicyConfig:
        return self.policies.get(member, PolicyConfig())

    def keys(self, member: str) -> RowKeys:
        return RowKeys.of(self.tables[member], self.agreed.keys, member)

    def keeping(self, member: str) -> Keeping:
        """As in a run."""
        rules = b"" if member == SERVER else self.policy(member).alignment_digest
        wants = member == SERVER or self.policy(member).reuse_alignment
        if not wants or not self.days or self.agreed.keys.seeded:
            return Keeping(None, rules, daily=self.daily(member))
        roster = roster_digest(self.agreed, pinned=bool(self.identities))
        store = AlignmentStore(self.folder / "kept" / member, roster, self.days, lambda: self.now)
        return Keeping(store, rules, 1, self.warnings.append, daily=self.daily(member))

    def daily(self, member: str) -> DailyLimits:
        """As in a run: in the member's folder of alignments."""
        config, folder = self.limits.get(member, AlignmentsConfig()), self.folder / "kept" / member
        limits = DailyLimits.of(self.agreed, config, folder, member, pinned=bool(self.identities))
        limits._now = lambda: self.now
        return limits

    def record(self, member: str, run: int) -> AlignmentRecord:
        """A member's record of one of the runs."""
        return AlignmentRecord(RunCache(self.folder / f"run{run}" / member), self.keys(member), member)

    def run(self, change: Change = lambda _from, _to, item: item) -> Found:
        """Another run. `change` may alter what a member sends, and to whom."""
        self.runs += 1
        return inprocess.run_virtual(self._main(change, None))

    def predict(self, asked: Sequence[str], change: Change = lambda _from, _to, item: item) -> Found:
        """A prediction of ids with the model of the newest run."""
        return inprocess.run_virtual(self._main(change, asked))

    def persons(self, found: Found, asked: Sequence[str] | None = None) -> list[str]:
        """The common ids in their order, which is the same at all members. Raises a member's error."""
        tables = self.tables if asked is None else {**self.tables, SERVER: asked}
        lists = []
        for member, rows in found.rows.items():
            if isinstance(rows, Exception):
                raise rows
            lists.append([tables[member][row] for row in rows.tolist()])
        assert all(own == lists[0] for own in lists)
        return lists[0]

    async def _main(self, change: Change, asked: Sequence[str] | None) -> Found:
        found, names = Found(), list(self.agreed.names)
        session = Session("test", f"run{self.runs}", 1, self.agreed.hashes())
        cohort, links = watched(names, change, found.messages)
        sides: dict[str, Any] = {SERVER: self._server(cohort, session, asked)}
        sides |= {name: self._party(name, links[name], session, whole=asked is None) for name in names}
        found.rows = await together({member: side() for member, side in sides.items()}, cohort, links)
        found.reused = {member: side.reused for member, side in sides.items()}
        found.without = sides[SERVER].without
        for member, side in sides.items():
            side.keeping.close(complete=not isinstance(found.rows[member], Exception))
        return found

    def _server(self, cohort: Any, session: Session, asked: Sequence[str] | None) -> ServerFinding:
        keeping, keys = self.keeping(SERVER), self.keys(SERVER)
        if asked is None:
            kept = keeping.held(keys)
            part = None if kept is None else KeptPart(kept.identity, kept.rows)
            record = self.record(SERVER, self.runs)
        else:
            keys = RowKeys.of(asked, self.agreed.keys, SERVER)
            part, record = self._part(keeping, keys), AlignmentRecord(RunCache(), keys, SERVER)

        def aligning(*, keys: RowKeys, agreed: Any, after: int, already: int, keep: Any) -> Aligning:
            checks = checks_of(self.agreed.align_checks, whole=asked is None)
            exponent = keeping.exponent if asked is None and not one_time(checks) else keeping.fresh
            return Aligning(
                self.agreed, keys, session, cohort, keep, block=5, exponent=exponent, after=after, already=already,
                daily=keeping.daily, checks=checks, nonces=agreed.nonces,
            )  # fmt: skip

        return ServerFinding(self.agreed, cohort, aligning, keeping, record, part, whole=asked is None)

    def _part(self, keeping: Keeping, asked: RowKeys) -> KeptPart | None:
        run = self.record(SERVER, self.runs)
        if (kept := run.kept(keeping.terms)) is None:
            return None
        places = {run.keys.values[row]: place for place, row in enumerate(kept.rows.tolist())}
        known = sorted((places[key], row) for row, key in enumerate(asked.values) if key in places)
        wanted, rows = (torch.tensor([pair[at] for pair in known], dtype=torch.int64) for at in (0, 1))
        return KeptPart(kept.identity, rows, None if len(rows) == len(kept.rows) else wanted) if known else None

    def _party(self, name: str, link: Any, session: Session, *, whole: bool) -> PartyFinding:
        keeping, keys, policy = self.keeping(name), self.keys(name), self.policy(name)
        run = self.record(name, self.runs)
        kept: KeptAlignment | None = keeping.held(keys)
        if not whole:
            kept = run.kept(keeping.terms) if keeping.terms else None
        record = run if whole else AlignmentRecord(RunCache(), keys, name)
        reuse = PartyReuse(name, self.agreed, policy, session, link, self.identities.get(name), kept, partial=not whole)

        def matching(*, terms: Any, after: int, already: int, keep: Any) -> Matching:
            checks = checks_of(self.agreed.align_checks, whole=whole)
            exponent = keeping.fresh if one_time(checks) else keeping.exponent
            return Matching(
                name, self.agreed, policy, keys, session, link, keep=keep, block=5,
                foreign=ForeignKeys(name, policy.max_other_rows), exponent=exponent, after=after,
                already=already, daily=keeping.daily, checks=checks, nonces=terms.nonces,
                identity=self.identities.get(name), partial=not whole,
            )  # fmt: skip

        return PartyFinding(reuse, matching, keeping, record, whole)
