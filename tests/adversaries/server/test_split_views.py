"""A server that tells parties different things of the same round, or withholds, alters or repeats their statements.

Bounds: FedVS's shares (server); transcripts (server, party).
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from colonnade.client.member.pin import Pin
from colonnade.client.transcript.transcript import entry_of, salt_key, salted
from colonnade.common.aggregation.messages import Members
from colonnade.common.conversation.conversation import Carrier, Cohort
from colonnade.common.conversation.parcels import Item, Open, Relayed, Save, Statement
from colonnade.common.crypto.sealing import TranscriptError
from colonnade.common.errors import ContractError, EnvironmentFault
from colonnade.common.protocols.fedvs import Bundle, Gradient
from colonnade.common.protocols.split_avg import AverageGradient
from colonnade.common.protocols.vimadmm import Update
from colonnade.common.run.json_text import read_lines
from colonnade.simulation.federation import Outcome, RunFiles
from tests.adversaries.server.test_new_run_number import agreed, two_checkpoints
from tests.support.altered_lines import replace_each, wrap
from tests.support.federation import config, federate
from tests.support.lying_server import Liar, lying

pytestmark = pytest.mark.real_time

ROUNDS = ("federation.rounds=12", "federation.epochs=0", "federation.transcript.every=3")
PROTOCOLS: Mapping[str, Mapping[str, Any]] = {
    "clear": {"name": "vimadmm"},
    "blinded": {"name": "split_avg", "embedding": 4, "aggregate": "blinded"},
    "sealed": {"name": "fedvs", "embedding": 4, "stragglers": 0},
}
AVERAGED: Mapping[str, Any] = {"name": "split_avg", "embedding": 4}
VICTIM = "party2"

Alter = Callable[[Item], Iterator[Item]]


def at(cohort: Cohort, party: str, alter: Alter) -> None:
    """Has one party receive what `alter` makes of each item."""
    replace_each(cohort[party], alter)


def told(alter: Alter, protocol: str = "clear", *sets: str) -> Outcome:
    return federate(config(PROTOCOLS[protocol], *ROUNDS, *sets), on_cohort=lambda cohort: at(cohort, VICTIM, alter))


def altering(kind: type[Any], round: int, **changes: Callable[[Any], Any]) -> Alter:
    def alter(item: Item) -> Iterator[Item]:
        if isinstance(item, kind) and item.round == round:
            item = replace(item, **{name: change(item) for name, change in changes.items()})
        yield item

    return alter


@pytest.mark.parametrize(
    ("protocol", "alter", "text"),
    [
        ("clear", altering(Update, 5, dual=lambda item: item.dual * 2), "round 5: .* was told another Update than we"),
        ("average", altering(AverageGradient, 5, dh=lambda item: item.dh * 2), "round 5: .* another AverageGradient"),
        (
            "average",
            altering(AverageGradient, 5, shared=lambda _item: 3),
            "round 5: .* another AverageGradient than we",
        ),
        ("clear", altering(Save, 12, best=lambda _item: 7), "round 12: .* was told another Save than we were"),
        ("clear", altering(Save, 12, keep=lambda _item: 7), "round 12: .* was told another Save than we were"),
    ],
    ids=["an update", "an average's gradient", "an average of fewer", "a best round", "a kept checkpoint"],
)
def test_two_views_of_a_round_are_found(tmp_path: Path, protocol: str, alter: Alter, text: str) -> None:
    cfg = config(PROTOCOLS.get(protocol, AVERAGED), *ROUNDS)
    with pytest.raises(TranscriptError, match=text) as found:
        federate(cfg, on_cohort=lambda cohort: at(cohort, VICTIM, alter), files=RunFiles(tmp_path, cfg, Path()))
    error = found.value
    assert f"hash {error.theirs}, ours {error.ours}" in str(error) and error.theirs != error.ours
    assert "the server has told the parties different things" in error.hint


def test_a_finding_is_in_the_partys_record() -> None:
    outcomes: list[Any] = []
    alter = altering(Update, 5, dual=lambda item: item.dual * 2)

    class Kept:
        def pass_on(self, event: Any) -> None:
            outcomes.append(event)

    with pytest.raises(TranscriptError) as found:
        federate(config(PROTOCOLS["clear"], *ROUNDS), on_cohort=lambda c: at(c, VICTIM, alter), telemetry=Kept())
    findings = [event for event in outcomes if event["kind"] == "finding"]
    assert findings[0]["ends"] and VICTIM in (findings[0]["party"], findings[0]["other"])
    assert {"part": "Update", "round": 5}.items() <= findings[0].items()
    assert findings[0]["ours"] != findings[0]["theirs"] and str(found.value) in [f["reason"] for f in findings]


def test_two_gradients_of_one_coded_sum_are_found() -> None:
    """The hashes are salted with a secret of the parties here."""
    with pytest.raises(TranscriptError, match=r"round 5: .* was told another Gradient than we were"):
        told(altering(Gradient, 5, dh=lambda item: item.dh * 2), "sealed")


def test_two_sets_of_one_sum_have_different_hashes() -> None:
    sets = [Members(3, torch.tensor(members, dtype=torch.uint8)) for members in ([1, 1, 1, 1], [1, 1, 1, 0])]
    key = salt_key("run1", 1, b"secret")
    one, other = [salted(key, entry_of(members, 3, exact=True)) for members in sets]  # type: ignore[arg-type]
    assert one != other and one != salted(salt_key("run1", 2, b"secret"), entry_of(sets[0], 3, exact=True))  # type: ignore[arg-type]


def test_a_round_that_one_party_is_told_to_skip_is_found() -> None:
    names = config(PROTOCOLS["clear"]).federation.names

    def split(cohort: Cohort) -> None:
        def skip(item: Item) -> Iterator[Item]:
            if not (isinstance(item, Open) and item.round == 4):
                yield item

        at(cohort, VICTIM, skip)
        collect = cohort.collect

        async def without(kind: Any, round: int, quorum: Any, **more: Any) -> Any:
            if round == 4:  # the server does not wait for its victim
                return await collect(kind, round, replace(quorum, need=len(names) - 1), **more)
            return await collect(kind, round, quorum, **more)

        cohort.collect = without  # type: ignore[method-assign]

    with pytest.raises(TranscriptError, match=r"round 4 was (not )?opened at party\d, and (not )?at us") as found:
        federate(config(PROTOCOLS["clear"], *ROUNDS), on_cohort=split)
    assert (found.value.part, found.value.round) == ("Open", 4)


# Statements on their way.


def is_of(item: Item, party: str, number: int) -> bool:
    return isinstance(item, Statement) and item.party == party and json.loads(item.body)["number"] == number


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_withheld_statement_is_found(protocol: str, number: int) -> None:
    def drop(item: Item) -> Iterator[Item]:
        yield from () if is_of(item, "party1", number) else (item,)

    text = rf"has not relayed party1's statement number {number}, and has relayed number {number + 1}"
    with pytest.raises(TranscriptError, match=text) as found:
        told(drop, protocol)
    assert "the server withholds it, or party1 has not sent it" in found.value.hint


@pytest.mark.parametrize("after", [0, 2], ids=["all of them", "those after the second"])
def test_statements_that_stop_are_found_while_the_rounds_go_on(after: int) -> None:
    opened: list[int] = []

    def silence(item: Item) -> Iterator[Item]:
        if isinstance(item, Open):
            opened.append(item.round)
        if not (isinstance(item, Statement) and item.party == "party1" and json.loads(item.body)["number"] >= after):
            yield item

    with pytest.raises(TranscriptError, match=r"the server has not relayed party1's statement of rounds \d+ to \d+"):
        told(silence, "clear", "federation.rounds=40")
    assert opened[-1] < 30  # bounded: two windows and ten rounds


def test_a_final_statement_that_is_withheld_is_found() -> None:
    def drop(item: Item) -> Iterator[Item]:
        if not (isinstance(item, Statement) and item.party == "party1" and json.loads(item.body)["final"]):
            yield item

    with pytest.raises(TranscriptError, match=r"has not relayed party1's final statement, of rounds 10 to 12"):
        told(drop)


def test_a_slow_party_and_a_silent_server_look_alike_where_parties_may_be_slow() -> None:
    def silence(item: Item) -> Iterator[Item]:
        yield from () if isinstance(item, Statement) and item.party == "party1" else (item,)

    outcome = told(silence, "clear", "federation.quorum={fastest: 3}")
    (finding,) = outcome.of_kind("finding")
    assert not finding["ends"] and finding["party"] == VICTIM and finding["other"] == "party1"
    (warning,) = outcome.of_kind("warning")
    assert "has not relayed party1's final statement" in warning["reason"]


@pytest.mark.parametrize(
    ("alter", "text"),
    [
        (lambda said: replace(said, party="party3"), "number 1 again|was told|statement number"),
        (lambda said: replace(said, party="mallory"), "one of another party than those of the roster"),
        (lambda said: replace(said, body=b"{}"), "one that cannot be read"),
        (lambda said: replace(said, body=b"\xff"), "one that cannot be read"),
        (lambda said: replace(said, body=b"[" * 40_000), "one that cannot be read"),
        (lambda said: replace(said, body=b" " * 50_000), "one of 50000 bytes"),
        (
            lambda said: replace(said, body=said.body.replace(b'"round":0', b'"round":4')),
            "party1 was told round 4, we",
        ),
        (lambda said: replace(said, body=said.body.replace(b'"number":1,', b'"number":0,')), "number 0 again"),
    ],
    ids=["of another", "of a stranger", "empty", "garbage", "deep", "large", "another round", "repeated"],
)
def test_altered_statements_are_found(alter: Callable[[Statement], Statement], text: str) -> None:
    """Unsigned, as on loopback: the content alone shows it."""

    def lie(item: Item) -> Iterator[Item]:
        yield alter(item) if isinstance(item, Statement) and is_of(item, "party1", 1) else item

    with pytest.raises(TranscriptError, match=text):
        told(lie)


def frames(parties: int) -> int:
    """Frames of statements that each party of a run receives."""
    counts = Counter[str]()

    def counting(name: str, carry: Carrier) -> Carrier:
        def carried(item: Item) -> None:
            counts[name] += isinstance(item, Relayed)
            carry(item)

        return carried

    def count(cohort: Cohort) -> None:
        for name, link in cohort.items():
            wrap(link, partial(counting, name))

    cfg = config(PROTOCOLS["clear"], *ROUNDS, f"federation.parties={parties}")
    assert federate(cfg, on_cohort=count).status == "completed"
    assert len(counts) == parties and len(set(counts.values())) == 1
    return counts["party1"]


def test_statements_of_more_parties_take_no_more_frames_for_each() -> None:
    assert frames(3) == frames(8) == 5  # at the beginning, after three windows, and at the end


# Boxes.


def without_box(item: Item) -> Iterator[Item]:
    """A bundle of round 3 without the box of party1."""
    if isinstance(item, Bundle) and item.round == 3:
        lengths = item.lengths.clone()
        boxes, lengths[0] = item.boxes[int(lengths[0]) :], 0
        item = replace(item, boxes=boxes, lengths=lengths)
    yield item


def test_a_box_that_is_dropped_for_one_receiver_names_the_server_the_pair_and_the_round() -> None:
    outcome = told(without_box, "sealed", "federation.quorum={need: 3, grace: 5}")
    (finding,) = outcome.of_kind("finding")
    assert (finding["party"], finding["other"], finding["round"], finding["ends"]) == ("party1", VICTIM, 3, False)
    expected = f"the server did not pass on to {VICTIM}, or altered, the box that party1 sent it in round 3"
    assert finding["reason"].startswith(expected)
    assert any(f"unless {VICTIM} states falsely" in warning["reason"] for warning in outcome.of_kind("warning"))


def test_receipts_that_are_made_up_are_found() -> None:
    def lie(item: Item) -> Iterator[Item]:
        if isinstance(item, Statement) and item.party == "party1" and b'"boxes":{"' in item.body:
            content = json.loads(item.body)
            content["receipts"]["boxes"] = {name: [1, "00" * 32] for name in content["receipts"]["boxes"]}
            item = replace(item, body=json.dumps(content).encode())
        yield item

    with pytest.raises(TranscriptError, match=r"party1 states that it received other boxes than we sent it in rounds"):
        told(lie, "sealed")


# Real parties, over gRPC.


async def begin_again(there: Liar, round_of: Callable[[str], int]) -> None:
    """Goes back after two checkpoints, and tells every party a round of its own to go on from."""
    await two_checkpoints(there)
    there.hub.rewind("again")
    await there.hub.assemble(30)
    begin = type(there.hub)._start
    start = lambda hub, party, _round: begin(hub, party, round_of(party))  # noqa: E731
    there.hub._start = start.__get__(there.hub)  # type: ignore[method-assign]
    there.hub.begin([2], 2, there._between)


async def test_a_disk_that_refuses_a_round_ends_the_party_and_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server is not gone: the party neither waits for it nor dials again."""

    def refuse(_pin: Pin, _round: int) -> None:
        raise EnvironmentFault("the disk is full")

    async with lying(agreed(), tmp_path) as there:
        there.start()
        cohort = await there.begin("run1")
        await there.summing("run1")  # all parties attend
        monkeypatch.setattr(Pin, "enter", refuse)
        await anext(cohort.rounds(2))
        errors = await there.errors()
        assert {str(error) for error in errors.values()} == {"the disk is full"}


async def test_a_party_that_begins_from_another_checkpoint_is_named_by_the_others(tmp_path: Path) -> None:
    """All of them hold both checkpoints: each refuses to agree on keys with one that goes on from the other."""

    async with lying(agreed(), tmp_path) as there:
        await begin_again(there, lambda party: 1 if party == "party4" else 2)
        summing = asyncio.ensure_future(there.summing("run1"))
        errors = await there.errors()
        summing.cancel()
        said = {name: str(error) for name, error in errors.items()}
        assert any("party4 was told round 1, we were told round 2" in text for text in said.values()), said
        finding = [e for e in read_lines(there.home("party1") / "events.jsonl") if e["kind"] == "finding"]
        assert finding and (finding[0]["part"], finding[0]["ours"], finding[0]["theirs"]) == ("round", "2", "1")


async def test_a_party_refuses_a_round_of_which_it_has_no_checkpoint(tmp_path: Path) -> None:
    async with lying(agreed(), tmp_path) as there:
        await begin_again(there, lambda _party: 3)
        for error in (await there.errors()).values():
            assert isinstance(error, ContractError)
            assert "Begin.round: expected that of a checkpoint which" in str(error) and "(2, 1), got 3" in str(error)
