"""Tables that a user names for predictions, NAME=TABLE for each member, in place of the training tables."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from colonnade.common.config.data.tables import TableColumnsConfig
from colonnade.common.config.members import ActiveConfig, Config, PartyConfig
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.errors import InputError, nearest

Tables = Mapping[str, str]
"""By member: a file or a folder, relative to the working directory; for a database, a table or a query."""

_Own = TypeVar("_Own", PartyConfig, ActiveConfig)
_OPTION = "--tables"
_FORM = "say NAME=TABLE for each member, as in --tables bank=new/bank.csv"


def with_tables(config: Config, tables: Tables) -> Config:
    """The configuration with these tables, which are read as training's were: notation, key and types stay."""
    if not tables:
        return config
    if config.federation.align == "none":
        raise InputError(
            f"{_OPTION}: federation.align is none, so rows are matched by their order, and only those of training "
            "can be predicted",
            hint="train with federation.align: psi, which finds rows by their keys",
        )
    server, parties = config.server, dict(config.parties)
    for name, table in tables.items():
        if name == SERVER and server is not None:
            if server.active is None:
                raise InputError(
                    f"{_OPTION} server={table}: the server of this run has no columns",
                    hint="name the parties' tables; labels are not used to predict",
                )
            server = server.model_copy(update={"active": _placed(name, server.active, table)})
        elif name in parties:
            parties[name] = _placed(name, parties[name], table)
        else:
            if not parties and name in config.federation.names:
                raise InputError(
                    f"{_OPTION} {name}={table}: with --file the parties run elsewhere, and {name} names its own table",
                    hint=f"leave {_OPTION} out here; on its machine run `colonnade answer {name}.yaml --in FOLDER "
                    f"{_OPTION} {name}={table}`, with the file and the folder of its training",
                )
            known = [*parties, *([SERVER] if server is not None and server.active is not None else [])]
            hint = f"there are {', '.join(known)}" if known else _FORM
            raise InputError(f"{_OPTION}: there is no member {name!r} here{nearest(name, known)}", hint=hint)
    return config.model_copy(update={"server": server, "parties": parties})


def _placed(name: str, own: _Own, table: str) -> _Own:
    data = own.data
    if not isinstance(data, TableColumnsConfig):
        raise InputError(
            f"{_OPTION} {name}={table}: the columns of {name} come from the source {data.source}, which is no table",
            hint="csv, parquet, arrow, sql and npy are tables",
        )
    where = str(Path(table).resolve()) if data.place == "path" else table
    return own.model_copy(update={"data": data.model_copy(update={data.place: where})})
