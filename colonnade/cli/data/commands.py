"""Commands about data and configurations. Slow imports, such as a tensor library, come last."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from colonnade.cli.options import Given, Sets
from colonnade.common.alignment.place import NAME
from colonnade.common.errors import InputError, disk_faults
from colonnade.common.parsing.file import load
from colonnade.common.parsing.json_schema import configuration_schema
from colonnade.launcher.demo import demo_file
from colonnade.reports.console.screen import out as console
from colonnade.server.prediction.serving.openapi import document


def check(
    file: Given,
    sets: Sets = None,
    models: Annotated[bool, typer.Option("--run-models", help="run the code of the model files that it names")] = False,
) -> None:
    load(file, tuple(sets or ()))  # what is wrong with the file itself is said before that takes seconds
    from colonnade.cli.checks.check import check as run  # noqa: PLC0415  # torch

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


def forget(
    folder: Annotated[Path, typer.Argument(help="the folder of runs, or of kept alignments")] = Path("runs"),
) -> None:
    from colonnade.common.alignment import store  # noqa: PLC0415  # loads torch

    nested = sorted(place for place in folder.rglob(NAME) if not place.is_symlink())  # also inside runs, and of old ids
    places = [place for place in (*nested, folder) if store.members_in(place)]
    if not places:
        raise InputError(
            f"{folder} holds no kept alignments",
            hint=f"name the folder of your runs, where they are in {NAME}, or the folder of `alignments: {{folder}}`",
        )
    for place in places:
        members = ", ".join(member.name for member in store.members_in(place))
        with disk_faults(f"{place} cannot be removed", "as its owner"):
            removed = store.forget(place)
        console.say(f"{place}: forgot {removed} alignments and exponents of {members}")


def schema(
    out: Annotated[
        Path | None, typer.Option("--out", help="a file to write; default: print", show_default=False)
    ] = None,
    openapi: Annotated[bool, typer.Option("--openapi", help="the HTTP interface of `serve` instead (OpenAPI)")] = False,
) -> None:
    text = json.dumps(document() if openapi else configuration_schema(), indent=2) + "\n"
    if out is None:
        console.file.write(text)
        return
    with disk_faults(f"--out {out}: cannot be written", "give a file in a folder that exists"):
        out.write_text(text, encoding="utf-8")
    console.say(f"{out} is written")
    if not openapi:
        console.point("first line of a configuration", f"# yaml-language-server: $schema={out}")
