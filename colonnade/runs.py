"""Runs from Python: `simulate`, `up`, `load`, and a run's results."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from colonnade.common.errors import InputError
from colonnade.common.privacy.accounting.ledger import refuse_unpinned
from colonnade.common.run.files import private_files
from colonnade.common.run.json_text import read_lines
from colonnade.common.run.own_settings import own_settings
from colonnade.common.run.run_folder import RunFolder
from colonnade.launcher.processes import started
from colonnade.reports.console.live import shown
from colonnade.reports.console.progress import Progress
from colonnade.reports.console.screen import Screen
from colonnade.reports.console.screen import out as out_screen
from colonnade.reports.html.page import in_notebook
from colonnade.reports.records.run import RecordedRun, read_run
from colonnade.reports.run_page.page import short_page, write_page
from colonnade.server.prediction.terms import Absent, PredictionTerms

if TYPE_CHECKING:
    import pyarrow as pa

    from colonnade.launcher.configuration import ConfigLike
    from colonnade.launcher.federation import Ended
    from colonnade.reports.explanation.write import Explanation


OnEvent = Callable[[dict[str, Any]], None]
"""Called with every event of the server; an exception in it ends a simulation."""
Tables = Mapping[str, Any]
"""Tables by member; `server` holds the labels. Each has `__arrow_c_stream__`: pandas, polars, pyarrow, DuckDB."""


class Run:
    """A run that has ended, was interrupted, or is still going on. Every property reads the folder again.

    Raises:
        InputError: the folder holds no run of a server, or has a newer format.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).resolve()
        self._read()

    @property
    def summary(self) -> dict[str, Any]:
        """Content of summary.json; for an unfinished run, the same keys as far as its events give them.

        Releases and epsilons are those of the ledgers in the folder, predictions included; `privacy.counted` names
        the parties whose ledgers are there.
        """
        return dict(self._read().summary)

    @property
    def status(self) -> str:
        """`completed`, `interrupted`, `failed` or `unfinished`."""
        return str(self.summary.get("status", "completed"))

    @property
    def protocol(self) -> str:
        """Name of the protocol, as in `federation.protocol.name`."""
        return str(self.summary["protocol"])

    @property
    def parties(self) -> tuple[str, ...]:
        """Names of the parties, in the roster's order."""
        return self._read().parties

    @property
    def metrics(self) -> dict[str, float | None]:
        """Final metrics by name, such as `test_accuracy` (a fraction) or `test_rmse` (in units of the target)."""
        return dict(self.summary["metrics"])

    @property
    def events(self) -> pa.Table:
        """The server's events, a row each: `kind`, `time` (seconds) and one column per field.

        Columns are int64, double, bool or string; lists and mappings are JSON texts.
        """
        return _table(self._read().events)

    def ledger(self, party: str) -> pa.Table:
        """The party's own record of its messages, a row each; columns as in `events`.

        Raises:
            InputError: the run has no such party, or its ledger is elsewhere.
            CheckpointError: the ledger has lost lines since the pin beside it was written.
        """
        if party not in self.parties:
            raise InputError(f"{self.folder} has no party {party!r}", hint=f"there are {', '.join(self.parties)}")
        path = RunFolder(self.folder).party(party).ledger
        if not path.is_file():
            raise InputError(f"{path}: no such file", hint="the ledger lies with the party, on its own machine")
        refuse_unpinned(path)
        return _table(read_lines(path))

    def report(self, out: str | Path | None = None) -> Path:
        """Writes the run's page, by default report.html in its folder; returns its path. Raises EnvironmentFault."""
        with private_files():
            return write_page([self._read()], None if out is None else Path(out))

    def compare(self, *others: Run, out: str | Path | None = None) -> Path:
        """Writes a page that compares this run with at least one other, and returns its path.

        Args:
            out: the page's file; by default comparison.html in this run's folder.

        Raises:
            InputError: there is no other run, or one is named twice.
            EnvironmentFault: the page cannot be written.
        """
        if not others:
            raise InputError("there is no run to compare with", hint="give at least one other run")
        with private_files():
            return write_page([run._read() for run in (self, *others)], None if out is None else Path(out))

    def card(self, out: str | Path | None = None) -> Path:
        """Writes the model card of an ended run, by default card.md in its folder, and returns its path.

        card.html lies beside it. card.yaml in the run's folder, written at first, has the places for people.

        Raises:
            InputError: the run has not ended, or card.yaml has an unknown key.
        """
        from colonnade.reports.card.card import write_card  # noqa: PLC0415

        with private_files():
            return write_card(self.folder, None if out is None else Path(out)).markdown

    def explain(self, out: str | Path | None = None, *, sigma: float = 1.0) -> Explanation:
        """Measures how much each party of a finished run matters; writes explain.html and explain.json too.

        Args:
            out: folder of these files; by default the run's own.
            sigma: standard deviation of the noise, in units of the scaled features.

        Raises:
            InputError: the run has not ended, or its protocol cannot be explained.
        """
        from colonnade.reports.explanation import write  # noqa: PLC0415

        with own_settings():
            return write.Explanation(write.write_explanation(self.folder, None if out is None else Path(out), sigma))

    def predict(
        self,
        ids: Iterable[object],
        *,
        absent: Absent = "refuse",
        wait: float | None = None,
        file: str | Path | None = None,
        secure: bool = True,
        tables: Mapping[str, str | Path] | None = None,
    ) -> pa.Table:
        """Predicts rows with the trained model; every party answers from a process of its own.

        Args:
            ids: words or whole numbers, as in the server's table; a list, or a column of pandas, polars or pyarrow.
            absent: replacement for the embedding of an absent party.
            wait: seconds to wait for parties; by default `federation.timeouts.away`.
            file: the server's own configuration, where its parties are processes elsewhere.
            secure: uses TLS.
            tables: by member, a table in place of the training table: a file or a folder; for a database, a table or a
                query.

        Returns:
            A row for each id, in their order: `id`, then for classes `class` and `p_NAME` of each, for numbers one
            column a target. Null where some member does not know the id.

        Raises:
            DataError: an id is neither a word nor a whole number.
            ColonnadeError: the run cannot predict, or a party has failed.
        """
        from colonnade.launcher.predictions import predict_ids  # noqa: PLC0415

        terms = PredictionTerms(absent=absent, patience=wait, secure=secure)
        with own_settings():
            named = {name: str(table) for name, table in (tables or {}).items()}
            return predict_ids(self.folder, ids, None if file is None else Path(file), terms, named)

    def resume(
        self,
        *,
        epochs: int | None = None,
        rounds: int | None = None,
        sets: Sequence[str] = (),
        progress: bool = False,
        on_event: OnEvent | None = None,
    ) -> Run:
        """Continues from the newest checkpoint that all members hold, as the run began: simulated, or in processes.

        Args:
            epochs, rounds: of the whole run; by default as configured.
            sets: KEY=VALUE, as for `--set`; a run's results must not depend on the key.
            progress: shows a line of progress.
            on_event: called with every event of the server.

        Raises:
            ColonnadeError: there is nothing to continue, or a member has failed.
        """
        lengths = {"epochs": epochs, "rounds": rounds}
        changes = (*(f"federation.{key}={value}" for key, value in lengths.items() if value is not None), *sets)
        if self._read().virtual:
            from colonnade.launcher.virtual import resume_virtually  # noqa: PLC0415  # torch

            with own_settings(), _listening(on_event, progress=progress) as listeners:
                resume_virtually(self.folder, changes, listeners)
            return self
        listeners = _listeners(on_event)
        screen = _screen(progress=progress)
        with started() as processes, own_settings(), shown(screen):
            from colonnade.launcher import federation  # noqa: PLC0415  # while the fork server imports torch

            options = federation.LaunchOptions(screen=screen, listeners=listeners)
            return _finished(federation.relaunch(processes, self.folder, changes, options))

    def _repr_html_(self) -> str:
        """The first screen of the report, for notebooks."""
        return in_notebook(short_page(self._read()))

    def __repr__(self) -> str:
        return f"<colonnade.Run {self.folder}: {self.protocol}, {self.status}>"

    def _read(self) -> RecordedRun:
        return read_run(self.folder)


