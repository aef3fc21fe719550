"""The arguments of every command of this group; what a command does is imported when it is chosen."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from colonnade.cli.data import datasets, tables
from colonnade.cli.options import Given, Sets

PANEL = "Data and configurations"


def check(
    file: Given,
    sets: Sets = None,
    models: Annotated[bool, typer.Option("--run-models", help="run the code of the model files that it names")] = False,
) -> None:
    """Check a configuration, and the data and keys that it names; start nothing."""
    from colonnade.cli.data.check import check as run  # noqa: PLC0415

    run(file, tuple(sets or ()), run_models=models)


def deal(
    file: Annotated[
        Path | None,
        typer.Argument(
            help="configuration; default: the demo",
            envvar="COLONNADE_EXPERIMENT",
            show_envvar=False,
            show_default=False,
        ),
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="output folder", show_default=False)] = Path("federation"),
    connect: Annotated[
        str, typer.Option("--connect", metavar="HOST:PORT", help="address of the server, for the parties")
    ] = "127.0.0.1:7400",
    sets: Sets = None,
    days: Annotated[int, typer.Option(help="validity of the certificates")] = 30,
    owner: Annotated[str, typer.Option(metavar="UID[:GID]", help="owner of the dealt files")] = "",
) -> None:
    """Write a folder for every member: its configuration, its keys, and its columns or labels alone."""
    from colonnade.cli.data.deal import DealTerms, read_owner  # noqa: PLC0415
    from colonnade.cli.data.deal import deal as run  # noqa: PLC0415
    from colonnade.launcher.demo import demo_file  # noqa: PLC0415

    run(file or demo_file(), tuple(sets or ()), out, DealTerms(connect, days, read_owner(owner)))


def schema(
    out: Annotated[
        Path | None, typer.Option("--out", help="a file to write; default: print", show_default=False)
    ] = None,
    openapi: Annotated[bool, typer.Option("--openapi", help="the HTTP interface of `serve` instead (OpenAPI)")] = False,
) -> None:
    """Print the JSON Schema of a configuration, for editors."""
    from colonnade.cli.data.schema import schema as run  # noqa: PLC0415

    run(out, openapi=openapi)


def forget(
    folder: Annotated[Path, typer.Argument(help="the folder of runs, or of kept alignments")] = Path("runs"),
) -> None:
    """Remove the alignments that members keep for their next runs, and their secret exponents."""
    from colonnade.cli.data.forget import forget as run  # noqa: PLC0415

    run(folder)


def register(app: typer.Typer) -> None:
    for command in (check, schema, deal, forget):
        app.command(rich_help_panel=PANEL)(command)
    app.add_typer(datasets.app, name="datasets", rich_help_panel=PANEL)
    app.add_typer(tables.app, name="tables", rich_help_panel=PANEL)
