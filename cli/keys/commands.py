"""The arguments of every command of this group; what a command does is imported when it is chosen."""

from __future__ import annotations

import typer

from colonnade.cli.keys import certs
from colonnade.cli.keys.tokens import token

PANEL = "Keys"


def register(app: typer.Typer) -> None:
    app.add_typer(certs.app, name="certs", rich_help_panel=PANEL)
    app.command(rich_help_panel=PANEL)(token)
