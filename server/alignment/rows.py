"""The server's aligned rows: found with the parties once in a run, and stored."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from colonnade.common.alignment.checks import checks_of, one_time
from colonnade.common.alignment.keeping import Keeping, Place
from colonnade.common.alignment.keys import RowKeys
from colonnade.common.alignment.place import lasting
from colonnade.common.alignment.psi_member import Seed
from colonnade.common.alignment.store import AlignmentRecord
from colonnade.common.alignment.work import aside, tenths
from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.members import ServerConfig
from colonnade.common.conversation.conversation import SERVER, Cohort
from colonnade.common.crypto.sealing import Session
from colonnade.common.errors import CheckpointError
from colonnade.common.messaging.message import Kinds
from colonnade.common.observability.telemetry import Telemetry
from colonnade.server.alignment.finding import KeptPart, ServerFinding, aligned_anew
from colonnade.server.alignment.relay import Aligning
from colonnade.server.alignment.reuse import Agreed


@dataclass
class ServerRows:
    """The server's table before alignment, and the settled alignment.

    Args:
        record: written once every party has stored its own.
        kinds: messages allowed once rows are aligned.
        use: called once per start of the server, with the aligned rows, int64 (common,).
        seed: derives the secret and the shuffles until rows are aligned.
        part: what a prediction uses of a stored alignment; None for none.
        whole: True if all rows are aligned with the whole roster, so that the alignment is stored for other runs.
    """

    federation: FederationConfig
    record: AlignmentRecord
    telemetry: Telemetry
    kinds: Kinds
    use: Callable[[Tensor], None]
    seed: Seed = field(default_factory=Seed)
    keeping: Keeping = field(default_factory=Keeping)
    part: KeptPart | None = None
    whole: bool = True
    _used: bool = False

    def agreed(self, held: Mapping[str, str]) -> str:
        """The number of the settled alignment; "" if rows are not aligned yet. `held` has each party's number.

        Raises CheckpointError if the run is aligned, and a party has lost its part.
        """
        number = self.record.number
        if number and (without := [party for party, own in held.items() if own != number]):
            text = f"the rows of this run are aligned, and {', '.join(without)} came without the file that says how"
            hint = "resume every member from its own folder of this run, or begin a new run"
            raise CheckpointError(text, hint=hint, shared=text)
        return number

    async def align(self, cohort: Cohort, session: Session) -> str:
        """Aligns rows if needed, and returns the alignment's number; then only the protocol's messages are allowed.

        Raises DataError if no key is common, or the table has changed since it was aligned.
        """
        if not self.record.number:
            loop = asyncio.get_running_loop()
            started = loop.time()
            keys = self.record.keys
            finding = self._finding(cohort, session)
            try:
                rows = await finding()
                await aside(partial(self.keeping.close, complete=True))
            finally:
                self.keeping.close()
            seconds = round(loop.time() - started, 3)
            self._tell_without(finding.without)
            counts = {"rows": len(keys), "common": len(rows), "reused": finding.reused}
            self.telemetry.event("aligned", party=SERVER, **counts, seconds=seconds)
        for link in cohort.values():
            link.kinds = self.kinds
        if not self._used:
            self.use(self.record.rows(self.record.number))
            self._used = True
        return self.record.number

    def _finding(self, cohort: Cohort, session: Session) -> ServerFinding:
        part = self.part
        if self.whole and (kept := self.keeping.held(self.record.keys)) is not None:
            part = KeptPart(kept.identity, kept.rows)
        report = tenths(partial(self.telemetry.event, "aligning", party=SERVER))

        def aligning(
            *, keys: RowKeys, agreed: Agreed, after: int, already: int, keep: Callable[[str, Tensor], None]
        ) -> Aligning:
            # A prediction's keys get a fresh secret: parties cannot tell that a key is asked for again.
            checks = checks_of(self.federation.align_checks, whole=self.whole)
            exponent = self.keeping.exponent if self.whole and not one_time(checks) else self.keeping.fresh
            return Aligning(
                self.federation, keys, session, cohort, keep=keep, work=aside, report=report,
                warn=partial(_warn, self.telemetry), seed=self.seed,
                exponent=exponent, after=after, already=already, daily=self.keeping.daily,
                checks=checks, nonces=agreed.nonces, partial=not self.whole,
            )  # fmt: skip

        return ServerFinding(self.federation, cohort, aligning, self.keeping, self.record, part, whole=self.whole)

    def _tell_without(self, without: tuple[str, ...]) -> None:
        if without:
            names = ", ".join(without)
            other = f"rows are aligned anew: other keys than in training, or no alignment kept, at {names}"
            self.telemetry.event("warning", party=SERVER, reason=aligned_anew(without) if self.whole else other)


def server_keeping(
    federation: FederationConfig, config: ServerConfig, base: Path, out: Path, telemetry: Telemetry, *, secure: bool
) -> Keeping:
    """The server's stored alignments, as configured; `secure` is False for no TLS, as in a simulation."""
    place, own = Place(config.alignments, base, out, SERVER), config.identity
    # A server by itself may take all processors, since parties rest while it raises alone.
    processors = len(os.sched_getaffinity(0)) if secure else torch.get_num_threads()
    return Keeping.of(
        federation,
        place,
        pinned=secure and lasting(own and base / own),
        processors=config.threads or processors,
        warn=partial(_warn, telemetry),
    )


def _warn(telemetry: Telemetry, reason: str) -> None:
    telemetry.event("warning", party=SERVER, reason=reason)
