"""`colonnade predict`: ids come in as CSV, classes and probabilities go out."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path

from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from colonnade.common.errors import DataError
from colonnade.common.observability.telemetry import Event
from colonnade.common.prediction.messages import ROWS
from colonnade.common.runtime.rate_limit import Digest
from colonnade.launcher.prediction_files import PredictionIds, Predictions, batches, refuse_same
from colonnade.launcher.predictions import opened
from colonnade.launcher.processes import Processes
from colonnade.reports.console.outputs import refuse_unwritable_file
from colonnade.reports.console.screen import out as console
from colonnade.server.prediction.model import Model
from colonnade.server.prediction.terms import PredictionTerms
from colonnade.server.training.absence import Absent

_PLAIN_PERIOD = 5.0  # seconds between two lines where the output is no terminal
_SAID = ("refused", "failed", "leave", "warning", "rollback")


def predict(
    folder: Path,
    ids: Path,
    out: Path,
    key: str,
    file: Path | None,
    terms: PredictionTerms,
    *,
    processes: Processes | None = None,
) -> None:
    """Predicts every id of a file with the joint model, and writes the predictions."""
    refuse_same(ids, out)
    refuse_unwritable_file(out)
    begin = time.perf_counter()
    with opened(folder, file, terms, processes=processes) as run:
        run.check()
        asked = PredictionIds(ids, key, run.key)
        count = asked.count()  # reads the whole file before any party is started
        if not count:
            raise DataError(f"{ids} has a header but no ids", hint="an id is one line below the header")
        console.print(f"asking {len(run.parties)} parties for {count} rows", style="dim")
        run.listen(Digest(partial(say, run.without, terms.absent)))
        run.ask(partial(answer_file, asked, count, out, terms.absent), tuple(asked.ids()) if run.aligns else None)
    console.print(f"{out}: {count} rows, {time.perf_counter() - begin:.1f} s", markup=False, soft_wrap=True)


async def answer_file(asked: PredictionIds, count: int, out: Path, absent: Absent, model: Model) -> None:
    """Writes a line for every id, block by block, and shows the progress. Raises ColonnadeError."""
    token = f"{asked.fingerprint()} {asked.key} {absent} {await model.token()}"
    columns = ("class", *(f"p_{name}" for name in model.names)) if model.classes else model.names
    written = Predictions(out, ("id", *columns), token)
    with written.open() as there, _progress() as progress, _settled():
        line = progress.add_task("predicting", total=count, completed=there)
        if there:
            progress.console.print(f"{there} rows are there already, from an earlier start", style="dim")
        ids, done, plain = islice(asked.ids(), there, None), there, time.monotonic() + _PLAIN_PERIOD
        for block in batches(ids, ROWS):
            rows = await _predict(model, block)
            await asyncio.to_thread(written.add, rows)
            done += len(block)
            progress.advance(line, len(block))
            if not console.is_terminal and time.monotonic() >= plain:
                plain = time.monotonic() + _PLAIN_PERIOD
                console.print(f"{done} of {count} rows", style="dim")
        written.finish()
    if written.unknown:
        console.print(f"{written.unknown} ids are unknown to some member: their lines are empty", style="yellow")


async def _predict(model: Model, ids: list[str]) -> list[list[str]]:
    """The lines of some ids; those that are unknown have empty cells."""
    said, names = await model.say(ids), model.names
    unknown = [""] * (model.classes + len(names))
    numbers = " ".join([f"%.{6 if model.classes else 9}g"] * len(names))  # a row at once, which takes half the time
    lines = []
    for id in ids:
        values = said.get(id)
        if values is None:
            lines.append([id, *unknown])
            continue
        label = [names[values.index(max(values))]] if model.classes else []
        lines.append([id, *label, *(numbers % values).split()])
    return lines


@contextmanager
def _settled() -> Iterator[None]:
    """Excludes existing objects from garbage collection, which takes a sixth of the time when run for every block."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _progress() -> Progress:
    columns = (TextColumn("{task.description}"), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def say(without: Mapping[str, str], absent: Absent, event: Event) -> None:
    """Prints events that affect the predictions; `without` holds the quality without each party."""
    if event["kind"] in _SAID:
        console.print(f"{event['party']}: {event['reason']}", style="yellow", markup=False)
    if event["kind"] == "aligned":
        known = f"{event['common']} of {event['rows']} ids are known to all members"
        console.print(f"{known}: {event['seconds']:.1f} s of alignment", style="dim")
    if event["kind"] == "begin":
        for party in event["absent"]:
            cost = f"; with its mean, on validation rows: {without[party]}" if party in without else ""
            what = "its mean stands in" if absent == "mean" else "what it last said stands in, or its mean"
            console.print(f"{party} is absent, {what}{cost}", style="yellow", markup=False)
