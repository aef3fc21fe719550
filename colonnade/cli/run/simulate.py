"""`colonnade simulate`: a whole federation on the virtual clock, in this process."""

from __future__ import annotations

import time
from pathlib import Path

from rich.table import Table

from colonnade.common.errors import InputError
from colonnade.common.observability.telemetry import Event
from colonnade.launcher.configuration import GivenConfig
from colonnade.launcher.virtual import resume_virtually, run_virtually
from colonnade.reports.console.progress import Progress, back_off_line, megabytes
from colonnade.reports.console.screen import INTERRUPTED
from colonnade.reports.console.screen import out as console
from colonnade.reports.console.summary import WARNING, metric_rows, own_models, what_else
from colonnade.reports.guarantee import describe_privacy, details
from colonnade.simulation.folder import summarise
from colonnade.simulation.outcome import Outcome


def simulate(file: Path | None, sets: tuple[str, ...], out: Path | None, resume: Path | None = None) -> None:
    begin = time.perf_counter()
    shown = Progress(console) if console.is_terminal else None
    listeners = (shown or _warn,)
    try:
        if file is not None and resume is None:
            folder, outcome = run_virtually(GivenConfig.of(file, sets=sets), out, listeners)
        elif resume is not None and file is None and out is None:
            folder, outcome = resume_virtually(resume, sets, listeners)
        else:
            raise InputError("expected a configuration, or --resume and the folder of a run", hint="give one of them")
    except KeyboardInterrupt as interrupted:
        for run in interrupted.args:
            console.print(f"go on with it: colonnade simulate --resume {run}", markup=False, soft_wrap=True)
        raise SystemExit(INTERRUPTED) from None
    finally:
        if shown is not None:
            shown.close()
    _show(outcome, folder, time.perf_counter() - begin)


def _warn(event: Event) -> None:
    if event["kind"] == "privacy":
        console.print(event["said"], style="yellow" if event["weak"] else None, markup=False, soft_wrap=True)
    if event["kind"] == "back_off":
        console.print(back_off_line(event), style="yellow", markup=False, soft_wrap=True)
    if event["kind"] == "warning":
        console.print(f"{event['party']}: {event['reason']}", style="yellow", markup=False, soft_wrap=True)


def _show(outcome: Outcome, folder: Path, seconds: float) -> None:
    ctx = outcome.server
    table = Table(show_header=False, title=f"{ctx.federation.protocol.name}, simulated")
    table.add_row("rounds", str(ctx.round))
    for name, words in (*metric_rows(summarise(outcome)), *own_models(ctx.metrics)):
        table.add_row(name, words, style="yellow" if name == WARNING else None)
    table.add_row("parties to server", f"{megabytes(outcome.payload[0])} of tensors")
    table.add_row("server to parties", f"{megabytes(outcome.payload[1])} of tensors")
    said = summarise(outcome)
    table.add_row("privacy", describe_privacy(said))
    for name, words in details(said):
        table.add_row(name, words)
    table.add_row("answers missing, late", f"{sum(ctx.missing.values())}, {sum(outcome.late.values())}")
    for name, words in what_else(said):
        table.add_row(name, words)
    if outcome.captures:
        table.add_row("captured", megabytes(sum(capture.size for capture in outcome.captures.values())))
    table.add_row("time", f"{outcome.seconds:.1f} s of delays, simulated in {seconds:.1f} s")
    console.print(table)
    console.print(f"run folder: {folder}", markup=False, soft_wrap=True)
