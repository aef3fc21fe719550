"""A server of predictions that tells parties different things, repeats a request, or asks for what changes a model.

Bounds: predictions (server).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from colonnade.common.aggregation.messages import Members
from colonnade.common.contracts.prediction import Ask, Averaged
from colonnade.common.conversation.conversation import SERVER, Cohort
from colonnade.common.conversation.parcels import Item, Open, Save, Statement
from colonnade.common.crypto.sealing import TranscriptError
from colonnade.common.errors import ContractError
from colonnade.server.aggregation.masked_sums import Blinded, Found
from colonnade.server.member.hub import Hub
from tests.support.altered_lines import replace_each
from tests.support.asked import Asked, asking
from tests.support.federation import config
from tests.support.in_memory import SETS

PROTOCOLS: dict[str, dict[str, Any]] = {
    "clear": {"name": "split", "embedding": 4},
    "blinded": {"name": "split_avg", "embedding": 4, "aggregate": "blinded"},
    "vfedmh": {"name": "vfedmh", "embedding": 4},
    "fedvs": {"name": "fedvs", "embedding": 4},
}
NAMES = ("party1", "party2", "party3", "party4")
VICTIM, OTHERS = "party2", ("party1", "party3", "party4")
ROWS = tuple(map(str, range(10, 30)))
TRAINED = (*SETS, "federation.transcript.every=2", "federation.rounds=2", "federation.checkpoint.rounds=1")

Alter = Callable[[Item], Iterator[Item]]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Asked]:
    @cache
    def made(protocol: str) -> Asked:
        there = Asked(config(PROTOCOLS[protocol], *TRAINED), tmp_path_factory.mktemp(protocol))
        there.train()
        return there

    return made


@pytest.fixture(params=PROTOCOLS)
def asked(request: Any, trained: Callable[[str], Asked]) -> Asked:
    return trained(request.param)


@pytest.fixture
def clear(trained: Callable[[str], Asked]) -> Asked:
    return trained("clear")


@pytest.fixture
def vfedmh(trained: Callable[[str], Asked]) -> Asked:
    return trained("vfedmh")


@pytest.fixture
def content(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server does not mind masks that do not cancel."""
    decode = lambda self, total, responses, *_more: Found(self._ring.decode(total[:-1]).float(), responses)  # noqa: E731
    monkeypatch.setattr(Blinded, "finding", decode)


def at(alter: Alter, *parties: str) -> Callable[[Cohort], None]:
    """Has parties, one by default, receive what `alter` makes of each item."""

    def spoil(cohort: Cohort) -> None:
        for party in parties or (VICTIM,):
            replace_each(cohort[party], alter)

    return spoil


def second(kind: type, *instead: Callable[[Any], Any]) -> Alter:
    """In the place of the second message of a kind there are others."""
    seen: list[Any] = []

    def alter(item: Item) -> Iterator[Item]:
        if not isinstance(item, kind):
            yield item
            return
        seen.append(item)
        yield from (change(item) for change in instead) if len(seen) == 2 else (item,)

    return alter


def same(item: Any) -> Any:
    return item


def rows(change: Callable[[Tensor], Tensor]) -> Callable[[Any], Any]:
    return lambda ask: replace(ask, rows=change(ask.rows))


def findings(asked: Asked) -> list[str]:
    return [str(error) for name in NAMES if isinstance(error := asked.errors.get(name), TranscriptError)]


OTHER_ROWS: dict[str, Callable[[Any], Any]] = {
    "another order": rows(lambda some: some.flip(0)),
    "one row": rows(lambda some: torch.cat([some[:-1], torch.tensor([700])])),
    "all rows": rows(lambda some: some + 1),
}


def test_honest_members_answer_and_end_at_once(asked: Asked) -> None:
    asked.ask(asking(*ROWS, times=9))
    assert not any(asked.errors.values()), asked.errors
    assert asked.seconds < 1 and not [event for event in asked.events if event["kind"] in ("finding", "warning")]


@pytest.mark.parametrize(
    ("change", "times"), [*((change, 2) for change in OTHER_ROWS), ("all rows", 9)], ids=str
)  # in the last request of two, and in one of many
def test_a_party_that_is_asked_for_other_rows_is_found(asked: Asked, content: None, change: str, times: int) -> None:
    asked.ask(asking(*ROWS, times=times), at(second(Ask, OTHER_ROWS[change])))
    found = findings(asked)
    assert found and all("was told another Ask than we were" in text for text in found), asked.errors


def test_a_server_has_an_error_in_the_place_of_false_predictions(vfedmh: Asked) -> None:
    vfedmh.ask(asking("7", times=3), at(second(Ask, rows(lambda some: some + 1))))
    assert isinstance(vfedmh.errors[SERVER], ContractError)
    assert "expected masks that cancel" in str(vfedmh.errors[SERVER])


