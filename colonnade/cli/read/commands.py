"""Arguments of the commands that read a run with a tensor library, which takes seconds to import."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from colonnade.common.run.activity import activity
from colonnade.reports.console.screen import out as console


def explain(
    run: Annotated[Path, typer.Argument(help="the folder of a finished run", show_default=False)],
    out: Annotated[
        Path | None, typer.Option("--out", help="output folder; default: the run's", show_default=False)
    ] = None,
    sigma: Annotated[float, typer.Option(help="noise multiplier, in units of the scaled features")] = 1.0,
    keep: Annotated[
        list[str] | None,
        typer.Option("--keep", metavar="top:50%", help="write a configuration with fewer parties; repeatable"),
    ] = None,
) -> None:
    from colonnade.reports.explanation.write import explain as run_it  # noqa: PLC0415  # torch

    run_it(run, out, sigma, tuple(keep or ()))


def card(
    run: Annotated[Path, typer.Argument(help="the folder of a run that has ended", show_default=False)],
    out: Annotated[
        Path | None, typer.Option("--out", help="the card's Markdown file; default: RUN/card.md", show_default=False)
    ] = None,
    groups: Annotated[
        str,
        typer.Option(metavar="FILE:COLUMN", help="CSV with ids and groups of people to compare"),
    ] = "",
) -> None:
    from colonnade.reports.card.card import write_card  # noqa: PLC0415  # torch

    with activity("writing the card"):
        made = write_card(run, out, groups)
    console.point("card", f"{made.markdown}, {made.page}")
    if made.empty:
        console.say(f"{len(made.empty)} places are empty, of {made.answers}: {', '.join(made.empty)}", "dim")


def scorecard(
    run: Annotated[Path, typer.Argument(help="the server's folder of a run that has ended", show_default=False)],
    cut_off: Annotated[
        float | None,
        typer.Option(
            help="refuse probabilities from here on, or a scorecard's points below; default: the run's decision",
            show_default=False,
        ),
    ] = None,
    groups: Annotated[
        str, typer.Option(metavar="FILE:COLUMN", help="CSV with ids and groups of people to compare")
    ] = "",
    scores: Annotated[
        Path | None, typer.Option(help="a file of `predict` in the place of the run's test rows", show_default=False)
    ] = None,
    labels: Annotated[str, typer.Option(metavar="FILE:COLUMN", help="CSV with ids and classes of --scores")] = "",
    out: Annotated[
        Path | None, typer.Option("--out", help="the page; default: RUN/scorecard.html", show_default=False)
    ] = None,
) -> None:
    from colonnade.cli.read.scorecard import scorecard as run_it  # noqa: PLC0415  # torch

    with activity("reading the scores"):
        run_it(run, cut_off, groups, scores, labels, out)


def bins(
    folder: Annotated[Path, typer.Argument(help="a party's own folder, RUN/parties/NAME", show_default=False)],
    file: Annotated[
        Path | None, typer.Option(help="the party's configuration, if the run was elsewhere", show_default=False)
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="the page; default: bins.html in the folder", show_default=False)
    ] = None,
) -> None:
    from colonnade.cli.read.scorecard import bins as run_it  # noqa: PLC0415  # torch

    with activity("reading the bins"):
        run_it(folder, file, out)


def export(
    run: Annotated[Path, typer.Argument(help="the folder of a run, or with --file of one member", show_default=False)],
    party: Annotated[str, typer.Option(help="name of the party, or server", show_default=False)],
    file: Annotated[
        Path | None, typer.Option(help="the member's configuration, if the run was elsewhere", show_default=False)
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="output folder; default: export in the member's", show_default=False)
    ] = None,
    onnx: Annotated[bool, typer.Option("--onnx", help="a program for ONNX run times too")] = False,
) -> None:
    from colonnade.cli.read.export import export as run_it  # noqa: PLC0415  # torch

    with activity(f"exporting the part of {party}"):
        run_it(run, party, file, out, onnx=onnx)