def load(folder: str | Path) -> Run:
    """Opens the folder of a run, finished or not.

    Raises:
        InputError: the folder holds no run of a server, or has a newer format.
    """
    return Run(folder)


def _table(entries: Iterable[Mapping[str, Any]], **types: str) -> pa.Table:
    """A column for each key, in order of appearance; null where an entry lacks it. `types` are Arrow's, by key."""
    import pyarrow as pa  # noqa: PLC0415

    rows = list(entries)
    keys = dict.fromkeys(key for row in rows for key in row)
    return pa.table({key: pa.array(_column([row.get(key) for row in rows]), types.get(key)) for key in keys})


def _column(values: list[Any]) -> list[Any]:
    """Values of one type: all numbers stay; otherwise all become texts, lists and mappings as JSON."""
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int, float}:
        return [value if value is None or kinds == {int} else float(value) for value in values]
    if kinds in ({bool}, {str}):
        return values
    return [value if value is None or isinstance(value, str) else json.dumps(value) for value in values]


def simulate(
    config: ConfigLike,
    tables: Tables | None = None,
    out: str | Path | None = None,
    *,
    sets: Sequence[str] = (),
    progress: bool = False,
    on_event: OnEvent | None = None,
) -> Run:
    """Runs a federation in this process on a virtual clock, as `colonnade simulate` does.

    Args:
        config: a YAML file's path, its content as a dict, or a `colonnade.Config`. Paths in a dict are relative to the
            working directory.
        tables: by member; such a member's section needs no `source`. Without a roster, their names are the roster.
        out: the run's folder; by default one under runs/.
        sets: KEY=VALUE, as for `--set`.
        progress: shows a line of progress.
        on_event: called with every event of the server.

    Raises:
        ConfigError: a key or a value is not allowed.
        DataError: a table cannot be used.
        TrainingDiverged: numbers are no longer finite; its `hint` has the command that goes back.
        ColonnadeError: as in a real run.
        KeyboardInterrupt: it was interrupted; `colonnade.load(folder).resume()` continues it.
    """
    from colonnade.launcher import configuration, virtual  # noqa: PLC0415  # torch

    with own_settings(), _listening(on_event, progress=progress) as listeners:
        given = configuration.GivenConfig.of(config, tables, sets)
        folder, _ = virtual.run_virtually(given, _path(out), listeners)
    return Run(folder)


