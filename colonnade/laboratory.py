"""The seam to the distribution `colonnade-lab`, which has attacks, the papers' tables and their comparison.

It registers entry points of the group `colonnade.lab`: `attack`, the package of the attacks; `commands`, which adds its
commands to the command line; `comparison`, which runs `colonnade compare` without `--on`.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Any

from colonnade.common.errors import InputError
from colonnade.common.version import VERSION

DISTRIBUTION, GROUP = "colonnade-lab", "colonnade.lab"
COMMANDS = ("attack", "reproduce")
"""Commands that the laboratory adds."""


def installed() -> dict[str, EntryPoint]:
    """The laboratory's entry points by name; empty if it is not installed."""
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def load(name: str, wanted: str) -> Any:
    """Loads an entry point.

    Args:
        wanted: what the user requested, for the error.

    Raises:
        InputError: it is not installed, or has another version than this package.
    """
    hint = (
        f"pip install colonnade-lab=={VERSION}, or the file {DISTRIBUTION.replace('-', '_')}-{VERSION}-py3-none-any.whl"
    )
    if (entry := installed().get(name)) is None:
        raise InputError(f"{wanted} is part of {DISTRIBUTION}, which is not installed", hint=hint)
    if entry.dist is not None and entry.dist.version != VERSION:
        raise InputError(f"{DISTRIBUTION} has version {entry.dist.version}, colonnade has {VERSION}", hint=hint)
    return entry.load()
