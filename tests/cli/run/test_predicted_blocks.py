"""A file of ids, block by block: order, repeated and unknown ids, budgets, and what an interruption leaves."""

from __future__ import annotations

import asyncio
import csv
import io
import itertools
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import colonnade
from colonnade.cli.run import predict
from colonnade.common.data.labels import LabelColumn
from colonnade.common.errors import DataError
from colonnade.common.parsing.file import parse
from colonnade.launcher.prediction_files import LineFormat, PredictionIds, Predictions
from colonnade.launcher.predictions import OpenedRun
from colonnade.server.prediction.exchange import Outputs, Question, Questions
from colonnade.server.prediction.model import Model, Predicted
from colonnade.server.prediction.row_index import RowIndex
from colonnade.server.prediction.terms import PredictionTerms
from tests.support.federation import config
from tests.support.tables import table_tree, write_tables

PERSONS, BLOCK, SOON = 20, 4, 20.0
KNOWN = {f"p{number}": number for number in range(PERSONS)}


class Parties:
    """They answer as long as `answers` returns True for the number of the request, from 1."""

    def __init__(self, *, paid: bool = False, answers: Callable[[int], bool] = lambda _number: True) -> None:
        labels = LabelColumn(torch.zeros(1, dtype=torch.int64), ("no", "yes"), ids=("p0",))
        self.questions, self.asked, self._answers = Questions(), list[tuple[str, ...]](), answers
        self.taken = list[threading.Event](threading.Event() for _ in range(PERSONS))
        row_index, finish = RowIndex(config({"name": "split"}).federation, labels), partial(torch.softmax, dim=1)
        self.model = Model("run", 1, row_index, labels.classes, True, self.questions, finish, paid=paid)

    async def session(self) -> None:
        """Ends as a session does that loses a party: its question stays open."""
        self.questions.hearing.set()
        while (question := await self.questions.next()) is not None:
            self.asked.append(question.ids)
            self.taken[len(self.asked) - 1].set()
            await asyncio.sleep(0)
            if not self._answers(len(self.asked)):
                return
            question.answer.set_result(self._outputs(question))

    def _outputs(self, question: Question) -> Outputs:
        known = sorted({KNOWN[id] for id in question.ids if id in KNOWN})
        lines = [known.index(KNOWN[id]) if id in KNOWN else -1 for id in question.ids]
        return Outputs(torch.tensor(lines), torch.tensor([[0.0, row / 10] for row in known]).reshape(-1, 2))


@pytest.fixture
def blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predict, "ROWS", BLOCK)


def write(path: Path, ids: list[str]) -> PredictionIds:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["id"], *([id] for id in ids)])
    return PredictionIds(path)


def answer(asked: PredictionIds, out: Path, parties: Parties, sessions: int = 1, tables: str = "") -> None:
    async def main() -> None:
        async with asyncio.timeout(SOON):
            work = asyncio.ensure_future(predict.answer_file(asked, 0, out, "refuse", tables, parties.model))
            work.add_done_callback(lambda _done: parties.questions.close())
            try:
                for _ in range(sessions):
                    await parties.session()
                if work.done() or parties.questions.over:
                    await work
            finally:
                work.cancel()
                await asyncio.gather(work, return_exceptions=True)

    asyncio.run(main())


def expected(ids: list[str]) -> list[list[str]]:
    lines = []
    for id in ids:
        row = KNOWN.get(id)
        values = [] if row is None else torch.tensor([0.0, row / 10]).softmax(0).tolist()
        best = "no" if not row else "yes"
        lines.append([id, best, *(f"{value:.6g}" for value in values)] if values else [id, "", "", ""])
    return lines


def written(path: Path) -> list[list[str]]:
    with path.open(newline="") as file:
        return list(csv.reader(file))[1:]


ANY = st.lists(st.sampled_from([*KNOWN, "nobody", 'a "quoted", id']), min_size=1, max_size=3 * BLOCK)


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("paid", [False, True])
def test_lines_are_in_the_order_of_the_ids_repeated_and_unknown_ones_included(paid: bool, tmp_path: Path) -> None:
    numbers = itertools.count()

    @given(ANY)
    def check(ids: list[str]) -> None:
        number = next(numbers)
        parties, out = Parties(paid=paid), tmp_path / f"{number}.csv"
        answer(write(tmp_path / f"{number}.ids", ids), out, parties)
        assert written(out) == expected(ids)
        assert [id for asked in parties.asked for id in asked] == ids
        assert all(len(asked) <= BLOCK for asked in parties.asked)

    check()


class Disk:
    """Records when blocks are on the disk; the first waits for the parties to take so many requests."""

    def __init__(self, parties: Parties, monkeypatch: pytest.MonkeyPatch, waits_for: int) -> None:
        self.at_write = list[int]()  # requests that the parties had taken when a block was there
        add = Predictions.add

        def slow(written: Predictions, *block: Any) -> None:
            add(written, *block)
            if not self.at_write:
                assert parties.taken[waits_for - 1].wait(SOON)
            self.at_write.append(len(parties.asked))

        monkeypatch.setattr(Predictions, "add", slow)


