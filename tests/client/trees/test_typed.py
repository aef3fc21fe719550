"""What a protocol that is typed learns from: the table before it is encoded, by the same reading rules."""

from __future__ import annotations

import asyncio
import csv
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter

from colonnade.client.protocols import secureboost
from colonnade.client.training import bins as trees
from colonnade.client.training.bins import BinnedTable, TableBins
from colonnade.client.training.context import ClientContext
from colonnade.common.config.data.columns import PartyIndex
from colonnade.common.config.data.sources import DataConfig
from colonnade.common.config.data.tables import TableColumnsConfig
from colonnade.common.conversation.conversation import SERVER, Link
from colonnade.common.conversation.inprocess import run_virtual
from colonnade.common.data.columns.kept_encoder import EncoderFile
from colonnade.common.data.columns.scale import Columns
from colonnade.common.data.scored_rows import ScoredRows
from colonnade.common.data.sources import load_features, prepare, prepare_others
from colonnade.common.data.table_cache import TableCache
from colonnade.common.errors import ConfigError, DataError
from colonnade.common.parsing.file import parse
from colonnade.common.protocols.secureboost import Config
from tests.support.federation import config as of_protocol
from tests.support.federation import federate
from tests.support.in_memory import SETS, Members, agreed, members
from tests.support.tables import table_tree, write_tables

HEADER = ["id", "age", "plan", "since", "share", "postcode"]
ROWS = 200


def config(**more: Any) -> Any:
    tree = {
        "source": "csv", "path": "t.csv", "key": "id", "missing": "mean", "unseen": "zero", "missing_values": ["-1"],
        "types": {"since": "date %d.%m.%Y", "share": "percent", "postcode": "category"},
    }  # fmt: skip
    return TypeAdapter(DataConfig).validate_python({**tree, **more})


def row(number: int) -> list[str]:
    age = "-1" if number % 5 == 0 else f"{20 + number % 7}.5"
    plan = "" if number % 4 == 0 else f" {'basic' if number % 3 else 'plus'}"
    return [f"k{number}", age, plan, f"{1 + number % 28:02}.03.2024", f"{number % 3} %", f"0{number % 2}"]


def write(folder: Path, rows: list[list[str]], header: list[str] = HEADER) -> None:
    with (folder / "t.csv").open("w", newline="") as lines:
        csv.writer(lines).writerows([header, *rows])


def trained(folder: Path, **more: Any) -> TableBins:
    """Bins that were fitted at the beginning of a run in a folder."""
    write(folder, [row(number) for number in range(ROWS)])
    kept, data = EncoderFile(folder, begun=False), config(**more)
    features = load_features(data, PartyIndex(0, 1), folder)
    columns = prepare(data, features, torch.arange(ROWS), 0, "bank", kept, typed=True)
    assert columns.table is not None
    bins = TableBins()
    bins.fit(columns.table, torch.arange(ROWS), print)
    return bins


def read(folder: Path, **more: Any) -> Columns:
    """The columns of a prediction."""
    kept, data = EncoderFile(folder, begun=True), config(**more)
    return prepare_others(
        data, load_features(data, PartyIndex(0, 1), folder, TableCache(folder), kept), 0, "bank", kept, typed=True
    )


def binned(bins: TableBins, columns: Columns) -> BinnedTable:
    assert columns.table is not None
    return bins.of(columns.table)


def test_a_new_file_is_read_as_the_one_of_training(tmp_path: Path) -> None:
    bins = trained(tmp_path)
    before = binned(bins, read(tmp_path))
    assert before.names == ("age", "plan", "since", "share", "postcode")
    assert before.counts == (7 + 1, 2 + 1, 9, 3, 2)
    first = [column.describe(np.arange(column.count) == 0) for column in before.columns]
    assert first == ["age <= 21", "plan is basic", "since <= 19785.5", "share <= 0.005", "postcode is 00"]

    write(tmp_path, [row(number)[::-1] for number in range(10)], HEADER[::-1])
    assert np.array_equal(binned(bins, read(tmp_path)).codes, before.codes[:10])
    write(tmp_path, [["k1", "-1", "", "01.01.1999", "100 %", "1"], ["k2", "1e30", "gold", "", "", ""]])
    age, plan, since, share, postcode = binned(bins, read(tmp_path)).codes.T.tolist()
    assert age == [7, 6] and plan == [2, 0] and postcode == [0, 0]  # unseen words join the most frequent one
    assert since == [0, 4] and share == [2, 1]  # missing values were none in training, and join the median

    said = list[str]()
    notes = ScoredRows(tmp_path, lambda _record, words: said.append(words), said.append)
    notes.take(load_features(config(), PartyIndex(0, 1), tmp_path))
    notes.add(torch.arange(2))
    notes.end()
    assert "2 words that training had not in 'plan', 'postcode'" in said[0]


