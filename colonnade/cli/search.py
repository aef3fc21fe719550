"""Arguments of this group's commands; the chosen command imports its implementation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from colonnade.cli.options import Given, Sets, processors
from colonnade.common.errors import InputError
from colonnade.laboratory import load
from colonnade.reports.console.screen import INTERRUPTED, err


@contextmanager
def resumable() -> Iterator[None]:
    """On interruption, says that running the same command again continues."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit) as ended:
        if isinstance(ended, SystemExit) and ended.code != INTERRUPTED:
            raise
        err.say("interrupted; the same command goes on", "yellow")
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


def compare(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[PROTOCOL...]", help="default: all", show_default=False)
    ] = None,
    on: Annotated[
        Path | None,
        typer.Option("--on", metavar="FILE", help="a configuration with data and labels: compare on these"),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(help="seeds of every run; default: 3, with --on 1", min=1, show_default=False)
    ] = None,
    only_list: Annotated[
        bool, typer.Option("--list", help="run nothing; print the stored results and write the pages")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", help="folder of results and pages; default: results, with --on runs/ID-compare", show_default=False
        ),
    ] = None,
    processes: Annotated[
        int, typer.Option("--processes", "--jobs", help="concurrent runs; 0: one a processor", min=0)
    ] = 0,
    trials: Annotated[
        int | None,
        typer.Option(help="with --on: trials of each search; 0: defaults alone; default: 10", show_default=False),
    ] = None,
    rows: Annotated[
        int | None, typer.Option(help="with --on: the most training and validation rows, and the most test rows")
    ] = None,
    metric: Annotated[
        str, typer.Option(help="with --on: such as auc; default: one that fits the labels", show_default=False)
    ] = "",
    keep_models: Annotated[
        bool, typer.Option("--keep-models", help="with --on: take models and heads of the file")
    ] = False,
    epsilon: Annotated[
        float | None,
        typer.Option(help="with --on: privacy of vfl_afe, which needs one; default: 8", show_default=False),
    ] = None,
    sets: Sets = None,
) -> None:
    searched: dict[str, Any] = {
        "trials": trials,
        "rows": rows,
        "metric": metric,
        "keep_models": keep_models,
        "epsilon": epsilon,
    }
    given = {name: value for name, value in {**searched, "sets": tuple(sets or ())}.items() if value}
    chosen, jobs = tuple(names or ()), processes or processors()
    if on is None:
        if given:
            option = "set" if "sets" in given else next(iter(given)).replace("_", "-")
            raise InputError(
                f"--{option} without --on: the built-in comparison has a plan of its own",
                hint="add --on FILE to compare on that configuration's data",
            )
        load("comparison", "`compare` without --on")(chosen, seeds or 3, out or Path("results"), jobs, only_list)
        return
    from colonnade.search.comparison.compared import compare as run  # noqa: PLC0415

    if only_list:
        raise InputError("--list with --on: a comparison on a file completes its runs", hint="read comparison.md")
    searched = {name: value for name, value in searched.items() if value is not None}
    with resumable():
        run(on, protocols=chosen or None, seeds=seeds or 1, out=out, jobs=jobs, sets=tuple(sets or ()), **searched)
