"""`colonnade simulate`: a whole federation on the virtual clock, in this process."""

from __future__ import annotations

import time
from contextlib import closing
from functools import partial
from pathlib import Path

import torch
from rich.table import Table

from colonnade.cli.data.check import check_members
from colonnade.cli.launcher.folder_lock import locked_folder
from colonnade.common.observability.telemetry import Telemetry
from colonnade.common.parsing.file import load
from colonnade.common.runtime.run_folder import RunFolder
from colonnade.reports.console.progress import megabytes
from colonnade.reports.console.screen import out as console
from colonnade.reports.console.summary import metric_rows, own_models, what_else
from colonnade.reports.guarantee import describe_privacy, details
from colonnade.server.reporting.summary import findings, write_whole
from colonnade.simulation.federation import Outcome, Simulation
from colonnade.simulation.folder import home_of, leave_for_attacks, summarise
from colonnade.simulation.trackers import tracked


def simulate(file: Path, sets: tuple[str, ...], out: Path | None) -> None:
    """Runs a federation to its end and prints its results and its duration on the virtual clock."""
    config = load(file, sets)
    check_members(config, file)
    torch.set_num_threads(max(1, config.server.threads if config.server else 1))
    with locked_folder(out, f"{config.federation.id}-virtual") as folder:
        begin = time.perf_counter()
        telemetry = Telemetry(RunFolder(folder).events)
        base = file.parent.resolve()
        with closing(telemetry), tracked(telemetry, config, base, folder):
            outcome = Simulation(config, base, telemetry=telemetry, home=partial(home_of, folder)).run()
            if outcome.captures:
                leave_for_attacks(folder, config, base, outcome)
            write_whole(RunFolder(folder).summary, summarise(outcome))
        _show(outcome, folder, time.perf_counter() - begin)


def _show(outcome: Outcome, folder: Path, seconds: float) -> None:
    ctx = outcome.server
    table = Table(show_header=False, title=f"{ctx.federation.protocol.name}, simulated")
    table.add_row("rounds", str(ctx.round))
    for name, words in (*metric_rows(summarise(outcome)), *own_models(ctx.metrics)):
        table.add_row(name, words)
    table.add_row("parties to server", f"{megabytes(outcome.payload[0])} of tensors")
    table.add_row("server to parties", f"{megabytes(outcome.payload[1])} of tensors")
    said = summarise(outcome)
    table.add_row("privacy", describe_privacy(said))
    for name, words in details(said):
        table.add_row(name, words)
    table.add_row("answers missing, late", f"{sum(ctx.missing.values())}, {outcome.mailbox.late.total()}")
    for name, words in what_else(findings(ctx)):
        table.add_row(name, words)
    if outcome.captures:
        table.add_row("captured", megabytes(sum(capture.size for capture in outcome.captures.values())))
    table.add_row("time", f"{outcome.seconds:.1f} s of delays, simulated in {seconds:.1f} s")
    console.print(table)
    console.print(f"run folder: {folder}", markup=False, soft_wrap=True)