def test_averages_that_differ_are_found(vfedmh: Asked) -> None:
    vfedmh.ask(asking(*ROWS, times=3), at(second(Averaged, lambda sent: replace(sent, e=sent.e * 2))), own=True)
    assert any("was told another Averaged than we were" in text for text in findings(vfedmh))


@pytest.mark.parametrize("protocol", ["clear", "vfedmh"])
@pytest.mark.parametrize(
    ("kind", "instead", "text"),
    [
        (Ask, (OTHER_ROWS["all rows"], same), "Ask: expected one in round 4, got a second"),
        (Ask, (same, same), "Ask: expected one in round 4, got a second"),
        (Open, (lambda _open: Open(3),), "Open.round: expected more than 3, got 3"),
        (Open, (same, same), "Open.round: expected more than 4, got 4"),
        (Open, (lambda _open: Save(3), same), "Save: expected none in a prediction, got one of round 3"),
        (Open, (lambda _open: Save(3, 2, 2), same), "Save: expected none in a prediction, got one of round 3"),
    ],
    ids=["two requests", "a request twice", "a round again", "a round twice", "a checkpoint", "kept"],
)
def test_a_party_refuses_and_keeps_its_model(
    trained: Callable[[str], Asked], protocol: str, kind: type, instead: Any, text: str
) -> None:
    """Of two requests in a round a party would answer the first and state the second."""
    asked = trained(protocol)
    folder = asked.folder / VICTIM / "checkpoints"
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    asked.ask(asking(*ROWS, times=4), at(second(kind, *instead)))
    assert isinstance(asked.errors[VICTIM], ContractError) and text in str(asked.errors[VICTIM]), asked.errors
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_sum_is_of_all_parties(vfedmh: Asked) -> None:
    without = lambda said: replace(said, members=torch.tensor([1, 1, 1, 0], dtype=torch.uint8))  # noqa: E731
    vfedmh.ask(asking(*ROWS, times=3), at(second(Members, without), *NAMES[:3]))
    errors = [str(vfedmh.errors[name]) for name in NAMES[:3]]
    assert any("Members.members: expected at least 4 parties" in text for text in errors), errors


def begin(monkeypatch: pytest.MonkeyPatch, party: str, **told: Any) -> None:
    """One party is told another beginning."""
    start = Hub._start

    def other(self: Hub, name: str, round: int) -> int:
        before = self._names
        self._names = told.get("parties", before) if name == party else before
        start(self, name, told.get("round", round) if name == party else round)
        self._names = before
        return round

    monkeypatch.setattr(Hub, "_start", other)


@pytest.mark.parametrize("parties", [("party1", "party2", "party3"), ("party2", "party1", "party3", "party4"), ()])
def test_a_party_answers_for_a_sum_of_all_alone(
    vfedmh: Asked, monkeypatch: pytest.MonkeyPatch, parties: tuple[str, ...]
) -> None:
    begin(monkeypatch, VICTIM, parties=parties)
    vfedmh.ask(asking(*ROWS))
    assert "Begin.parties: expected all, since their outputs are summed" in str(vfedmh.errors[VICTIM])


def test_parties_that_are_named_other_participants_are_found(clear: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    begin(monkeypatch, VICTIM, parties=("party1", "party2", "party3"))
    clear.ask(asking(*ROWS))
    assert any("was told otherwise of the parties that are present" in text for text in findings(clear)), clear.errors


@pytest.mark.parametrize("protocol", ["clear", "vfedmh"])
def test_a_party_that_answers_from_another_checkpoint_is_named(
    trained: Callable[[str], Asked], monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    asked = trained(protocol)
    begin(monkeypatch, VICTIM, round=1)
    asked.ask(asking(*ROWS))
    text = f"{VICTIM} was told round 1, we were told round 2"
    assert all(text in str(asked.errors[name]) for name in OTHERS), asked.errors


def test_absent_parties_are_not_waited_for(clear: Asked) -> None:
    clear.ask(asking(*ROWS, times=5), here=OTHERS, absent="mean", patience=1.0)
    assert not any(clear.errors.values()), clear.errors
    assert clear.seconds < 2 and not [event for event in clear.events if event["kind"] in ("finding", "warning")]


@pytest.mark.parametrize("protocol", ["clear", "vfedmh"])
def test_statements_that_are_withheld_are_found(trained: Callable[[str], Asked], protocol: str) -> None:
    def silence(item: Item) -> Iterator[Item]:
        if not (isinstance(item, Statement) and item.party == "party1"):
            yield item

    asked = trained(protocol)
    asked.ask(asking(*ROWS, times=30), at(silence))
    assert isinstance(asked.errors[VICTIM], TranscriptError)
