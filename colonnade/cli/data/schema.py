"""`colonnade schema`: the JSON Schema of a configuration, and the OpenAPI document of `serve`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from colonnade.common.errors import EnvironmentFault
from colonnade.common.parsing.json_schema import configuration_schema
from colonnade.reports.console.screen import out as console
from colonnade.server.prediction.serving.openapi import document


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
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as failed:
        raise EnvironmentFault(
            f"--out {out}: cannot be written: {failed.strerror}", hint="give a file in a folder that exists"
        ) from None
    console.say(f"{out} is written")
    if not openapi:
        console.point("first line of a configuration", f"# yaml-language-server: $schema={out}")
