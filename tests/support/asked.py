"""Whole members in memory on the virtual clock that train a few rounds and then answer a server that may lie."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from colonnade.common.config.members import Config
from colonnade.common.conversation.conversation import SERVER, Cohort
from colonnade.common.conversation.inprocess import run_virtual
from colonnade.common.observability.telemetry import Event
from colonnade.server.prediction import run
from colonnade.server.prediction.model import Model
from colonnade.server.prediction.run import PredictionRun
from colonnade.server.prediction.terms import PredictionTerms
from tests.support.in_memory import LONG, PipeListener, members

Spoil = Callable[[Cohort], None]
"""Alters what a server of predictions sends, from the beginning of each session."""


@dataclass
class Asked:
    """A federation whose model is asked.

    Args:
        config: of all members.
        folder: with the members' folders.

    Attributes:
        errors: of the members in the newest conversation; None at its end.
        events: of all members in it.
        seconds: that it took, on the virtual clock.
    """

    config: Config
    folder: Path
    errors: dict[str, BaseException | None] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    seconds: float = 0.0

    def train(self) -> None:
        """Trains to the end."""

        async def main() -> None:
            with members(self.folder, self.config) as there:
                tasks = {name: there.start(name) for name in (SERVER, *self.config.federation.names)}
                await self._end(tasks)

        run_virtual(main())
        assert not any(self.errors.values()), self.errors

    def ask(
        self,
        work: Callable[[Model], Awaitable[None]],
        spoil: Spoil = lambda _cohort: None,
        *,
        here: tuple[str, ...] = (),
        **terms: Any,
    ) -> None:
        """Asks for predictions.

        Args:
            work: with the model.
            spoil: alters what the server sends.
            here: the parties that come; all of the roster if left out.
            terms: as `PredictionTerms` takes them.
        """
        predict = run.predict

        async def spoiled(ctx: Any, clients: Cohort, *more: Any, **named: Any) -> None:
            spoil(clients)
            await predict(ctx, clients, *more, **named)

        async def main() -> None:
            with members(self.folder, self.config) as there, patch.object(run, "predict", spoiled):
                federation, config = self.config.federation, self.config.server
                assert config is not None
                asking = PredictionRun(
                    federation, config, self.folder, there.home(SERVER), work,
                    terms=PredictionTerms(secure=False, **terms), listeners=(there.events.append,),
                    transport=partial(PipeListener, there),
                )  # fmt: skip
                runs: dict[str, Any] = {SERVER: asking}
                for name in here or federation.names:
                    runs[name] = there.party(name, answers=True)
                await self._end({name: asyncio.ensure_future(run.run()) for name, run in runs.items()})
                self.events = list(there.events)

        run_virtual(main())

    async def _end(self, tasks: dict[str, asyncio.Task[None]]) -> None:
        _, left = await asyncio.wait(tasks.values(), timeout=LONG)
        assert not left, [name for name, task in tasks.items() if task in left]
        self.errors = {name: task.exception() for name, task in tasks.items()}
        self.seconds = asyncio.get_running_loop().time()


def asking(*ids: str, times: int = 1) -> Callable[[Model], Awaitable[None]]:
    """Work that asks for the same rows again and again."""

    async def work(model: Model) -> None:
        for _ in range(times):
            await model.say(ids)

    return work
