"""The list of revoked certificates while a run goes on: looked at once a second, and no round without it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from colonnade.common.errors import IdentityError
from colonnade.common.observability.telemetry import Telemetry
from colonnade.server.membership.admission import Admission

_PERIOD = 1.0  # seconds between two looks
_PATIENCE = 10.0  # seconds without the list after which no round is opened


class Revocations:
    """Says whether anybody can tell who is revoked.

    Args:
        admission: reads the list.
        telemetry: told when it cannot be read, and when rounds stop for that.
        limit: seconds that rounds may stand still.
    """

    def __init__(self, admission: Admission, telemetry: Telemetry, limit: float) -> None:
        self._admission, self._telemetry, self._limit = admission, telemetry, limit
        self._unseen: float | None = None  # since when it cannot be read

    async def watch(self, expel: Callable[[Mapping[str, str]], None]) -> None:
        """Has those cut off who are revoked by now: why, by party. Runs until cancelled."""
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
        """Between two rounds: waits until the list is read again, if it has not been for some seconds.

        Raises:
            IdentityError: it takes longer than `limit`.
        """
        loop, told = asyncio.get_running_loop(), False
        while self._unseen is not None and (age := loop.time() - self._unseen) > _PATIENCE:
            if age > _PATIENCE + self._limit:
                raise IdentityError(
                    f"the list of revoked certificates could not be read for {age:.0f} s",
                    hint="mend the file that server.revoked names, and go on with the run: --resume",
                )
            if not told:
                told = True
                self._telemetry.event("revocations", reason="no round is opened until the list is read again")
            await asyncio.sleep(_PERIOD)
