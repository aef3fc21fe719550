"""What changes while a service runs: tables and ids, which are read again at SIGHUP."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass

from colonnade.common.errors import ColonnadeError, DataError, InputError
from colonnade.common.observability.hangup import on_hangup
from colonnade.launcher.prediction_files import PredictionIds
from colonnade.launcher.predictions import OpenedRun
from colonnade.reports.console.batches import NewBatches
from colonnade.reports.console.screen import out as console
from colonnade.reports.words import counted
from colonnade.server.prediction.model import Model

_LOOK = 2.0  # seconds between two looks at what parties have noted


class ServedIds:
    """The ids that a service answers, from a file that it reads again.

    Args:
        file: of the ids.
        run: whose rows they are.

    Raises:
        InputError: rows are matched by their order.
    """

    def __init__(self, file: PredictionIds, run: OpenedRun) -> None:
        if not run.aligns:
            raise InputError(
                "--ids: federation.align is none, so the service answers the rows of training and no others",
                hint="leave it out; or train with federation.align: psi",
            )
        self._file = file

    def read(self) -> tuple[str, ...]:
        """All of them. Raises DataError if there is none, or the file cannot be read."""
        if not (found := tuple(self._file.ids())):
            raise DataError(f"{self._file.path} has a header but no ids", hint="an id is one line below the header")
        return found

    async def renew(self, model: Model) -> None:
        """Reads the file again; a broken one is said, and the ids before stay."""
        try:
            ids = await asyncio.to_thread(self.read)
            await asyncio.to_thread(model.renew, ids)
        except ColonnadeError as wrong:
            console.print(f"the ids before stay: {wrong}", style="yellow", markup=False)
        else:
            console.print(f"{counted(len(ids), 'id')} are looked up in all tables", style="dim")


@dataclass
class Changes:
    """What changes while a service runs: at SIGHUP tables and ids are read again.

    Args:
        run: with the parties that were started here.
        ids: None for the rows of the run.
        batches: what the parties note.
    """

    run: OpenedRun
    ids: ServedIds | None
    batches: NewBatches

    async def follow(self, model: Model) -> None:
        """Takes signals, and prints what parties say of their tables. Runs until cancelled."""
        hung_up = asyncio.Event()
        on_hangup(hung_up.set)
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(hung_up.wait(), _LOOK)
            if hung_up.is_set():
                hung_up.clear()
                self.run.reload_tables()
                if self.ids is not None:
                    await self.ids.renew(model)
            self.batches.tell(console)
