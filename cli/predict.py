"""`colonnade predict`: ids come in as CSV, classes and probabilities go out."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from functools import partial
from itertools import islice
from pathlib import Path

import torch
from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from cli.asked import Asked, Predictions, batches, refuse_same
from cli.opened import Terms, opened
from cli.screen import out as console
from common.errors import DataError
from common.prediction import ROWS
from common.telemetry import Event
from server.model import Model

_PLAIN_PERIOD = 5.0  # seconds between two lines where the output is no terminal
_SAID = ("refused", "failed", "leave", "warning", "rollback")


def predict(folder: Path, ids: Path, out: Path, key: str, file: Path | None, terms: Terms) -> None:
    """Asks for every id of a file, and writes what the joint model makes of it."""
    refuse_same(ids, out)
    begin = time.perf_counter()
    with opened(folder, file, terms) as run:
        asked = Asked(ids, key, run.key)
        count = asked.count()  # before anybody is started: the whole file is looked through
        if not count:
            raise DataError(f"{ids} has a header but no ids", hint="an id is one line below the header")
        console.print(f"asking {len(run.parties)} parties for {count} rows", style="dim")
        run.listen(partial(say, run.without))
        run.ask(partial(answer_file, asked, count, out), tuple(asked.ids()) if run.aligns else None)
    console.print(f"{out}: {count} rows, {time.perf_counter() - begin:.1f} s", markup=False, soft_wrap=True)


async def answer_file(asked: Asked, count: int, out: Path, model: Model) -> None:
    """Writes a line for every id, block by block, and shows how far it is. Raises ColonnadeError."""
    token = f"{asked.fingerprint()} {model.run} {model.names}"
    columns = ("class", *(f"p_{name}" for name in model.names)) if model.classes else model.names
    written = Predictions(out, ("id", *columns), token)
    unknown = 0
    with written.open() as there, _progress() as progress:
        line = progress.add_task("predicting", total=count, completed=there)
        if there:
            progress.console.print(f"{there} rows are there already, from an earlier start", style="dim")
        ids, done, plain = islice(asked.ids(), there, None), there, time.monotonic() + _PLAIN_PERIOD
        for block in batches(ids, ROWS):
            rows = await _predict(model, block)
            unknown += sum(not row[1] for row in rows)
            await asyncio.to_thread(written.add, rows)
            done += len(block)
            progress.advance(line, len(block))
            if not console.is_terminal and time.monotonic() >= plain:
                plain = time.monotonic() + _PLAIN_PERIOD
                console.print(f"{done} of {count} rows", style="dim")
        written.finish()
    if unknown:
        console.print(f"{unknown} ids are unknown to some member: their lines are empty", style="yellow")


async def _predict(model: Model, ids: list[str]) -> list[list[str]]:
    """The lines of some ids; those that are unknown have empty cells."""
    places = await model.places(ids)
    rows = torch.tensor(sorted(set(places.values())), dtype=torch.int64)
    lines: dict[int, list[str]] = {}
    if len(rows):
        values = await model.values(rows)
        for row, best, each in zip(rows.tolist(), values.argmax(1).tolist(), values.tolist(), strict=True):
            label = [model.names[best]] if model.classes else []
            lines[row] = [*label, *(f"{value:.6g}" for value in each)]
    nothing = [""] * (model.classes + len(model.names))
    return [[id, *lines.get(places.get(id, -1), nothing)] for id in ids]


def _progress() -> Progress:
    columns = (TextColumn("{task.description}"), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def say(without: Mapping[str, float], event: Event) -> None:
    """Prints what whoever asks a model must not overlook; `without` is what a party's absence costs."""
    if event["kind"] in _SAID:
        console.print(f"{event['party']}: {event['reason']}", style="yellow", markup=False)
    if event["kind"] == "aligned":
        known = f"{event['common']} of {event['rows']} ids are known to all members"
        console.print(f"{known}: {event['seconds']:.1f} s of alignment", style="dim")
    if event["kind"] == "begin":
        for party in event["absent"]:
            cost = f"; accuracy without it, on validation rows: {without[party]:.2%}" if party in without else ""
            console.print(f"{party} is absent, its mean stands in{cost}", style="yellow", markup=False)
