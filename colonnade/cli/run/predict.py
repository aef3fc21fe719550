"""`colonnade predict`: reads ids from CSV, writes classes and probabilities."""

from __future__ import annotations

import asyncio
import gc
import secrets
import time
from collections import deque
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing, contextmanager
from functools import partial
from itertools import islice
from pathlib import Path

from colonnade.common.contracts.prediction import ROWS
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.errors import DataError
from colonnade.common.observability.telemetry import Event
from colonnade.common.run.activity import activity
from colonnade.common.run.rate_limit import Digest
from colonnade.launcher.named_tables import Tables
from colonnade.launcher.prediction_files import (
    LineFormat,
    PredictionIds,
    Predictions,
    batches,
    refuse_same,
)
from colonnade.launcher.predictions import opened
from colonnade.launcher.processes import Processes
from colonnade.reports.console.batches import NewBatches
from colonnade.reports.console.outputs import refuse_unwritable_file
from colonnade.reports.console.screen import out as console
from colonnade.reports.decision import decision_words
from colonnade.reports.words import counted
from colonnade.server.prediction.model import Model, Predicted
from colonnade.server.prediction.terms import Absent, PredictionTerms

_SAID = ("refused", "failed", "leave", "warning", "rollback")
_LOSSES = ("failed", "leave")  # the following error reports it, if nothing replaces a party


def predict(
    folder: Path,
    ids: Path,
    out: Path,
    key: str,
    file: Path | None,
    terms: PredictionTerms,
    *,
    tables: Tables | None = None,
    processes: Processes | None = None,
) -> None:
    refuse_same(ids, out)
    refuse_unwritable_file(out)
    begin = time.perf_counter()
    with opened(folder, file, terms, tables=tables, processes=processes) as run:
        run.check()
        asked = PredictionIds(ids, key, run.key)
        with activity(f"reading {ids.name}"):
            count = asked.count()  # reads the whole file before any party is started
        if not count:
            raise DataError(f"{ids} has a header but no ids", hint="an id is one line below the header")
        asked_of = counted(len(run.parties), "party")
        batches = NewBatches(run.folder, (SERVER, *run.parties))
        for line in run.other_tables:
            console.say(line, "dim")
        console.say(f"asking {asked_of} for {counted(count, 'row')}", "dim")
        run.listen(Digest(partial(say, run.without, terms.absent)))
        with activity(f"waiting for {asked_of}"):
            # Of rows that are matched by keys, tables may have changed since an earlier start; one block is asked anew.
            seen = "" if not run.aligns else run.fingerprints() if count > ROWS else secrets.token_hex(8)
            work = partial(answer_file, asked, count, out, terms.absent, seen)
            run.ask(work, tuple(asked.ids()) if run.aligns else None)
    batches.show(console)  # members write their notes before they end
    console.say(f"{out}: {counted(count, 'row')}, {time.perf_counter() - begin:.1f} s")


async def answer_file(asked: PredictionIds, count: int, out: Path, absent: Absent, tables: str, model: Model) -> None:
    """Writes a line for every id, block by block, and shows the progress.

    Args:
        tables: identifies the members' tables; lines of an earlier start with others are not kept.
    """
    token = f"{asked.fingerprint()} {asked.key} {absent} {tables} {await model.token()}"
    columns = ("class", *(f"p_{name}" for name in model.names)) if model.classes else model.names
    written, form = Predictions(out, ("id", *columns), token), LineFormat(model.names, model.classes)
    with written.open() as there, activity("predicting", count, "rows") as doing, _settled():
        doing.done = doing.kept = there
        if there:
            console.say(f"{counted(there, 'row')} from an earlier start kept", "dim")
        async with aclosing(_predicted(model, islice(asked.ids(), there, None))) as blocks:
            async for ids, said in blocks:
                await asyncio.to_thread(_write, written, form, ids, said)
                doing.step(len(ids))
        written.finish()
    if written.unknown:
        unknown = counted(written.unknown, "id")
        console.say(f"{unknown} not known to every member: empty lines", "yellow")


async def _predicted(model: Model, ids: Iterator[str]) -> AsyncGenerator[tuple[list[str], Predicted], None]:
    """Yields the predictions of one block of ids after the other.

    The parties compute the next block while the caller writes this one, unless a privacy budget pays for it. Then the
    next block is requested when the caller returns, so that an interruption wastes at most the current block.
    """
    blocks, ahead = batches(ids, ROWS), 0 if model.paid else 1
    asked: deque[tuple[list[str], asyncio.Task[Predicted]]] = deque()
    loop = asyncio.get_running_loop()
    try:
        while True:
            for block in islice(blocks, ahead + 1 - len(asked)):
                asked.append((block, loop.create_task(model.predict(block))))
            if not asked:
                return
            block, answer = asked.popleft()
            said = await answer
            yield block, said
    finally:
        for _, answer in asked:
            answer.cancel()


def _write(written: Predictions, form: LineFormat, ids: list[str], said: Predicted) -> None:
    written.add(form.lines(ids, said), int((~said.known).sum()))


@contextmanager
def _settled() -> Iterator[None]:
    """Excludes existing objects from garbage collection, which would take a sixth of the time at every block."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def say(without: Mapping[str, str], absent: Absent, event: Event) -> None:
    """Prints events that affect the predictions; `without` holds the quality without each party."""
    if event["kind"] in _SAID and not (absent == "refuse" and event["kind"] in _LOSSES):
        console.say(f"{event['party']}: {event['reason']}", "yellow")
    if event["kind"] == "aligned":
        known = f"{event['common']} of {event['rows']} ids are known to all members"
        console.say(f"{known}: {event['seconds']:.1f} s of alignment", "dim")
    if event["kind"] == "decision":
        console.say(f"decided: {decision_words(event)}", "dim")
        if event["rows"] and event["round"] != event["model"]:
            said = f"chosen for the model of round {event['round']}, and this one is of round {event['model']}"
            console.say(f"threshold and probabilities were {said}", "yellow")
    if event["kind"] == "begin":
        for party in event["absent"]:
            cost = f"; with its mean, on validation rows: {without[party]}" if party in without else ""
            what = "its mean stands in" if absent == "mean" else "what it last said stands in, or its mean"
            console.say(f"{party} is absent, {what}{cost}", "yellow")
