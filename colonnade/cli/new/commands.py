"""`colonnade new`: writes a working start."""

from __future__ import annotations

import typer

from colonnade.cli.new.federation import federation
from colonnade.cli.new.protocol import protocol

app = typer.Typer(no_args_is_help=True, add_completion=False)
app.command()(federation)
app.command()(protocol)
