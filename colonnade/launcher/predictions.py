"""Opens a finished run for predictions: by its folder alone if `up` made it, else with the server's own file."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from colonnade.common.config.data.tables import Key
from colonnade.common.config.members import Config
from colonnade.common.errors import ConfigError, InputError, PartyFailed
from colonnade.common.observability.telemetry import Event
from colonnade.common.parsing.earlier_defaults import as_begun, load_begun
from colonnade.common.parsing.file import load
from colonnade.common.run.device import torch_threads
from colonnade.common.run.numbers import plain
from colonnade.common.run.run_folder import RunFolder
from colonnade.launcher.folder_lock import locked_folder
from colonnade.launcher.named_tables import Tables, with_tables
from colonnade.launcher.prediction_parties import Answerers
from colonnade.launcher.processes import Processes
from colonnade.launcher.scratch import scratch
from colonnade.reports.console.run_to_end import run_to_end
from colonnade.server.prediction.model import Model
from colonnade.server.prediction.run import PredictionRun, Work
from colonnade.server.prediction.terms import PredictionTerms

RunToEnd = Callable[[Coroutine[Any, Any, None]], None]


class OpenedRun:
    """A run whose parties are started with it, or run elsewhere.

    Args:
        answerers: the parties' processes with their fork server, None where they run elsewhere.
        loop: runs the conversation to its end; None for a process of its own, which ends with it.
    """

    def __init__(
        self,
        config: Config,
        base: Path,
        folder: Path,
        answerers: tuple[Answerers, Processes] | None,
        terms: PredictionTerms,
        *,
        tables: Tables | None = None,
        loop: RunToEnd | None = None,
    ) -> None:
        self.other_tables = tuple(f"{name}: all values are those of {table}" for name, table in (tables or {}).items())
        self._loop = loop or run_to_end
        self._config, self._base, self._folder = config, base, folder
        self._terms = terms if answerers is None else replace(terms, expected=tuple(answerers[0].names))
        self._answerers = answerers
        self._listeners: list[Callable[[Event], None]] = [] if answerers is None else [answerers[0].note]
        assert config.server is not None  # checked by `opened`
        self._server = config.server

    @property
    def parties(self) -> tuple[str, ...]:
        return self._config.federation.names

    @property
    def folder(self) -> Path:
        return self._folder

    @property
    def federation(self) -> str:
        return self._config.federation.id

    @property
    def protocol(self) -> str:
        return self._config.federation.protocol.name

    @property
    def key(self) -> Key:
        return getattr(self._server.labels, "key", None)

    @property
    def without(self) -> dict[str, str]:
        """By party, validation quality with the party's mean in place of its values, if the run recorded it."""
        found = (RunFolder(self._folder).read_summary() or {}).get("absent") or {}
        numbers = self._config.federation.task == "regression"
        return {party: f"RMSE {plain(value)}" if numbers else f"{value:.2%} right" for party, value in found.items()}

    def listen(self, listener: Callable[[Event], None]) -> None:
        self._listeners.append(listener)

    @property
    def aligns(self) -> bool:
        """True if rows are matched by keys, so that the ids must be known first."""
        return self._config.federation.align != "none"

    def ask(self, work: Work, ids: Collection[str] | None = None) -> None:
        """Connects the parties, does the work and ends the session.

        Args:
            ids: to predict, where rows are matched by keys; None for the rows of the run.
        """
        run = self._run(work if self._answerers is None else self._watched(work), ids)
        if self._answerers is None:
            with torch_threads(self._server.threads):
                self._loop(run.run())
            return
        answerers, processes = self._answerers
        answerers.start(processes)
        try:
            with torch_threads(self._server.threads or answerers.threads):
                self._loop(run.run())
        except PartyFailed as failed:
            raise answerers.in_its_words(failed, processes) from failed

    def reload_tables(self) -> None:
        if self._answerers is not None:
            answerers, processes = self._answerers
            answerers.reload(processes)

    def check(self) -> None:
        """Refuses a run that cannot predict, before any party is started. Raises InputError."""

        async def nothing(_model: Model) -> None: ...

        self._run(nothing, None).check()

    def _run(self, work: Work, ids: Collection[str] | None) -> PredictionRun:
        return PredictionRun(
            self._config.federation,
            self._server,
            self._base,
            self._folder,
            work,
            terms=self._terms,
            ids=ids,
            listeners=tuple(self._listeners),
        )

    def _watched(self, work: Work) -> Work:
        """The work, which ends early when a party's process fails."""
        assert self._answerers is not None  # checked by the caller
        answerers, processes = self._answerers

        async def both(model: Model) -> None:
            tasks = [asyncio.ensure_future(work(model)), asyncio.ensure_future(answerers.watch(processes))]
            try:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

        return both


@contextmanager
def opened(
    folder: Path,
    file: Path | None,
    terms: PredictionTerms,
    *,
    tables: Tables | None = None,
    loop: RunToEnd | None = None,
    processes: Processes | None = None,
) -> Iterator[OpenedRun]:
    """Opens a run's folder, held for this process.

    Args:
        file: the server's own, where its parties are processes elsewhere.
        processes: a fork server that was begun before; None begins one if parties are to be started.

    Raises:
        InputError: there is no run, or its parties are unknown.
    """
    if not RunFolder(folder).begun:
        what = "is a file" if folder.is_file() else "holds no run"
        raise InputError(f"{folder} {what}", hint="give the folder of a run that has trained, as `up` printed it")
    with locked_folder(None, "", folder) as home:
        if file is not None:
            config = as_begun(load(file, begun=True), home)
            if config.server is None:
                raise ConfigError(f"{file}: no `server` section", hint="a server's file has `federation` and `server`")
            here = with_tables(config.model_copy(update={"parties": {}}), tables or {})
            yield OpenedRun(here, file.parent.resolve(), home, None, terms, tables=tables, loop=loop)
            return
        started = processes or Processes(answers=True)
        try:
            with scratch() as keys:
                base = _base(home)
                config, needed = load_begun(RunFolder(home).config), terms.absent == "refuse"
                config = with_tables(config, tables or {})
                answerers = Answerers(config, base, home, keys, insecure=not terms.secure, needed=needed)
                try:
                    yield OpenedRun(answerers.config, base, home, (answerers, started), terms, tables=tables, loop=loop)
                finally:
                    answerers.end(started)
        finally:
            if processes is None:  # otherwise its owner closes it
                started.close()


def _base(folder: Path) -> Path:
    return RunFolder(folder).begun_base(
        "of a server by itself, name its file too: --file server.yaml; its parties run `colonnade answer`"
    )
