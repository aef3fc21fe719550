"""A service goes on while its parties' tables, and the ids that it answers, are replaced."""

from __future__ import annotations

import asyncio
import csv
import json
import shutil
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from colonnade.common.config.members import Config
from colonnade.common.parsing.file import parse
from colonnade.server.prediction.model import Model, Said
from tests.support.asked import Asked, asking
from tests.support.tables import table_tree, write_tables

Found = dict[str, Said]
NEW = ["New 1", "New 2", "New 3"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, list[str]]]:
    """A run of one epoch over tables, and keys that all members have."""
    folder = tmp_path_factory.mktemp("renewed")
    ids = write_tables(folder, persons=80)
    Asked(parse(table_tree(epochs=1)), folder).train()
    yield folder, sorted(set(ids["server"]) & set(ids["party1"]) & set(ids["party2"]))


class Household:
    """Members whose model is asked while tables change."""

    def __init__(self, folder: Path, config: Config | None = None) -> None:
        self.asked = Asked(config or parse(table_tree(epochs=1)), folder)
        self.folder, self.hangups = folder, list[Callable[[], None]]()

    def write(self, party: str, change: Callable[[list[dict[str, str]]], list[dict[str, str]]]) -> None:
        """Replaces a party's table."""
        path = self.folder / f"{party}.csv"
        with path.open(newline="") as lines:
            rows = list(csv.DictReader(lines))
        new = change(rows)
        with (draft := path.with_suffix(".new")).open("w", newline="") as lines:
            writer = csv.DictWriter(lines, list(new[0]))
            writer.writeheader()
            writer.writerows(new)
        draft.replace(path)

    def add_new(self, *parties: str) -> None:
        for party in parties:
            self.write(party, lambda rows: [*rows, *({**rows[at], "who": key} for at, key in enumerate(NEW))])

    async def hang_up(self, number: int | None = None) -> None:
        """SIGHUP at every party, or at one; returns when they have read their tables and settled."""
        for call in self.hangups if number is None else [self.hangups[number]]:
            call()
        await asyncio.sleep(5)  # virtual

    def ask(self, work: Callable[[Model], Awaitable[None]], **terms: bool) -> None:
        with patch("colonnade.client.member.process.on_hangup", self.hangups.append):
            self.asked.ask(work, **terms)
        assert not any(self.asked.errors.values()), self.asked.errors

    def events(self, kind: str, party: str) -> list[dict[str, object]]:
        return [event for event in self.asked.events if event["kind"] == kind and event.get("party") == party]


@pytest.fixture
def house(trained: tuple[Path, list[str]], tmp_path: Path) -> Household:
    return Household(Path(shutil.copytree(trained[0], tmp_path / "copy")))


def test_new_rows_are_known_once_tables_and_ids_are_read_again(
    house: Household, trained: tuple[Path, list[str]]
) -> None:
    known, said = trained[1], list[Found]()

    async def work(model: Model) -> None:
        said.append(await model.say([known[0], *NEW]))
        house.add_new("party1", "party2")
        await house.hang_up()
        said.append(await model.say([known[0], *NEW]))  # tables have them, and the service was not told to look
        model.renew([*known, *NEW[:2]])
        said.append(await model.say([known[0], *NEW]))

    house.ask(work)
    assert [sorted(one) for one in said] == [[known[0]], [known[0]], sorted([known[0], *NEW[:2]])]
    assert said[0][known[0]].values == pytest.approx(said[2][known[0]].values)
    assert [event["same"] for event in house.events("reloaded", "party1")] == [False]
    batches = (house.folder / "party1" / "batches.jsonl").read_text().splitlines()
    assert [json.loads(line)["rows"] for line in batches] == [1, 1, 3]


