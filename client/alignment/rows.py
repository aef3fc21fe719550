"""A party's aligned rows: found with the other members once in a run, and kept."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from torch import Tensor

from colonnade.client.alignment.finding import PartyFinding
from colonnade.client.alignment.matching import Matching
from colonnade.client.alignment.reuse import PartyReuse, ReuseTerms
from colonnade.client.dialling.membership import Membership
from colonnade.client.privacy.egress import Egress
from colonnade.client.training.progress import TrainingProgress
from colonnade.common.alignment.checks import checks_of, one_time
from colonnade.common.alignment.keeping import Keeping
from colonnade.common.alignment.keys import RowKeys
from colonnade.common.alignment.limits import FOREIGN_KEYS, ForeignKeys
from colonnade.common.alignment.messages import alignment_kinds, alignment_limits
from colonnade.common.alignment.psi_member import NAME as SEED
from colonnade.common.alignment.psi_member import Seed
from colonnade.common.alignment.store import AlignmentRecord, KeptAlignment
from colonnade.common.alignment.work import aside, tenths
from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.policy import PolicyConfig
from colonnade.common.conversation.conversation import SERVER, Link
from colonnade.common.conversation.parcels import Begin
from colonnade.common.crypto.pki.identity import Identity
from colonnade.common.crypto.sealing import Session
from colonnade.common.data.columns.features import Features
from colonnade.common.errors import CheckpointError, ContractError
from colonnade.common.observability.telemetry import Telemetry
from colonnade.common.privacy.accounting.ledger import Ledger
from colonnade.common.privacy.release import release_clear
from colonnade.common.run.run_cache import RunCache
from colonnade.common.run.run_folder import PartyFolder


class TableRenewed(Exception):  # not an error: the party rejoins at once
    """A prediction's rows were aligned with an earlier table: the party has to join again."""


