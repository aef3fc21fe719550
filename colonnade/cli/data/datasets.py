"""colonnade datasets: the sets that Colonnade knows, and their download."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from colonnade.common.data.known_sets.catalogue import KNOWN, DataSet, known
from colonnade.common.data.known_sets.places import presence
from colonnade.reports.console.grid import Grid
from colonnade.reports.console.screen import out as console

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.callback(invoke_without_command=True)
def datasets(context: typer.Context) -> None:
    """List the data sets that Colonnade knows: size, licence and location."""
    if context.invoked_subcommand is not None:
        return
    table = Grid("name", "rows", "size", "licence", "where")
    for name, data_set in KNOWN.items():
        table.add_row(
            name,
            f"{data_set.rows:,}",
            f"{data_set.bytes / 1e6:.1f} MB" if data_set.files else "",
            data_set.licence,
            _where(name, data_set),
        )
    console.show(table)
    console.say("\nDownload one that is marked `fetch`: colonnade datasets fetch NAME")


@app.command()
def fetch(
    name: Annotated[str, typer.Argument(help="One of the names that `colonnade datasets` lists.")],
    into: Annotated[
        Path | None, typer.Option(help="Folder that gets the folder NAME. Default: the user's cache.")
    ] = None,
) -> None:
    """Download a data set and check it against its checksums."""
    data_set = known(name)
    console.say(f"{data_set.title}; licence: {data_set.licence}")
    from colonnade.common.data.known_sets.fetch import fetch as fetch_set  # noqa: PLC0415  # pooch, which a list does without

    folder = fetch_set(name, into, say=console.say)
    console.say(f"{name} is at {folder}")


def _where(name: str, data_set: DataSet) -> str:
    if not data_set.files:
        return "comes with scikit-learn"
    place = presence(name, data_set)
    if place is not None:
        whole = len(data_set.files)
        return f"{place.folder}" + (f" ({place.files} of {whole} files)" if place.files < whole else "")
    return "by hand" if data_set.by_hand else "fetch"
