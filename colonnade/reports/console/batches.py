"""Notes of parties on the batches of a prediction, if their folders are here: rows, and warnings about tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from colonnade.common.conversation.conversation import SERVER
from colonnade.common.run.json_text import read_lines
from colonnade.common.run.run_folder import RunFolder
from colonnade.reports.console.grid import Grid
from colonnade.reports.console.screen import Screen
from colonnade.reports.words import counted

_MOST = 20  # lines of the table


class NewBatches:
    """The batches that members note from construction on."""

    def __init__(self, folder: Path, members: Iterable[str]) -> None:
        homes = {name: RunFolder(folder).member(name) for name in members}
        self._batches = {name: _NewLines(home.batches) for name, home in homes.items()}
        self._events = {name: _NewLines(home.prediction_events) for name, home in homes.items() if name != SERVER}

    def show(self, console: Screen) -> None:
        """Prints a table of columns with missing values, new words or a shift, below the warnings."""
        self.tell(console)
        batches = list(self._new())
        if not batches:
            return
        noted = [(name, batch, column) for name, batch in batches for column in batch["columns"]]
        unknown = {name: batch["psi_unknown"] for name, batch in batches if batch.get("psi_unknown")}
        telling = [one for one in noted if _tells(one[2])]
        if telling:
            console.show(_table(telling[:_MOST]))
        if (rest := len(noted) - len(telling[:_MOST])) > 0:
            more = f"{counted(rest, 'column')} more{'' if len(telling) <= _MOST else ', in batches.jsonl'}"
            known = "" if unknown else ", and none has moved"
            quiet = f"{counted(len(noted), 'column')}: no missing value, no new word{known}"
            console.say(more if telling else quiet, "dim")
        for name, why in unknown.items():
            console.say(f"{name}: PSI is unknown: {why}", "yellow")

    def tell(self, console: Screen) -> None:
        """Prints each warning and each reload of a table once."""
        for name, lines in self._events.items():
            events = [event for event in lines.read() if event.get("kind") in ("warning", "reloaded")]
            for said in dict.fromkeys(str(event.get("said") or event.get("reason")) for event in events):
                console.say(f"{name}: {said}", "yellow")

    def _new(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for name, lines in self._batches.items():
            yield from ((name, batch) for batch in lines.read() if isinstance(batch.get("columns"), list))


class _NewLines:
    """Lines appended to a file from construction on."""

    def __init__(self, path: Path) -> None:
        self._path, self._before, self._size = path, sum(1 for _ in read_lines(path)), _size(path)

    def read(self) -> list[dict[str, Any]]:
        if (size := _size(self._path)) == self._size:
            return []
        found = list(islice(read_lines(self._path), self._before, None))
        self._before, self._size = self._before + len(found), size
        return found


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _tells(column: dict[str, Any]) -> bool:
    return bool(column.get("missing") or column.get("unseen") or column.get("level"))


def _table(noted: Iterable[tuple[str, dict[str, Any], dict[str, Any]]]) -> Grid:
    heads = ("party", "column", "rows", "missing", "new words", "outside", "PSI", "")
    note = "PSI by convention: moved from .1 on, shifted from .25 on"
    table = Grid(*heads, title="rows against training", note=note)
    for name, batch, column in noted:
        numbers = (batch.get("rows"), column.get("missing"), column.get("unseen"), column.get("outside"))
        psi = column.get("psi")
        table.add_row(
            name,
            str(column.get("name")),
            *("-" if number is None else str(number) for number in numbers),
            "-" if psi is None else f"{psi:.2f}",
            str(column.get("level") or ""),
        )
    return table
