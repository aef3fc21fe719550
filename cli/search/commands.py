"""The arguments of every command of this group; what a command does is imported when it is chosen."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from colonnade.cli.options import Given, Sets
from colonnade.reports.console.screen import INTERRUPTED, err

PANEL = "Search"


@contextmanager
def resumable() -> Iterator[None]:
    """Says that the same command goes on, when it is interrupted."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit) as ended:
        if isinstance(ended, SystemExit) and ended.code != INTERRUPTED:
            raise
        err.print("interrupted; the same command goes on", style="yellow")
        raise SystemExit(INTERRUPTED) from None


Seed = Annotated[int, typer.Option(help="seed of the draws", min=0)]
Jobs = Annotated[int, typer.Option(help="simulations at a time, each a process", min=1)]


def tune(
    file: Given,
    trials: Annotated[int, typer.Option(help="in all, with those of earlier calls", min=1)] = 50,
    metric: Annotated[
        str,
        typer.Option(help="of validation rows, such as val_auc; default: val_accuracy or val_rmse", show_default=False),
    ] = "",
    sets: Sets = None,
    jobs: Jobs = 1,
    storage: Annotated[
        str | None,
        typer.Option(metavar="URL", help="trials shared by several machines: a database, or journal:PATH"),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="folder of results; default: runs/ID-tune", show_default=False)
    ] = None,
    timeout: Annotated[float | None, typer.Option(help="seconds after which no trial begins", min=0)] = None,
    direction: Annotated[
        str, typer.Option(help="maximize or minimize, for a metric of a plug-in", show_default=False)
    ] = "",
    pruner: Annotated[str, typer.Option(help="median, hyperband or none: ends trials that fall behind")] = "median",
    seed: Seed = 0,
) -> None:
    """Search for the best values of a configuration by simulated runs; the same command again goes on."""
    from colonnade.search.tuning import tune as run  # noqa: PLC0415

    with resumable():
        run(
            file,
            trials=trials,
            metric=metric,
            direction=direction,
            sets=tuple(sets or ()),
            out=out,
            jobs=jobs,
            storage=storage,
            timeout=timeout,
            pruner=pruner,
            seed=seed,
        )


def cv(
    file: Given,
    folds: Annotated[int, typer.Option(help="parts of the rows, each held out once", min=2)] = 5,
    repeats: Annotated[int, typer.Option(help="times that all rows are drawn into folds", min=1)] = 1,
    stratified: Annotated[
        bool | None,
        typer.Option(
            "--stratified/--no-stratified",
            help="same share of every class in every fold; default for classes",
            show_default=False,
        ),
    ] = None,
    metric: Annotated[
        str, typer.Option(help="such as auc, of the rows held out; default: accuracy or rmse", show_default=False)
    ] = "",
    sets: Sets = None,
    jobs: Jobs = 1,
    out: Annotated[
        Path | None, typer.Option("--out", help="folder of results; default: runs/ID-cv", show_default=False)
    ] = None,
    seed: Seed = 0,
) -> None:
    """Cross-validate a configuration by simulated runs; the same command again goes on."""
    from colonnade.search.validation import cv as run  # noqa: PLC0415

    with resumable():
        run(
            file,
            folds=folds,
            repeats=repeats,
            stratified=stratified,
            metric=metric,
            sets=tuple(sets or ()),
            out=out,
            jobs=jobs,
            seed=seed,
        )


def register(app: typer.Typer) -> None:
    """Adds the commands, in the order of `colonnade --help`."""
    for command in (tune, cv):
        app.command(rich_help_panel=PANEL)(command)
