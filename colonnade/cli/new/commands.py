"""The arguments of every command of this group; what a command does is imported when it is chosen."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

PANEL = "Data and configurations"

app = typer.Typer(no_args_is_help=True, help="Write a working start: a federation with example tables, or a protocol.")


@app.command()
def federation(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="new folder", show_default=False)],
    parties: Annotated[str, typer.Option(metavar="NAME,NAME", help="names of the parties")] = "bank,clinic",
    align: Annotated[Literal["psi", "sorted", "none"], typer.Option(help="alignment of the members' rows")] = "psi",
) -> None:
    """A configuration with example tables, one for each member, and ids to predict."""
    from colonnade.cli.new.federation import new_federation  # noqa: PLC0415

    new_federation(folder, tuple(parties.split(",")), align)


@app.command()
def protocol(
    name: Annotated[str, typer.Argument(help="a Python identifier in lower case", show_default=False)],
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="folder; default: colonnade-NAME", show_default=False),
    ] = None,
) -> None:
    """A package with a protocol that learns, and its tests."""
    from colonnade.cli.new.protocol import new_protocol  # noqa: PLC0415

    new_protocol(name, out)


def register(main: typer.Typer) -> None:
    main.add_typer(app, name="new", rich_help_panel=PANEL)
