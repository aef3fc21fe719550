"""Arguments of the commands that need a tensor library, which takes seconds to import."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from colonnade.cli.options import Given, Sets
from colonnade.common.parsing.file import load
from colonnade.launcher.demo import demo_file


def check(
    file: Given,
    sets: Sets = None,
    models: Annotated[bool, typer.Option("--run-models", help="run the code of the model files that it names")] = False,
) -> None:
    load(file, tuple(sets or ()))  # what is wrong with the file itself is said before that takes seconds
    from colonnade.cli.data.check import check as run  # noqa: PLC0415  # torch

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
    from colonnade.cli.data import deal as dealing  # noqa: PLC0415  # torch

    terms = dealing.DealTerms(connect, days, dealing.read_owner(owner))
    dealing.deal(file or demo_file(), tuple(sets or ()), out, terms)
