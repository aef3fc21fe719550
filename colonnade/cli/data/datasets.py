"""`colonnade datasets` lists and fetches known data sets; `colonnade tables` cuts some into tables of several members,
for experiments/tables.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from colonnade.common.config.data.columns import PartyIndex
from colonnade.common.data.known_sets.catalogue import KNOWN, DataSet, find, known, presence
from colonnade.reports.console.grid import Grid
from colonnade.reports.console.outputs import csv_text, make_folder, write_text
from colonnade.reports.console.screen import out as console

if TYPE_CHECKING:
    import numpy as np

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


tables_app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)

Folder = Annotated[Path, typer.Option("--out", help="folder for server.csv, party1.csv, .. and ids.csv")]
Parties = Annotated[int, typer.Option("--parties", min=1, help="how many parties share the columns")]
Overlap = Annotated[float, typer.Option("--overlap", help="share of the rows that every member holds")]
Seed = Annotated[int, typer.Option("--seed", help="seed of the orders and of the overlap")]

Rows = Sequence[Sequence[str]]
_REQUESTED = 100  # keys in ids.csv, for `colonnade predict`


@tables_app.command()
def adult(out: Folder, parties: Parties = 3, overlap: Overlap = 0.8, seed: Seed = 0) -> None:
    """The Adult census: predict an income above 50,000 a year."""
    from colonnade.common.data.known_sets.adult import holds, read_rows  # noqa: PLC0415  # torch

    header, rows = read_rows(find("adult", Path(), holds, "adult.data and adult.test"))
    _cut(out, "adult", header, rows, parties=parties, overlap=overlap, seed=seed)


@tables_app.command()
def credit(out: Folder, parties: Parties = 3, overlap: Overlap = 0.8, seed: Seed = 0) -> None:
    """Credit cards: predict a default next month."""
    path = find("credit-default/UCI_Credit_Card.csv", Path(), Path.is_file, "file")
    with path.open(newline="", encoding="utf-8") as lines:
        header, *rows = csv.reader(lines)
    _cut(out, "credit", header[1:], [row[1:] for row in rows], parties=parties, overlap=overlap, seed=seed)


def _cut(out: Path, name: str, header: Sequence[str], rows: Rows, *, parties: int, overlap: float, seed: int) -> None:
    """Writes the members' tables; the last column is the label."""
    from colonnade.common.data import split  # noqa: PLC0415  # loads torch

    label = len(header) - 1
    bands = [split.band(label, PartyIndex(index, parties), "columns") for index in range(parties)]
    columns = {"server": [label], **{f"party{index + 1}": [*range(label)[part]] for index, part in enumerate(bands)}}
    # A key does not reveal a row's position in the original set.
    numbers = split.order(len(rows), seed + 1)
    keys = [f"{name}-{number:06d}" for number in numbers]
    known = split.share(len(rows), parties + 1, overlap, seed)
    make_folder(out)
    for (member, places), held in zip(columns.items(), known, strict=True):
        table = [[keys[row], *(rows[row][place] for place in places)] for row in held.tolist()]
        names = [header[place] for place in places]
        write_text(out / f"{member}.csv", csv_text([["key", *names], *table]))
        console.say(f"{out / member}.csv: {len(table)} rows, {', '.join(names)}")
    _write_ids(out / "ids.csv", keys, known)


def _write_ids(path: Path, keys: Sequence[str], known: Sequence[np.ndarray]) -> None:
    """Writes keys of rows that all members hold, in the server's order, as ids to predict."""
    common = set.intersection(*(set(held.tolist()) for held in known))
    ids = [[keys[row]] for row in known[0].tolist() if row in common][:_REQUESTED]
    write_text(path, csv_text([["key"], *ids]))
    console.say(f"{path}: {len(ids)} keys that all members hold, for colonnade predict RUN --ids {path}")