def up(
    config: ConfigLike,
    tables: Tables | None = None,
    out: str | Path | None = None,
    *,
    sets: Sequence[str] = (),
    dashboard: bool | str = False,
    secure: bool = True,
    progress: bool = False,
    on_event: OnEvent | None = None,
) -> Run:
    """Runs a federation on this machine, every member a process of its own, as `colonnade up` does.

    Args:
        config, tables, out, sets, on_event: as for `simulate`.
        dashboard: serves the run's page during the run; True for a port on loopback, or HOST:PORT.
        secure: uses mutual TLS.
        progress: shows lines of progress.

    Raises:
        MemberFailed: a member's process has failed; its message and hint.
        ColonnadeError: the run could not be started.
        KeyboardInterrupt: it was interrupted; all processes have ended.
    """
    listeners = _listeners(on_event)
    screen = _screen(progress=progress)
    with started() as processes, own_settings(), shown(screen):
        from colonnade.launcher import configuration, federation  # noqa: PLC0415  # while the fork server imports torch

        address = _ANY if dashboard is True else dashboard or ""
        options = federation.LaunchOptions(secure, address, screen, listeners)
        given = configuration.GivenConfig.of(config, tables, sets)
        return _finished(federation.launch(processes, given, _path(out), options))


_ANY = "127.0.0.1:0"


def _finished(ended: Ended) -> Run:
    """The run, if it completed. Raises MemberFailed, KeyboardInterrupt."""
    if ended.interrupted:
        raise KeyboardInterrupt
    if ended.failure is not None:
        raise ended.failure
    return Run(ended.folder)


def _path(out: str | Path | None) -> Path | None:
    return Path(out) if out else None


def _listeners(on_event: OnEvent | None) -> tuple[OnEvent, ...]:
    if on_event is not None and not callable(on_event):
        raise InputError(f"on_event is a {type(on_event).__name__}", hint="give a function of one event, a dict")
    return () if on_event is None else (on_event,)


@contextmanager
def _listening(on_event: OnEvent | None, *, progress: bool) -> Iterator[tuple[Callable[[dict[str, Any]], None], ...]]:
    """The listeners of a simulation, including the line of progress."""
    if not progress:
        yield _listeners(on_event)
        return
    with shown(out_screen):
        heard = Progress(out_screen, "reading the data")
        try:
            yield (heard, *_listeners(on_event))
        finally:
            heard.close()


def _screen(*, progress: bool) -> Screen:
    """The console, or one that prints nothing."""
    return out_screen if progress else Screen(quiet=True)
