"""Opens a finished run for predictions: by its folder alone if `up` made it, else with the server's own file.

The parties of a run that `up` made are restarted for them. `predict_ids` answers ids in memory with an Arrow table.
"""

from __future__ import annotations

import asyncio
import contextlib
import operator
import signal
import time
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import uvloop

from colonnade.common.config.data.tables import Key
from colonnade.common.config.members import Config
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.data.columns.kept_encoder import EncoderFile
from colonnade.common.data.sources import load_features
from colonnade.common.data.table_cache import TableCache
from colonnade.common.errors import ConfigError, DataError, InputError, PartyFailed
from colonnade.common.observability.telemetry import Event
from colonnade.common.parsing.dump import config_tree, yaml_text
from colonnade.common.parsing.earlier_defaults import as_begun, load_begun
from colonnade.common.parsing.error_messages import whose
from colonnade.common.parsing.file import load, parse
from colonnade.common.run.device import torch_threads
from colonnade.common.run.event_loop import run_on_own_loop
from colonnade.common.run.run_folder import PartyFolder, RunFolder
from colonnade.common.text import plain
from colonnade.launcher.folder_lock import locked_folder
from colonnade.launcher.named_tables import Tables, with_tables
from colonnade.launcher.processes import Processes, last_words, started, thread_share
from colonnade.launcher.scratch import scratch, temporary_identities
from colonnade.reports.console.run_to_end import run_to_end
from colonnade.server.prediction.model import Model, Said
from colonnade.server.prediction.run import PredictionRun, Work
from colonnade.server.prediction.terms import PredictionTerms

_ELSEWHERE = "of a server by itself, name its file too: --file server.yaml; its parties run `colonnade answer`"
_LINGER = 15.0  # seconds that they have for their farewell


class Answerers:
    """A process for every party, each with its own file, folder and throw-away keys.

    Args:
        keys: folder for keys, files and the server's address, for the duration of the predictions.
        needed: True if every party must be there; otherwise those without a folder are left out.
    """

    def __init__(self, config: Config, base: Path, folder: Path, keys: Path, *, insecure: bool, needed: bool) -> None:
        self._base, self._folder, self._keys, self._insecure = base, RunFolder(folder), keys, insecure
        self._address, self._needed = keys / "address", needed
        self._all = config.federation.names
        self.names = [name for name in self._all if needed or self._home(name).path.exists()]
        tree = config_tree(config)
        if not insecure:
            temporary_identities(keys / "members", self._all, tree)
        tree["server"]["listen"] = "127.0.0.1:0"
        self._tree, self.config = tree, parse(tree, begun=True)
        self.threads = thread_share(len(self.names) + 1)

    def start(self, processes: Processes) -> None:
        for name in self.names:
            file = self._keys / f"{name}.yaml"
            own = {"federation": self._tree["federation"], "parties": {name: self._tree["parties"][name]}}
            file.write_text(yaml_text(own), encoding="utf-8")
            argv = ["answer", str(file), "--in", str(self._home(name).path), "--base", str(self._base)]
            argv += ["--server-file", str(self._address), *(["--insecure"] if self._insecure else [])]
            processes.start(name, argv, self._log(name), threads=self.threads)

    def note(self, event: dict[str, Any]) -> None:
        if event["kind"] == "listening":
            partial = self._address.with_suffix(".partial")
            partial.write_text(event["address"], encoding="utf-8")
            partial.replace(self._address)

    async def watch(self, processes: Processes) -> None:
        """Waits until a needed party fails, or all have ended. Raises PartyFailed with its last error."""
        while True:
            await asyncio.sleep(0.2)
            processes.wait(0.0)
            for name, code in processes.codes.items():
                if code and (self._needed or len(processes.codes) == len(self.names)):
                    reason, hint = last_words(self._log(name), code)
                    raise PartyFailed(name, reason, hint=hint)

    def in_its_words(self, failed: PartyFailed, processes: Processes) -> PartyFailed:
        """The failure with the reason from the party's own log, which is readable on this machine."""
        deadline = time.monotonic() + _LINGER
        while failed.party in processes.running() and time.monotonic() < deadline:
            processes.wait(0.1)
        if not (code := processes.codes.get(failed.party)):
            return failed
        reason, hint = last_words(self._log(failed.party), code)
        return PartyFailed(failed.party, reason, hint=hint)

    def reload(self, processes: Processes) -> None:
        for name in processes.running():
            processes.signal(name, signal.SIGHUP)

    def end(self, processes: Processes) -> None:
        """Waits for the parties to end, then terminates the others."""
        deadline = time.monotonic() + _LINGER
        while processes.running() and time.monotonic() < deadline and not any(processes.codes.values()):
            processes.wait(0.1)
        for name in processes.running():
            processes.signal(name, signal.SIGTERM)

    def _home(self, name: str) -> PartyFolder:
        return self._folder.party(name)

    def _log(self, name: str) -> Path:
        return self._home(name).answers_log


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
        self._config, self._base, self.folder = config, base, folder
        self._terms = terms if answerers is None else replace(terms, expected=tuple(answerers[0].names))
        self._answerers = answerers
        self._listeners: list[Callable[[Event], None]] = [] if answerers is None else [answerers[0].note]
        assert config.server is not None  # checked by `opened`
        self._server = config.server
        self.parties, self.federation = config.federation.names, config.federation.id
        self.protocol = config.federation.protocol.name
        self.key: Key = getattr(config.server.labels, "key", None)
        self.aligns = config.federation.align != "none"  # rows are matched by keys: the ids must be known first

    @property
    def without(self) -> dict[str, str]:
        """By party, validation quality with the party's mean in place of its values, if the run recorded it."""
        found = (RunFolder(self.folder).read_summary() or {}).get("absent") or {}
        numbers = self._config.federation.task == "regression"
        return {party: f"RMSE {plain(value)}" if numbers else f"{value:.2%} right" for party, value in found.items()}

    def listen(self, listener: Callable[[Event], None]) -> None:
        self._listeners.append(listener)

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

    def fingerprints(self) -> str:
        """Digests of the columns of all members that are started here, in their tables as they are now."""
        federation, home = self._config.federation, RunFolder(self.folder)
        own = self._server.active
        members = {name: party.data for name, party in self._config.parties.items() if home.party(name).path.exists()}
        found = []
        for name, data in (members if own is None else members | {SERVER: own.data}).items():
            place = home.member(name).path
            with whose(name):
                kept = EncoderFile(place, begun=True)
                read = load_features(data, federation.party_index(name), self._base, TableCache(place), kept)
            found.append(f"{name} {read.fingerprint}")
        return " ".join(found)

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
            self.folder,
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

    Raises InputError if there is no run, or its parties are unknown.
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
        fork_server = started(answers=True) if processes is None else nullcontext(processes)  # its owner closes it
        with fork_server as running, scratch() as keys:
            base = RunFolder(home).begun_base(_ELSEWHERE)
            config, needed = load_begun(RunFolder(home).config), terms.absent == "refuse"
            config = with_tables(config, tables or {})
            answerers = Answerers(config, base, home, keys, insecure=not terms.secure, needed=needed)
            try:
                yield OpenedRun(answerers.config, base, home, (answerers, running), terms, tables=tables, loop=loop)
            finally:
                answerers.end(running)


