"""Tables of a real PostgreSQL server, started for the tests; skipped if there is none."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import sqlalchemy
from pydantic import TypeAdapter

from colonnade.common.config.data.columns import PartyIndex
from colonnade.common.config.data.sources import DataConfig, LabelConfig
from colonnade.common.data.columns.features import Features, TypedColumn
from colonnade.common.data.sources import load_features, load_labels
from colonnade.common.errors import DataError

pytest.importorskip("psycopg")
pytestmark = pytest.mark.skipif(not (shutil.which("initdb") and shutil.which("pg_ctl")), reason="no PostgreSQL here")

SETUP = """
create schema crm;
create table crm.clients (
  client bigint primary key, "Income, gross" numeric(12, 2), town text, since date, vip boolean
);
insert into crm.clients values (12, 1500.50, 'Ulm', '2020-01-01', true), (3, null, null, '2021-02-03', false),
  (7, -2, 'Kiel', null, true);
create table outcome as select client::text as client, vip as label from crm.clients;
"""


def _owner() -> str | None:
    """The user that the server runs as: it refuses root."""
    if os.geteuid():
        return None
    try:
        return pwd.getpwnam("postgres").pw_name
    except KeyError:
        pytest.skip("root cannot run PostgreSQL, and there is no user postgres")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    owner = _owner()
    folder = Path(tempfile.mkdtemp(prefix="pg"))
    if owner:
        shutil.chown(folder, owner)
    run = partial(subprocess.run, user=owner, check=True, stdout=subprocess.DEVNULL, timeout=60, cwd="/")
    options = f"-c listen_addresses= -c fsync=off -k {folder}"
    run(["initdb", "-D", folder / "db", "-A", "trust", "-U", "reader", "--no-sync"])
    run(["pg_ctl", "-D", folder / "db", "-l", folder / "log", "-w", "-o", options, "start"])
    try:
        address = f"postgresql+psycopg://reader:secret@/postgres?host={folder}"
        engine = sqlalchemy.create_engine(address)
        with engine.begin() as link:
            link.exec_driver_sql(SETUP)
        engine.dispose()
        yield address
    finally:
        run(["pg_ctl", "-D", folder / "db", "-m", "immediate", "stop"])
        shutil.rmtree(folder)


def read(url: str, **how: object) -> Features:
    config = TypeAdapter(DataConfig).validate_python({"source": "sql", "url": url, "key": "client", **how})
    return load_features(config, PartyIndex(0, 1), Path())


@pytest.mark.parametrize("query", [{"table": "crm.clients"}, {"query": "select * from crm.clients order by client;"}])
def test_a_table_and_a_query(url: str, query: dict[str, str]) -> None:
    features = read(url, **query, drop=["since"], missing="mean")
    assert features.ids == ("3", "7", "12")
    assert features.fields == (TypedColumn("Income, gross"), TypedColumn("town", ("Kiel", "Ulm")), TypedColumn("vip"))
    assert features.values.nan_to_num(99).tolist() == [[99, 99, 0], [-2, 0, 1], [1500.5, 1, 1]]


def test_labels(url: str) -> None:
    how = {"source": "sql", "url": url, "query": "select * from outcome", "key": "client", "label": "label"}
    found = load_labels(TypeAdapter(LabelConfig).validate_python(how), Path())
    assert dict(zip(found.ids or (), found.values.tolist(), strict=True)) == {"12": 1, "3": 0, "7": 1}


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"table": "crm.clients"}, "column 'since': is of type date32"),
        ({"table": "clients"}, "has no table 'clients'"),
        ({"query": "select gone from crm.clients"}, 'column "gone" does not exist'),
        ({"table": "crm.clients", "key": "town", "columns": ["vip"]}, "row 3, column 'town': the value is missing"),
    ],
)
def test_errors_do_not_contain_the_password(url: str, how: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        read(url, **how)
    assert "secret" not in str(caught.value)


def test_a_server_that_is_not_there() -> None:
    with pytest.raises(DataError, match=r"connection failed|No such file") as caught:
        read("postgresql+psycopg://reader:secret@/postgres?host=/nowhere", table="t")
    assert "secret" not in str(caught.value)
