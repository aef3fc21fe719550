"""The server's aligned rows: found with the parties once in a run, and kept."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from torch import Tensor

from colonnade.common.alignment.progress import tenths
from colonnade.common.alignment.record import AlignmentRecord
from colonnade.common.alignment.seed import Seed
from colonnade.common.alignment.work import aside
from colonnade.common.config.federation import FederationConfig
from colonnade.common.conversation.conversation import SERVER, Cohort
from colonnade.common.crypto.sealing import Session
from colonnade.common.errors import CheckpointError
from colonnade.common.messaging.message import Kinds
from colonnade.common.observability.telemetry import Telemetry
from colonnade.server.alignment.relay import Aligning


@dataclass
class ServerRows:
    """The server's table before alignment, and the settled alignment.

    Args:
        federation: the agreed section.
        record: the stored alignment; written only when every party has kept its own.
        telemetry: receives progress and the result.
        kinds: messages allowed once rows are aligned.
        use: called once in a start of the server, with the aligned rows, int64 (common,).
        seed: of the secret and the shuffles, as long as rows are not aligned.
    """

    federation: FederationConfig
    record: AlignmentRecord
    telemetry: Telemetry
    kinds: Kinds
    use: Callable[[Tensor], None]
    seed: Seed = field(default_factory=Seed)
    _used: bool = False

    def agreed(self, held: Mapping[str, str]) -> str:
        """The number of the settled alignment; "" if rows are yet to be aligned.

        Args:
            held: number of the alignment that each party holds.

        Raises:
            CheckpointError: the run is aligned, and a party has lost its part.
        """
        number = self.record.number
        if number and (without := [party for party, own in held.items() if own != number]):
            text = f"the rows of this run are aligned, and {', '.join(without)} came without the file that says how"
            hint = "resume every member from its own folder of this run, or begin a new run"
            raise CheckpointError(text, hint=hint, shared=text)
        return number

    async def align(self, cohort: Cohort, session: Session) -> str:
        """Aligns rows unless they are aligned; afterwards only the protocol's own messages are allowed.

        Returns:
            The number of the alignment.

        Raises:
            DataError: no key is common, or the table has changed since it was aligned.
            PeerError: a party is gone, has failed or breaks the contract.
        """
        if not self.record.number:
            started = time.monotonic()
            report = tenths(partial(self.telemetry.event, "aligning", party=SERVER))
            keys = self.record.keys
            keep = self.record.keep
            rows = await Aligning(
                self.federation, keys, session, cohort, keep=keep, work=aside, report=report, seed=self.seed
            )()
            seconds = round(time.monotonic() - started, 3)
            self.telemetry.event("aligned", party=SERVER, rows=len(keys), common=len(rows), seconds=seconds)
        for link in cohort.values():
            link.kinds = self.kinds
        if not self._used:
            self.use(self.record.rows(self.record.number))
            self._used = True
        return self.record.number