@dataclass
class PartyRows:
    """A party's table before it is aligned.

    Args:
        kept: folder of the secrets that all attempts of an alignment share; None keeps them in memory.
        out: the party's folder; None has no ledger.
        whole: True if rows are aligned with the whole roster, not only with the present parties.
    """

    name: str
    federation: FederationConfig
    policy: PolicyConfig
    features: Features
    run_cache: RunCache
    kept: Path | None
    out: Path | None
    telemetry: Telemetry
    progress: TrainingProgress
    whole: bool = True
    identity: Identity | None = None
    keeping: Keeping = field(default_factory=Keeping)
    record: AlignmentRecord = field(init=False)

    def __post_init__(self) -> None:
        keys = RowKeys.of(self.features.ids, self.federation.keys, self.name, self.out)
        self.record = AlignmentRecord(self.run_cache, keys, self.name)
        self._seed, path = (Seed(), None) if self.kept is None else (Seed(self.kept / SEED), self.kept / FOREIGN_KEYS)
        most, most_predicted = self.policy.max_other_rows, self.policy.max_predicted_rows
        if self.whole or most_predicted is None:
            self.foreign = ForeignKeys(self.name, most, path=path)
        else:
            self.foreign = ForeignKeys(self.name, most_predicted, "max_predicted_rows", path)

    async def align(self, membership: Membership, begin: Begin) -> Features | None:
        """The common rows in the common order; None if the server wants to go back.

        Raises:
            DataError: no key is common, or the table has changed since it was aligned.
            CheckpointError: the run was aligned before, with another table or alignment.
            TableRenewed: in a prediction, the rows were aligned with another table.
        """
        if begin.aligned and not self.whole and self.record.outdated:
            self.record.forget()
            raise TableRenewed
        if begin.aligned:
            with membership.telling():
                rows = self.record.rows(begin.aligned)
                self.foreign.settle()
                return self.features.rows(rows)
        with membership.telling():
            self._refuse_again()
        loop, found = asyncio.get_running_loop(), list[tuple[Tensor, int]]()
        started, path = loop.time(), None if self.out is None else PartyFolder(self.out).ledger
        with closing(Ledger(path, after=sys.maxsize)) as ledger:  # new secrets: no repeats
            egress = Egress(membership.post, SERVER, release_clear, ledger, self.progress.traffic.sent)
            kinds, limits = alignment_kinds(self.federation), alignment_limits(len(self.federation.parties) + 1)
            link = Link(SERVER, kinds, limits, egress, outlet=membership.outlet)

            async def match() -> None:
                finding = self._finding(link, egress, begin)
                found.append((await finding(), finding.reused))
                self.foreign.settle()
                self._seed.forget()
                await aside(partial(self.keeping.close, complete=True))

            try:
                half_done = await membership.attend(link.deliver, match, last=False, link=link)
            finally:
                self.keeping.close()
        if not half_done:
            return None
        (rows, reused), seconds = found[0], round(loop.time() - started, 3)
        result = {"rows": len(self.record.keys), "common": len(rows), "reused": reused, "seconds": seconds}
        self.telemetry.event("aligned", party=self.name, **result)
        return self.features.rows(rows)

    def _refuse_again(self) -> None:
        """Refuses to align a run's rows twice; predictions align theirs every time. Raises CheckpointError."""
        if self.whole and self.foreign.settled:
            raise CheckpointError(
                f"{self.name}: rows are aligned, and the server wants to align them again",
                hint="resume the server from its own folder of this run, or begin a new run with another --out",
                shared="its rows are aligned, and the server wants to align them again",
            )

    def _federation(self, begin: Begin) -> FederationConfig:
        """The agreed section, with the participants as its roster. Raises ContractError if we are not among them."""
        if self.whole:
            return self.federation
        if self.name not in begin.parties or not set(begin.parties) <= set(self.federation.names):
            expected = f"{self.name}, and others of the roster"
            raise ContractError(SERVER, "Begin", "parties", expected, str(begin.parties))
        there = {name: pin for name, pin in self.federation.parties.items() if name in begin.parties}
        return self.federation.model_copy(update={"parties": there})

    def _finding(self, link: Link, egress: Egress, begin: Begin) -> PartyFinding:
        if self.federation.keys.seeded:
            self._warn("federation.keys.seeded: anyone can compute our secret; for tests")
        session = Session(self.federation.id, begin.run, begin.session, self.federation.hashes())
        there, keys = self._federation(begin), self.record.keys
        checks = checks_of(there.align_checks, whole=self.whole)
        exponent = self.keeping.fresh if one_time(checks) else self.keeping.among(there.names)
        reuse = PartyReuse(
            self.name, there, self.policy, session, link, self.identity, self._kept(), partial=not self.whole,
            admit_masked=egress.admit_masked,
        )  # fmt: skip

        def matching(*, terms: ReuseTerms, after: int, already: int, keep: Callable[[str, Tensor], None]) -> Matching:
            return Matching(
                self.name, there, self.policy, keys,
                session=session, server=link, admit_masked=egress.admit_masked, keep=keep, work=aside,
                report=tenths(partial(self.telemetry.event, "aligning", party=self.name)),
                seed=self._seed, foreign=self.foreign, warn=self._warn,
                exponent=exponent, after=after, already=already, daily=self.keeping.daily,
                checks=checks, nonces=terms.nonces, identity=self.identity, partial=not self.whole,
            )  # fmt: skip

        return PartyFinding(reuse, matching, self.keeping, self.record, self.whole)

    def _kept(self) -> KeptAlignment | None:
        """The reusable alignment; for a prediction, the run's."""
        if self.whole:
            return self.keeping.held(self.record.keys)
        if not self.keeping.terms or self.out is None:
            return None
        run = AlignmentRecord(RunCache(PartyFolder(self.out).run_cache), self.record.keys, self.name)
        return run.kept(self.keeping.terms)

    def _warn(self, reason: str) -> None:
        self.telemetry.event("warning", party=self.name, reason=reason)
