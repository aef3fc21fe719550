"""`colonnade new`: a federation with example tables, or a package with a protocol that learns, and its tests."""

from __future__ import annotations

import keyword
from pathlib import Path
from typing import Annotated

import typer

from colonnade.cli.new.federation import federation
from colonnade.cli.new.folder import fill, write_folder
from colonnade.common.contracts.registry import NAMES, OUTSIDE
from colonnade.common.errors import InputError
from colonnade.reports.console.screen import out as console

_LONGEST = 40  # characters of a name

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)
app.command()(federation)


@app.command()
def protocol(
    name: Annotated[str, typer.Argument(help="a Python identifier in lower case", show_default=False)],
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="folder; default: colonnade-NAME", show_default=False),
    ] = None,
) -> None:
    """A package with a protocol that learns, and its tests."""
    _check(name)
    package = f"colonnade-{name.replace('_', '-')}"
    folder, module = out or Path(package), f"colonnade_{name}"
    words = {"name": name, "package": package, "module": module, "title": name.replace("_", " ").capitalize()}
    files = {
        f"{module}.py": "protocol.txt",
        f"test_{name}.py": "test.txt",
        "pyproject.toml": "pyproject.txt",
        "federation.yaml": "digits.txt",
        "README.md": "readme_protocol.txt",
    }
    write_folder(folder, {path: fill(template, **words) for path, template in files.items()})
    console.point("next", f"cd {folder} && pip install -e '.[test]' && pytest")


def _check(name: str) -> None:
    plain = name.isascii() and name.isidentifier() and name == name.lower() and not keyword.iskeyword(name)
    if not plain or name.startswith("_") or name.endswith("_") or "__" in name or len(name) > _LONGEST:
        raise InputError(
            f"{name[:80]!r} is not a name for a protocol",
            hint=f"use a Python identifier of at most {_LONGEST} of a-z, 0-9 and _, which begins with a letter",
        )
    if name in NAMES or name in OUTSIDE.entries:
        raise InputError(f"there is a protocol {name!r} already", hint="choose another name")