def test_words_rise_in_no_direction(tmp_path: Path) -> None:
    bins, table = trained(tmp_path), read(tmp_path).table
    ctx: Any = SimpleNamespace(name="bank", table=table, config=SimpleNamespace(monotone={"age": "falling"}))
    assert trees.directions(ctx, bins.columns) == {0: -1}
    ctx.config.monotone = {"plan": "rising"}
    with pytest.raises(ConfigError, match=r"parties\.bank\.monotone: column 'plan' is of words"):
        trees.directions(ctx, bins.columns)


def test_what_encoding_refuses_is_refused(tmp_path: Path) -> None:
    trained(tmp_path, unseen="refuse", missing="mean")
    write(tmp_path, [row(1), [*row(2)[:2], "gold", *row(2)[3:]]])
    with pytest.raises(DataError, match=r"t\.csv, line 3, column 'plan': 1 row has a word that no training row has"):
        read(tmp_path, unseen="refuse")
    write(tmp_path, [["k1", "inf", *row(1)[2:]]])
    with pytest.raises(DataError, match="column 'age'"):
        read(tmp_path)
    with pytest.raises(ConfigError, match="noise"):
        trained(tmp_path, noise={"std": 1.0})


def test_other_protocols_keep_no_table(tmp_path: Path) -> None:
    trained(tmp_path)
    data = config()
    features = load_features(data, PartyIndex(0, 1), tmp_path)
    assert prepare(data, features, torch.arange(ROWS), 0, "bank").table is None
    with pytest.raises(TypeError, match="typed = True"):
        _ = next(iter(federate(agreed()).clients.values())).table


def test_a_table_that_is_not_encoded_needs_no_word_on_gaps(tmp_path: Path) -> None:
    write_tables(tmp_path)
    data = parse(table_tree(protocol="secureboost")).parties["party1"].data
    assert isinstance(data, TableColumnsConfig) and (data.missing, data.unseen) == ("mean", "zero")
    columns = prepare(data, load_features(data, PartyIndex(0, 2), tmp_path), torch.arange(10), 0, "party1", typed=True)
    assert columns.table is not None and columns.to(torch.device("cpu")).values is columns.table.values
    said = parse(table_tree(protocol="secureboost"), ("parties.party1.data.missing=refuse",)).parties["party1"].data
    assert isinstance(said, TableColumnsConfig) and said.missing == "refuse"


def test_images_keep_their_bytes() -> None:
    data = TypeAdapter(DataConfig).validate_python({"source": "sklearn", "name": "digits"})
    features = load_features(data, PartyIndex(1, 4), Path())
    columns = prepare(data, features, torch.arange(1000), 0, "bank", typed=True)
    bins = TableBins()
    bins.fit(features, torch.arange(1000), print)
    found = binned(bins, columns)
    assert found.codes.shape == (len(features.values), len(bins.columns)) and max(found.counts) <= 17


def test_parties_have_their_tables_in_members_and_in_simulations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, list[list[int]]] = {}

    async def participate(ctx: ClientContext, server: Link, cfg: Config) -> None:
        seen.setdefault(ctx.name, []).append(trees.binned(ctx).codes.sum(0).tolist())
        await own(ctx, server, cfg)

    own = secureboost.participate
    monkeypatch.setattr(secureboost, "participate", participate)
    cfg = of_protocol({"name": "secureboost", "gradients": "clear"}, *SETS)
    federate(cfg)
    with members(tmp_path, cfg) as there:
        run_virtual(everyone(there))
    assert sorted(seen) == sorted(there.config.federation.names)
    assert all(simulated == served for simulated, served in seen.values())


async def everyone(there: Members) -> None:
    server = there.start(SERVER)
    await there.listening.wait()
    await asyncio.gather(server, *map(there.start, there.config.federation.names))
