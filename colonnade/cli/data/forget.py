"""`colonnade forget`: removes kept alignments and the secret exponents that go with them."""

from __future__ import annotations

from pathlib import Path

from colonnade.common.alignment.kept.place import NAME
from colonnade.common.alignment.kept.store import forget as forget_in
from colonnade.common.alignment.kept.store import members_in
from colonnade.common.errors import EnvironmentFault, InputError
from colonnade.reports.console.screen import out as console


def forget(folder: Path) -> None:
    """Removes what every member stores in a folder, or beside the runs in it."""
    nested = sorted(place for place in folder.rglob(NAME) if not place.is_symlink())  # also inside runs, and of old ids
    places = [place for place in (*nested, folder) if members_in(place)]
    if not places:
        raise InputError(
            f"{folder} holds no kept alignments",
            hint=f"name the folder of your runs, where they are in {NAME}, or the folder of `alignments: {{folder}}`",
        )
    for place in places:
        members = ", ".join(member.name for member in members_in(place))
        try:
            removed = forget_in(place)
        except OSError as failed:
            raise EnvironmentFault(f"{place} cannot be removed: {failed.strerror}", hint="as its owner") from failed
        console.print(f"{place}: forgot {removed} alignments and exponents of {members}", markup=False, soft_wrap=True)
