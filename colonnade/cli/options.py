"""Options that several commands share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from colonnade.common.errors import InputError
from colonnade.server.prediction import terms

File = Annotated[Path | None, typer.Argument(help="configuration; default: the demo", show_default=False)]
Given = Annotated[Path, typer.Argument(help="configuration")]
Sets = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="override a value; repeatable")]
Out = Annotated[Path | None, typer.Option("--out", help="the run's folder", show_default=False)]
Faults = Annotated[
    list[str] | None, typer.Option("--chaos", metavar="'NAME: KEY=VALUE'", help="inject faults; repeatable")
]
Resume = Annotated[Path | None, typer.Option("--resume", help="resume the run in this folder", show_default=False)]
Within = Annotated[
    Path | None,
    typer.Option("--in", help="the run's folder: start a run, or resume the one in it", show_default=False),
]
Base = Annotated[Path | None, typer.Option(hidden=True)]  # folder of the file from which `up` wrote this one
Absent = Annotated[terms.Absent, typer.Option(help="replacement for the embedding of an absent party")]
Wait = Annotated[
    float | None, typer.Option(help="seconds to wait for parties; default: federation.timeouts.away", min=0)
]

_TABLES = "say NAME=TABLE for each member, as in --tables bank=new/bank.csv"
Tables = Annotated[
    list[str] | None,
    typer.Option(
        "--tables",
        metavar="NAME=TABLE",
        help="a member's table in the place of training's: a file, or a table or query of its database; repeatable",
    ),
]
Insecure = Annotated[bool, typer.Option("--insecure", help="no TLS; on loopback only")]


def read_tables(words: list[str] | None) -> dict[str, str]:
    """Tables by the members whom `--tables` names."""
    found: dict[str, str] = {}
    for word in words or ():
        name, _, table = map(str.strip, word.partition("="))
        if not (name and table):
            raise InputError(f"--tables {word}: names no member and table", hint=_TABLES)
        if name in found:
            raise InputError(f"--tables: two tables of {name}", hint="name one; a folder of Parquet files is one too")
        found[name] = table
    return found


def processors() -> int:
    return os.cpu_count() or 1
