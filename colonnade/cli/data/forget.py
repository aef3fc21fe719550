"""`colonnade forget`: removes kept alignments and the secret exponents that go with them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from colonnade.common.alignment.kept.place import NAME
from colonnade.common.errors import EnvironmentFault, InputError
from colonnade.reports.console.screen import out as console


def forget(
    folder: Annotated[Path, typer.Argument(help="the folder of runs, or of kept alignments")] = Path("runs"),
) -> None:
    from colonnade.common.alignment.kept import store  # noqa: PLC0415  # torch

    nested = sorted(place for place in folder.rglob(NAME) if not place.is_symlink())  # also inside runs, and of old ids
    places = [place for place in (*nested, folder) if store.members_in(place)]
    if not places:
        raise InputError(
            f"{folder} holds no kept alignments",
            hint=f"name the folder of your runs, where they are in {NAME}, or the folder of `alignments: {{folder}}`",
        )
    for place in places:
        members = ", ".join(member.name for member in store.members_in(place))
        try:
            removed = store.forget(place)
        except OSError as failed:
            raise EnvironmentFault(f"{place} cannot be removed: {failed.strerror}", hint="as its owner") from failed
        console.say(f"{place}: forgot {removed} alignments and exponents of {members}")
