"""Runs from Python: `colonnade.load(folder)` and what a run's folder holds."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from colonnade.common.errors import InputError
from colonnade.common.runtime.json_lines import read_lines
from colonnade.common.runtime.run_folder import RunFolder

if TYPE_CHECKING:
    import pyarrow as pa

    from colonnade.reports.records.run import RecordedRun


class Run:
    """A run that has ended, was interrupted, or still goes on. Every property reads the folder again.

    Args:
        folder: as `up`, `simulate` or `server` left it.

    Raises:
        InputError: the folder holds no run of a server, or is of a newer format.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._read()

    @property
    def summary(self) -> dict[str, Any]:
        """Content of summary.json; of an unfinished run, the same keys as far as its events give them."""
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
        """The server's events, a row each: `kind`, `time` (seconds) and one column a field.

        Columns of numbers are int64, double or bool, all others string; lists and mappings are JSON texts.
        """
        return _table(self._read().events)

    def ledger(self, party: str) -> pa.Table:
        """The party's own record of its messages, a row each; columns as in `events`.

        Raises:
            InputError: the run has no such party, or its ledger is elsewhere.
        """
        if party not in self.parties:
            raise InputError(f"{self.folder} has no party {party!r}", hint=f"there are {', '.join(self.parties)}")
        path = RunFolder(self.folder).party(party).ledger
        if not path.is_file():
            raise InputError(
                f"{path}: no such file", hint="the ledger lies with the party; a simulation without `out` has none"
            )
        return _table(read_lines(path))

    def report(self, out: str | Path | None = None) -> Path:
        """Writes the run's page and returns its path.

        Args:
            out: the page's file; report.html in the run's folder.

        Raises:
            EnvironmentFault: the page cannot be written.
        """
        from colonnade.reports.run_page.page import write_page  # noqa: PLC0415

        return write_page([self._read()], None if out is None else Path(out))

    def compare(self, *others: Run, out: str | Path | None = None) -> Path:
        """Writes a page that compares this run with others and returns its path.

        Args:
            others: at least one; no run twice.
            out: the page's file; comparison.html in this run's folder.

        Raises:
            InputError: there is no other run, or one is named twice.
            EnvironmentFault: the page cannot be written.
        """
        from colonnade.reports.run_page.page import write_page  # noqa: PLC0415

        if not others:
            raise InputError("there is no run to compare with", hint="give at least one other run")
        return write_page([run._read() for run in (self, *others)], None if out is None else Path(out))

    def __repr__(self) -> str:
        return f"<colonnade.Run {self.folder}: {self.protocol}, {self.status}>"

    def _read(self) -> RecordedRun:
        from colonnade.reports.records.run import read_run  # noqa: PLC0415

        return read_run(self.folder)


def load(folder: str | Path) -> Run:
    """Opens the folder of a run, finished or not.

    Raises:
        InputError: the folder holds no run of a server, or is of a newer format.
    """
    return Run(folder)


def _table(entries: Iterable[Mapping[str, Any]]) -> pa.Table:
    """A column a key, in order of appearance; null where an entry does not have it."""
    import pyarrow as pa  # noqa: PLC0415

    rows = list(entries)
    keys = dict.fromkeys(key for row in rows for key in row)
    return pa.table({key: pa.array(_column([row.get(key) for row in rows])) for key in keys})


def _column(values: list[Any]) -> list[Any]:
    """Values of one type: numbers as they are, or all as texts, of which lists and mappings are JSON."""
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int, float}:
        return [value if value is None or kinds == {int} else float(value) for value in values]
    if kinds in ({bool}, {str}):
        return values
    return [value if value is None or isinstance(value, str) else json.dumps(value) for value in values]