@pytest.mark.usefixtures("blocks")
def test_the_parties_compute_one_block_while_the_one_before_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parties = Parties()
    disk = Disk(parties, monkeypatch, waits_for=2)
    answer(write(tmp_path / "ids", list(KNOWN)), tmp_path / "out", parties)
    assert len(disk.at_write) == PERSONS // BLOCK
    assert all(taken <= number + 1 for number, taken in enumerate(disk.at_write, 1))


@pytest.mark.usefixtures("blocks")
def test_nothing_is_requested_that_a_budget_pays_for_before_the_last_block_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parties = Parties(paid=True)
    disk = Disk(parties, monkeypatch, waits_for=1)
    answer(write(tmp_path / "ids", list(KNOWN)), tmp_path / "out", parties)
    assert disk.at_write == list(range(1, PERSONS // BLOCK + 1))


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("paid", [False, True])
@pytest.mark.parametrize("lost", range(1, 6))
def test_a_party_that_is_lost_between_blocks_costs_no_line_and_repeats_none(
    lost: int, paid: bool, tmp_path: Path
) -> None:
    parties = Parties(paid=paid, answers=lambda number: number != lost)
    answer(write(tmp_path / "ids", list(KNOWN)), tmp_path / "out", parties, sessions=2)
    assert written(tmp_path / "out") == expected(list(KNOWN))
    assert parties.asked[lost - 1] == parties.asked[lost]  # that one question was open


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("paid", [False, True])
@pytest.mark.parametrize("lost", range(1, 6))
def test_a_command_that_was_stopped_continues_after_the_last_block_on_the_disk(
    lost: int, paid: bool, tmp_path: Path
) -> None:
    ids, out = write(tmp_path / "ids", list(KNOWN)), tmp_path / "out"
    answer(ids, out, Parties(paid=paid, answers=lambda number: number < lost))
    assert not out.exists()
    there = len(written(tmp_path / "out.partial")) if (tmp_path / "out.partial").exists() else 0
    assert there >= BLOCK * (lost - 2)  # the newest may not be written yet
    again = Parties(paid=paid)
    answer(ids, out, again)
    assert written(out) == expected(list(KNOWN))
    assert [id for asked in again.asked for id in asked] == list(KNOWN)[there:]


@pytest.mark.usefixtures("blocks")
def test_lines_of_other_tables_are_not_continued(tmp_path: Path) -> None:
    ids, out, again = write(tmp_path / "ids", list(KNOWN)), tmp_path / "out", Parties()
    answer(ids, out, Parties(answers=lambda number: number < 4), tables="before")
    assert written(tmp_path / "out.partial")
    answer(ids, out, again, tables="after")
    assert [id for asked in again.asked for id in asked] == list(KNOWN)


def test_members_tables_are_told_apart_by_their_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_tables(tmp_path, persons=40)
    colonnade.simulate(table_tree(epochs=1, batch=8), out="run")
    run = OpenedRun(parse(table_tree(), begun=True), tmp_path, tmp_path / "run", None, PredictionTerms())
    before, table = run.fingerprints(), tmp_path / "party2.csv"
    assert before == run.fingerprints() and "party1" in before and "party2" in before
    head, *lines = table.read_text().splitlines()
    lines[0] = lines[0].rpartition(",")[0] + ",0.125"
    table.write_text("\n".join([head, *lines, ""]))
    assert before.partition(" party2")[0] == run.fingerprints().partition(" party2")[0] and before != run.fingerprints()


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=6)


@given(
    st.lists(
        st.tuples(TEXT | st.sampled_from(['"', ",", "\r", "\n", "%s"]), st.none() | st.floats(width=32)), max_size=6
    ),
    st.lists(TEXT, min_size=2, max_size=2, unique=True),
    st.booleans(),
)
def test_a_line_is_as_pythons_csv_writes_it(
    rows: list[tuple[str, float | None]], names: list[str], classes: bool
) -> None:
    values = [[value, 0.25] for _, value in rows if value is not None]
    known, given = np.array([value is not None for _, value in rows], bool), np.array(values).reshape(-1, 2)
    said = Predicted(known, given, 1 - given.argmax(1))  # as a threshold may decide
    expected = io.StringIO()
    for id, value in rows:
        if value is None:
            line = [""] * (2 + classes)
        else:
            pair = np.array([value, 0.25])
            label = [names[1 - int(pair.argmax())]] if classes else []
            line = [*label, *(f"%.{6 if classes else 9}g" % each for each in pair)]
        csv.writer(expected).writerow([id, *line])
    assert LineFormat(names, classes).lines([id for id, _ in rows], said) == expected.getvalue()


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ("7,8\n", "line 9: 2 values for the 1 columns"),
        ('" "\n', "line 9: the id is missing"),
        ('"7\n7"\n', "line 9: an id of several lines"),
    ],
)
def test_a_broken_line_far_below_is_named_by_its_number(broken: str, said: str, tmp_path: Path) -> None:
    before = "id\n1\n2\n\n3\n4\n5\n6\n"  # a blank line is counted, and holds no id
    (tmp_path / "ids.csv").write_text(f"{before}{broken}8\n")
    with pytest.raises(DataError, match=said):
        PredictionIds(tmp_path / "ids.csv").count()
    (tmp_path / "ids.csv").write_text(before)
    assert list(PredictionIds(tmp_path / "ids.csv").ids()) == ["1", "2", "3", "4", "5", "6"]