def test_changed_values_count_from_the_next_request_on(house: Household, trained: tuple[Path, list[str]]) -> None:
    one, said = trained[1][0], list[Found]()

    async def work(model: Model) -> None:
        said.append(await model.say([one]))
        house.write("party2", lambda rows: [{**row, "c0": "4"} for row in rows])
        said.append(await model.say([one]))
        await house.hang_up(1)
        said.append(await model.say([one]))
        await house.hang_up(1)  # the same table again: nobody has to join again

    house.ask(work)
    assert said[0] == said[1] != said[2]
    assert [event["same"] for event in house.events("reloaded", "party2")] == [False, True]
    assert len(house.events("join", "party2")) == 4  # told by the party and by the server, twice each


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (lambda rows: [*rows[:3], {**rows[3], "c1": "much"}, *rows[4:]], "line 5, column 'c1'"),
        (lambda rows: [{"who": row["who"], "c0": row["c0"]} for row in rows], "no column 'c1'"),
        (lambda rows: [*rows, rows[0]], "1 key stands in several rows"),
        (lambda rows: [*rows, {**rows[0], "who": f" {rows[0]['who']} "}], "repeat the key of another row"),
        (lambda rows: [{**row, "c2": ""} for row in rows], "the value is missing"),
    ],
)  # fmt: skip
def test_a_broken_table_is_said_and_the_one_before_stays(
    house: Household, trained: tuple[Path, list[str]], broken: Callable[[object], list[dict[str, str]]], said: str
) -> None:
    one, found = trained[1][0], list[Found]()

    async def work(model: Model) -> None:
        found.append(await model.say([one]))
        house.write("party1", broken)
        await house.hang_up(0)
        found.append(await model.say([one]))

    house.ask(work)
    assert found[0] == found[1] and found[0]
    (event,) = house.events("warning", "party1")
    assert said in str(event["reason"]) and "the one before stays" in str(event["reason"])
    assert len(house.events("join", "party1")) == 2


def test_other_ids_take_the_place_of_those_before(house: Household, trained: tuple[Path, list[str]]) -> None:
    known, said = trained[1], list[Found]()

    async def work(model: Model) -> None:
        model.renew(known[:3])
        model.renew(known[:2])
        said.append(await model.say(known[:4]))

    house.ask(work)
    assert [sorted(one) for one in said] == [known[:2]]


def test_a_party_that_comes_back_with_another_table_is_aligned_again(
    house: Household, trained: tuple[Path, list[str]]
) -> None:
    """As an operator does who stops and starts a party while the service runs."""
    known = trained[1]

    async def nothing(_model: Model) -> None: ...

    house.ask(nothing)
    number = json.loads((house.folder / "party1" / "once-predictions" / "alignment.json").read_text())["number"]
    house.write("party1", lambda rows: rows[::-1])

    async def work(model: Model) -> None:
        assert sorted(await model.say(known[:2])) == known[:2]

    house.ask(work)
    assert json.loads((house.folder / "party1" / "once-predictions" / "alignment.json").read_text())["number"] != number


def test_tables_of_other_people_alone_are_brought_one_after_the_other(
    house: Household, trained: tuple[Path, list[str]]
) -> None:
    """In between no id is known to all; the service says so, and goes on."""
    known, said = trained[1], list[Found]()

    async def work(model: Model) -> None:
        for number, party in enumerate(("party1", "party2")):
            house.write(party, lambda rows: [{**row, "who": key} for key, row in zip(NEW, rows, strict=False)])
            await house.hang_up(number)
            said.append(await model.say([known[0], *NEW]))
        model.renew(NEW)
        said.append(await model.say([known[0], *NEW]))
        model.renew(known)
        said.append(await model.say([known[0], *NEW]))

    house.ask(work, lasting=True)
    assert [sorted(one) for one in said] == [[], [], NEW, []]


def test_a_prediction_without_a_common_id_ends(house: Household, trained: tuple[Path, list[str]]) -> None:
    house.write("party1", lambda rows: [{**row, "who": key} for key, row in zip(NEW, rows, strict=False)])
    house.asked.ask(asking(trained[1][0]))
    assert "no key is common to all members" in str(house.asked.errors["server"])
    assert all(house.asked.errors.values())


def test_sums_and_columns_of_the_server_are_renewed_too(tmp_path: Path) -> None:
    known, said = sorted(set.intersection(*map(set, write_tables(tmp_path, 3, 60).values()))), list[Found]()
    tree = table_tree(3, epochs=1, batch=16, protocol={"name": "vfedmh", "aggregate": "blinded"})
    tree["server"]["active"] = {"data": {"source": "csv", "path": "server.csv", "key": "who", "columns": ["own"]}}
    house = Household(tmp_path, parse(tree))
    house.write("server", lambda rows: [{**row, "own": str(at % 7)} for at, row in enumerate(rows)])
    house.asked.train()

    async def work(model: Model) -> None:
        said.append(await model.say([known[0], *NEW]))
        house.add_new("server", "party1", "party2", "party3")
        await house.hang_up()
        model.renew([known[0], *NEW])
        said.append(await model.say([known[0], *NEW]))

    house.ask(work)
    assert [sorted(one) for one in said] == [[known[0]], sorted([known[0], *NEW])]
    assert said[0][known[0]].values == pytest.approx(said[1][known[0]].values, abs=1e-5)
    (*_, batch) = (tmp_path / "server" / "batches.jsonl").read_text().splitlines()
    assert json.loads(batch)["rows"] == 4
