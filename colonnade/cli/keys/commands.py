"""The arguments of every command of this group; what a command does is imported when it is chosen."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from colonnade.cli.keys import certs
from colonnade.reports.console.screen import out as console

PANEL = "Keys"


def register(app: typer.Typer) -> None:
    app.add_typer(certs.app, name="certs", rich_help_panel=PANEL)
    app.command(rich_help_panel=PANEL)(token)


def token(
    name: Annotated[str, typer.Argument(help="the caller's name", show_default=False)],
    tokens: Annotated[
        Path, typer.Option("--tokens", metavar="FILE", help="as `serve` reads it: RUN/serve.tokens", show_default=False)
    ],
) -> None:
    """Make a token for a caller of `serve`, add it to the file of tokens, and print it."""
    from colonnade.server.prediction.serving.tokens import add_caller  # noqa: PLC0415

    console.say(add_caller(tokens, name))
