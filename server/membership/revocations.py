"""The list of revoked certificates during a run: read every second, and required before every round."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from colonnade.common.errors import IdentityError
from colonnade.common.observability.telemetry import Telemetry
from colonnade.server.membership.admission import Admission

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