def predict_ids(
    folder: Path, ids: Iterable[object], file: Path | None, terms: PredictionTerms, tables: Tables | None = None
) -> pa.Table:
    """Asks the parties of a finished run for predictions.

    Args:
        ids: words or whole numbers, as in the server's table.
        tables: replace the training tables of members that are started here.

    Returns:
        A row for each id, in their order: `id` (string), then for classes `class` (string) and `p_NAME` (double) for
        each, for numbers one column a target (double). Null where some member does not know the id.

    Raises:
        DataError: there is no id, or one is neither a word nor a whole number.
        ColonnadeError: the run cannot predict, or a party has failed.
    """
    asked = id_words(ids)
    answered: list[pa.Table] = []

    async def ask(model: Model) -> None:
        answered.append(_table(asked, await model.say(asked), model))

    loop = partial(run_on_own_loop, loop_factory=uvloop.new_event_loop)
    with opened(folder, file, terms, tables=tables, loop=loop) as run:
        run.check()
        run.ask(ask, asked if run.aligns else None)
    return answered[0]


def id_words(ids: Iterable[object]) -> tuple[str, ...]:
    """Ids as words: whole numbers in decimal digits. Raises DataError."""
    if hasattr(ids, "columns") or isinstance(ids, Mapping):
        several = "several tables" if isinstance(ids, Mapping) else "a whole table"
        raise DataError(f"ids is a {type(ids).__name__}, {several}", hint="give a column of ids")
    if isinstance(ids, str | bytes) or not isinstance(ids, Iterable) or getattr(ids, "ndim", 1) != 1:
        raise DataError(f"ids = {ids!r:.40}: expected several ids", hint="give a list, a column or an array of them")
    found = tuple(_word(place, id) for place, id in enumerate(_scalars(ids)))
    if not found:
        raise DataError("there are no ids to predict", hint="give at least one")
    return found


def _scalars(ids: Iterable[object]) -> Iterable[object]:
    """Python values: a column of Arrow, numpy or pandas has its own number types."""
    for convert in ("to_pylist", "tolist", "to_list"):
        if hasattr(ids, convert):
            values: Iterable[object] = getattr(ids, convert)()
            return values
    return ids


def _word(place: int, id: object) -> str:
    value = id.as_py() if hasattr(id, "as_py") else id
    with contextlib.suppress(UnicodeEncodeError):
        if isinstance(value, str) and value.strip() and value.encode():
            return str(value)
    if hasattr(value, "__index__") and not isinstance(value, bool) and not type(value).__name__.startswith("bool"):
        with contextlib.suppress(TypeError, ValueError):
            return str(operator.index(value))
    raise DataError(
        f"ids[{place}] is {id!r:.40}, of type {type(id).__name__}", hint="ids are words or whole numbers, none missing"
    )


def _table(asked: Sequence[str], said: dict[str, Said], model: Model) -> pa.Table:
    rows = [said.get(id) for id in asked]
    columns: dict[str, Any] = {"id": pa.array(asked, pa.string())}
    if model.classes:
        best = [None if row is None else row.label for row in rows]
        columns["class"] = pa.array(best, pa.string())
    for place, name in enumerate(model.names):
        column = [None if row is None else row.values[place] for row in rows]
        columns[f"p_{name}" if model.classes else name] = pa.array(column, pa.float64())
    return pa.table(columns)
