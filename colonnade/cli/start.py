"""Entry point of `colonnade`. The health probe skips heavy imports: container engines run it every two seconds."""

from __future__ import annotations

import sys


def main() -> None:
    if sys.argv[1:2] == ["health"]:
        from colonnade.cli.run.health import main as probe  # noqa: PLC0415  # neither typer nor torch

        probe(sys.argv[2:])
    from colonnade.cli.main import main as command_line  # noqa: PLC0415

    command_line()
