"""`colonnade token`: makes a token for a caller of `serve`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from colonnade.reports.console.screen import out as console
from colonnade.server.prediction.serving.tokens import add_caller


def token(
    name: Annotated[str, typer.Argument(help="the caller's name", show_default=False)],
    tokens: Annotated[
        Path, typer.Option("--tokens", metavar="FILE", help="as `serve` reads it: RUN/serve.tokens", show_default=False)
    ],
) -> None:
    console.say(add_caller(tokens, name))
