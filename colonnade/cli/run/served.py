"""Tables and ids that a running service reads again at SIGHUP."""

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

_LOOK = 2.0  # seconds between polls of the parties' notes


class ServedIds:
    """The ids that a service answers, from a file that it can read again. Refuses runs that match rows by order."""

    def __init__(self, file: PredictionIds, run: OpenedRun) -> None:
        if not run.aligns:
            raise InputError(
                "--ids: federation.align is none, so the service answers the rows of training and no others",
                hint="leave it out; or train with federation.align: psi",
            )
        self._file = file

    def read(self) -> tuple[str, ...]:
        """Returns all ids; refuses an empty file."""
        if not (found := tuple(self._file.ids())):
            raise DataError(f"{self._file.path} has a header but no ids", hint="an id is one line below the header")
        return found

    async def renew(self, model: Model) -> None:
        """Reads the file again; if it is broken, reports that and keeps the previous ids."""
        try:
            ids = await asyncio.to_thread(self.read)
            await asyncio.to_thread(model.renew, ids)
        except ColonnadeError as wrong:
            console.say(f"the ids before stay: {wrong}", "yellow")
        else:
            console.say(f"{counted(len(ids), 'id')} are looked up in all tables", "dim")


@dataclass
class Changes:
    """Reads tables and ids again at SIGHUP while a service runs.

    Args:
        run: with the parties that were started here.
        ids: None for the rows of the run.
        batches: the parties' notes.
    """

    run: OpenedRun
    ids: ServedIds | None
    batches: NewBatches

    async def follow(self, model: Model) -> None:
        """Handles signals, and prints the parties' reports on their tables. Runs until cancelled."""
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
