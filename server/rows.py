"""Which of the server's rows count: found with the parties once in a run, and kept."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from torch import Tensor

from common.alignment.progress import tenths
from common.alignment.record import Record
from common.alignment.work import aside
from common.config import FederationConfig
from common.conversation import SERVER, Cohort
from common.crypto.sealing import Session
from common.errors import CheckpointError, ColonnadeError, OwnDataFailed
from common.message import Kinds
from common.telemetry import Telemetry
from server.aligning import Aligning


@dataclass
class Rows:
    """The server's table before it is aligned, and the alignment once it is settled.

    Args:
        federation: the agreed section.
        record: what is kept of it; it is there only when every party has kept its own.
        telemetry: told of progress and of the result.
        kinds: what may come once rows are aligned.
        use: called once in a start of the server, with the rows that count, int64 (common,).
    """

    federation: FederationConfig
    record: Record
    telemetry: Telemetry
    kinds: Kinds
    use: Callable[[Tensor], None]
    _used: bool = False

    def agreed(self, held: Mapping[str, str]) -> str:
        """The number of the alignment that counts; "" if rows are yet to be aligned.

        Args:
            held: the number of what each party holds.

        Raises:
            CheckpointError: the run is aligned, and a party has lost its part.
        """
        number = self.record.number
        if number and (without := [party for party, own in held.items() if own != number]):
            raise CheckpointError(
                f"the rows of this run are aligned, and {', '.join(without)} came without the file that says how",
                hint="resume every member from its own folder of this run, or begin a new run",
            )
        return number

    async def align(self, cohort: Cohort, session: Session) -> str:
        """Aligns rows unless they are; afterwards only the protocol's own messages may come.

        Returns:
            The number of the alignment.

        Raises:
            DataError: no key is common, or the table has changed since it was aligned.
            PeerError: a party is gone, has failed or says what it must not.
        """
        if not self.record.number:
            started = time.monotonic()
            told = tenths(partial(self.telemetry.event, "aligning", party=SERVER))
            keys = self.record.keys
            rows = await Aligning(self.federation, keys, session, cohort, self.record.keep, aside, told)()
            seconds = round(time.monotonic() - started, 3)
            self.telemetry.event("aligned", party=SERVER, rows=len(keys), common=len(rows), seconds=seconds)
        for link in cohort.values():
            link.kinds = self.kinds
        if not self._used:
            self._take(self.record.rows(self.record.number))
        return self.record.number

    def _take(self, rows: Tensor) -> None:
        try:
            self.use(rows)
        except ColonnadeError as wrong:
            raise OwnDataFailed(str(wrong), hint=wrong.hint) from wrong
        self._used = True
