"""Joining, membership and loss of parties: without a network and on the virtual clock."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
import torch

from colonnade.common.config.federation import PINS
from colonnade.common.config.run_options import Quorum
from colonnade.common.conversation.parcels import (
    WIRE_VERSION,
    Begin,
    Failure,
    Farewell,
    Open,
    Parcel,
    Preparing,
    Refusal,
    Welcome,
)
from colonnade.common.errors import ContractError, PartyAway, PartyFailed, PartyLost, RefusedError
from colonnade.common.protocols.split import Embedding
from colonnade.common.version import VERSION, read_version
from colonnade.common.wire.codec import Codec
from colonnade.common.wire.frame import FRAME_ALLOWANCE, pack
from colonnade.server.member.summary import other_versions
from tests.server.stage import RUN, close, federation, hello, in_session, refused, stage
from tests.support.patience import PATIENCE

# Joining.


async def test_a_party_is_welcomed_and_sent_begin_once_all_have_joined() -> None:
    there = stage()
    (ada,) = await there.join("ada")
    assembling = asyncio.create_task(there.assemble(60))
    await asyncio.sleep(5)
    assert ada.posted == [(0, Welcome())] and not assembling.done()
    (bob,) = await there.join("bob")
    cohort = await assembling
    assert list(cohort) == ["ada", "bob"]
    begin = Begin(there.hub.session, ("ada", "bob"), RUN, 0)
    assert [one.posted[-1] for one in (ada, bob)] == [(0, begin)] * 2
    assert begin.session > 0 and [one.session for one in (ada, bob)] == [begin.session] * 2
    assert there.logged("join") == [{"party": "ada", "joined": 1, "of": 2}, {"party": "bob", "joined": 2, "of": 2}]
    assert not there.logged("refused")


async def test_the_cohort_is_in_the_rosters_order_and_not_in_that_of_coming() -> None:
    there = stage()
    await there.join("bob", "ada")
    assert list(await there.assemble(1)) == ["ada", "bob"]


WIRE = f"wire {WIRE_VERSION}"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"party": "adda"}, "no party 'adda' is in the roster (did you mean 'ada'?)"),
        ({"party": "x" * 5000}, f"no party '{'x' * 80}' is in the roster"),
        ({"federation": "other"}, "'ada' is of federation 'other', this is 'test'"),
        ({"version": "0.0.9"}, f"'ada' runs Colonnade 0.0.9 ({WIRE}), the server {VERSION} ({WIRE})"),
        ({"wire": 1}, f"'ada' runs Colonnade {VERSION} (wire 1), the server {VERSION} ({WIRE})"),
        ({"rows": 99}, "'ada' has 99 rows (20 of them a test part), the labels have 100 rows (20 of them a test part)"),
        ({"official_test": 0}, "'ada' has 100 rows, the labels have 100 rows (20 of them a test part)"),
        (
            {"config": {}},
            "'ada' has another federation section; it differs in absence, adjust.confidence",
        ),
    ],
    ids=["unknown", "endless name", "federation", "version", "wire", "rows", "test part", "no config"],
)
async def test_a_party_that_disagrees_is_sent_the_differences(wrong: dict[str, Any], said: str) -> None:
    there = stage()
    connection = await there.come(replace(hello(), **wrong))
    assert isinstance(connection.last, Refusal) and connection.last.reason.startswith(said)
    assert connection.closed.is_set() and not there.hub.members
    assert there.logged("refused")[0]["reason"] == connection.last.reason


RELEASE = read_version(VERSION)
assert RELEASE is not None
PATCH = f"{RELEASE.major}.{RELEASE.minor}.{RELEASE.patch + 7}"


async def test_another_release_of_the_series_is_admitted_and_reported_once() -> None:
    there = stage()
    for _ in range(3):
        connection = await there.come(replace(hello(), version=PATCH))
        assert connection.last == Welcome()
    await there.join("bob")
    reason = f"runs Colonnade {PATCH}, the server {VERSION}: releases of one series"
    assert there.logged("warning") == [{"party": "ada", "reason": reason}]
    assert there.hub.versions.others == {"ada": PATCH}


def test_the_summary_lists_other_versions_alone() -> None:
    assert other_versions({"bob": PATCH, "ada": PATCH}) == {"other versions": f"ada {PATCH}, bob {PATCH}"}
    assert other_versions({}) == {}


STRANGE = {
    "empty": "",
    "another series": "0.9.0",
    "a word": "latest",
    "two parts": "0.2",
    "four parts": "0.2.0.1",
    "a sign": "0.-2.0",
    "white space": "0.2.0 ",
    "a line end": "0.2.0\n",
    "digits of another script": "\u0660.\u0662.\u0660",
    "superscript": "0.\u00b2.0",
    "full width": "\uff10.\uff12.\uff10",
    "leading zeros": "0.02.0",
    "a huge number": "0.2." + "9" * 5000,
    "a huge suffix": "0.2.0.dev" + "9" * 5000,
    "another suffix": "0.2.0+local",
    "an epoch": "1!0.2.0",
    "escapes": "0.2.0\x1b[2J\u202e",
    "underscores": "0.2_0.0",
}


@pytest.mark.parametrize("version", STRANGE.values(), ids=STRANGE)
async def test_a_strange_version_is_refused_with_a_short_escaped_text(version: str) -> None:
    answer = await refused(stage(), replace(hello(), version=version))
    assert answer.reason.isprintable() and len(answer.reason) < 250
    assert f"the server {VERSION}" in answer.reason and answer.hint.endswith("goes with the server")


async def test_another_wire_version_is_refused_within_a_series() -> None:
    answer = await refused(stage(), replace(hello(), version=PATCH, wire=WIRE_VERSION + 1))
    assert f"(wire {WIRE_VERSION + 1})" in answer.reason


async def test_a_different_configuration_is_reported_by_its_keys() -> None:
    other = federation(batch=16, protocol={"name": "split", "embedding": 30})
    answer = await refused(stage(), hello(of=other))
    assert answer.reason == "'ada' has another federation section; it differs in batch, protocol.embedding"
    assert answer.hint == "give every member the same federation section"


async def test_another_order_of_the_roster_is_another_configuration() -> None:
    answer = await refused(stage(), hello(of=federation(parties=["bob", "ada"])))
    assert answer.reason.endswith("it differs in parties")


PIN, OTHER = f"sha256:{'ab' * 32}", f"sha256:{'cd' * 32}"


@pytest.mark.parametrize(
    ("theirs", "said"),
    [
        ({"ada": "", "bob": OTHER}, "it differs in parties.bob"),
        ({"ada": PIN, "bob": OTHER}, "it differs in parties.ada, parties.bob"),
        ({"bob": PIN, "ada": ""}, "it differs in parties"),
        ({"ada": "", "bob": PIN, "cyd": ""}, "it differs in parties"),
    ],
)
async def test_a_certificate_that_differs_is_named_without_a_hash_of_each(theirs: dict[str, str], said: str) -> None:
    answer = await refused(stage(federation({"ada": "", "bob": PIN})), hello(of=federation(theirs)))
    assert answer.reason.endswith(said)


async def test_certificates_that_differ_behind_equal_digits_are_refused_too() -> None:
    """The digits only name: what is compared is the hash of all."""
    ours, digits = federation().stated(), 64
    stated = {**ours, PINS: "0" * digits + ours[PINS][digits:]}
    answer = await refused(stage(), replace(hello(), config=stated))
    assert answer.reason.endswith("it differs in parties.*")


def test_a_greeting_of_four_thousand_parties_is_far_below_the_bound() -> None:
    """Two bytes a party, and a constant for the section's other values."""
    sizes = {}
    for count in (10, 1000, 4000):
        names = {f"company{number}": PIN for number in range(count)}
        sizes[count] = len(pack(hello(of=federation(names)), 0, Codec({})))
    assert sizes[4000] - sizes[1000] == 2 * 3000
    assert sizes[1000] - sizes[10] <= 2 * 990 + 4
    assert sizes[4000] < FRAME_ALLOWANCE / 3


async def test_a_party_that_joins_again_takes_the_place_of_its_dead_connection() -> None:
    there = stage()
    (first,) = await there.join("ada")
    (second,) = await there.join("ada")
    assert first.last == Refusal("'ada' has joined over another connection")
    await asyncio.wait_for(first.closed.wait(), PATIENCE)
    assert second.last == Welcome() and not second.closed.is_set()
    assert there.hub.members["ada"].connection is second  # type: ignore[comparison-overlap]


async def test_joining_a_finished_run_is_refused() -> None:
    there = stage()
    ada, bob = await there.join("ada", "bob")
    close(await there.assemble(1))
    for one in (ada, bob):
        one.arrive(Farewell())
    await there.hub.part(1)
    answer = await there.come(hello())
    assert answer.last == Refusal("'ada': the run is over", "begin a new run")


async def test_checkpoints_of_another_run_are_refused() -> None:
    answer = await refused(stage(), replace(hello(), run="other", held=(3,)))
    assert answer.reason == "'ada' holds records of run other, this is run a-run"


async def test_a_roster_that_is_incomplete_at_the_deadline_names_everyone_missing() -> None:
    there = stage(federation(parties=["ada", "bob", "cyd"]))
    await there.join("bob")
    begin = asyncio.get_running_loop().time()
    with pytest.raises(PartyLost, match="ada, cyd was lost: did not join within 30 s") as gone:
        await there.assemble(30)
    assert asyncio.get_running_loop().time() - begin == pytest.approx(30)
    assert "start the missing parties" in gone.value.hint


async def test_a_party_that_leaves_before_the_beginning_may_return() -> None:
    there = stage()
    first, _ = await there.join("ada", "bob")
    first.lose(PartyAway("ada", "its connection broke"))
    assert there.logged("leave") == [{"party": "ada", "reason": "ada was lost: its connection broke"}]
    with pytest.raises(PartyLost, match="ada was lost: did not join within 1 s"):
        await there.assemble(1)
    (again,) = await there.join("ada")
    first.lose(PartyAway("ada", "an echo"))
    first.arrive(Failure("", "an echo"))
    cohort = await there.assemble(1)
    assert isinstance(again.last, Begin) and list(cohort) == ["ada", "bob"]
    again.arrive(Embedding(1, torch.ones(2, 2)))
    answers = await cohort.collect(Embedding, 1, Quorum(need=1))
    assert list(answers) == ["ada"]


async def test_a_silent_connection_is_refused_after_ten_seconds() -> None:
    answer = await refused(stage(), None)
    assert answer.reason == "no Hello came within 10 s"
    assert asyncio.get_running_loop().time() == pytest.approx(10)


@pytest.mark.parametrize(
    ("first", "said"),
    [
        (Farewell(), "the other end sent a frame: expected a Hello first, got Farewell"),
        (Embedding(1, torch.ones(1, 1)), "the other end sent a frame: expected a Hello first, got Embedding"),
        (PartyAway("the other end", "the connection was closed"), "its connection broke"),
        (ContractError("the other end", "a frame", "", "x", "y"), "the other end sent a frame: expected x, got y"),
    ],
    ids=["farewell", "message", "gone", "malformed"],
)
async def test_a_connection_without_hello_is_refused(first: Parcel | Exception, said: str) -> None:
    noted = str(first) if isinstance(first, Exception) else said
    assert (await refused(stage(), first, noted=noted)).reason == said


# During a session.


async def test_a_party_that_sends_hello_in_a_run_is_cut_off() -> None:
    there, ada, _bob = await in_session()
    ada.arrive(hello())
    await asyncio.wait_for(ada.closed.wait(), PATIENCE)
    assert ada.last == Refusal("'ada': it sent Hello out of turn")
    with pytest.raises(RefusedError, match="'ada' was cut off: it sent Hello out of turn"):
        await there.cohort.collect(Embedding, 1, Quorum())
    assert there.logged("refused") == [{"party": "ada", "reason": "it sent Hello out of turn"}]


@pytest.mark.parametrize("parcel", [Farewell(), Begin(1), Open(1), Refusal("x")], ids=lambda p: type(p).__name__)
async def test_a_party_that_sends_before_the_beginning_is_cut_off(parcel: Parcel) -> None:
    there = stage()
    ada, _bob = await there.join("ada", "bob")
    ada.arrive(parcel)
    await asyncio.wait_for(ada.closed.wait(), PATIENCE)
    assert list(there.hub.members) == ["bob"]
    assert there.logged("refused")[0]["reason"] == f"it sent {type(parcel).__name__} out of turn"


async def test_a_party_that_fails_is_heard_in_its_own_words() -> None:
    there, ada, bob = await in_session()
    ada.arrive(Failure("", "no space left on device", "make room"))
    ada.lose(PartyAway("ada", "the connection was closed"))
    with pytest.raises(PartyFailed, match="ada failed: no space left on device") as failed:
        await there.cohort.collect(Embedding, 1, Quorum())
    assert failed.value.hint == "make room"
    assert there.logged("failed") == [{"party": "ada", "reason": "no space left on device"}]
    there.hub.say_failure("ada", failed.value)
    assert bob.last == Failure("ada", "no space left on device", "make room")
    assert isinstance(ada.last, Begin)


async def test_a_party_lost_in_a_run_is_reported_and_missed() -> None:
    there, ada, bob = await in_session()
    ada.lose(PartyAway("ada", "the connection was closed"))
    bob.arrive(Embedding(1, torch.ones(2, 2)))
    answers = await there.cohort.collect(Embedding, 1, Quorum(need=1, grace=5))
    assert answers.missing == ("ada",)
    assert [event["party"] for event in there.logged("leave")] == ["ada"]


@pytest.mark.parametrize("begun", [False, True], ids=["before Begin", "after it"])
async def test_a_party_that_prepares_its_table_is_waited_for_and_told_of_once(begun: bool) -> None:
    there = stage()
    ada, bob = await there.join("ada", "bob")
    if begun:
        await there.assemble(1)
    for _ in range(3):
        ada.arrive(Preparing())
    if not begun:
        await there.assemble(1)
    bob.arrive(Embedding(1, torch.ones(2, 2)))
    asyncio.get_running_loop().call_later(150, ada.arrive, Embedding(1, torch.ones(2, 2)))
    assert len(await there.cohort.collect(Embedding, 1, Quorum(limit=10))) == 2
    assert there.logged("preparing") == [{"party": "ada"}]
    ada.arrive(Preparing())
    bob.arrive(Embedding(2, torch.ones(2, 2)))
    with pytest.raises(PartyLost, match="within 10 s"):
        await there.cohort.collect(Embedding, 2, Quorum(limit=10))


async def test_a_message_that_breaks_its_contract_names_the_party() -> None:
    there, ada, _bob = await in_session()
    ada.arrive(Embedding(1, torch.ones(9, 60)))
    with pytest.raises(ContractError, match=r"ada sent Embedding.h: expected rows <= 8"):
        await there.cohort.collect(Embedding, 1, Quorum())


async def test_late_messages_are_logged_and_counted() -> None:
    there, ada, bob = await in_session()
    async for round in there.cohort.rounds(2):
        bob.arrive(Embedding(round, torch.ones(2, 2)))
        if round == 2:
            for late in (1, 2):
                ada.arrive(Embedding(late, torch.ones(2, 2)))
        await there.cohort.collect(Embedding, round, Quorum(need=round))
    assert there.logged("late") == [{"party": "ada", "kind_of": "Embedding", "round": 1, "now": 2}]
    assert there.hub.totals.late == {"ada": 1}


async def test_a_party_lost_while_nobody_is_waited_for_is_noticed_at_once() -> None:
    there, ada, _bob = await in_session()
    watching = asyncio.create_task(there.hub.watch_absence())
    await asyncio.sleep(7)
    assert not watching.done()
    ada.lose(PartyAway("ada", "the connection was closed"))
    with pytest.raises(PartyAway, match="ada was lost"):
        await watching
    assert asyncio.get_running_loop().time() == pytest.approx(7)


async def test_a_failed_party_is_missed_until_it_is_excused() -> None:
    there = stage()
    ada, _bob = await there.join("ada", "bob")
    ada.arrive(Failure("", "its table has changed"))
    assert there.hub.here == ("bob",)
    with pytest.raises(PartyFailed, match="ada failed: its table has changed"):
        await there.assemble(1)
    there.hub.excuse("ada")
    await there.hub.assemble(1, ["bob"])
    await there.join("ada")
    assert list(await there.assemble(1)) == ["ada", "bob"]


# Parting.


async def test_parting_waits_for_every_farewell_and_no_longer() -> None:
    there = stage()
    ada, bob = await there.join("ada", "bob")
    close(await there.assemble(1))
    parting = asyncio.create_task(there.hub.part(10))
    ada.arrive(Farewell())
    await asyncio.sleep(2)
    assert not parting.done() and ada.last == bob.last == Farewell()
    bob.arrive(Farewell())
    await parting
    assert asyncio.get_running_loop().time() == pytest.approx(2)
    assert ada.closed.is_set() and bob.closed.is_set() and not there.logged("leave")


async def test_parting_does_not_wait_for_parties_that_joined_too_late() -> None:
    there = stage()
    close(there.hub.begin([], 0, _nothing, names=[n for n in ("ada",) if await there.join(n)])[0])
    (bob,) = await there.join("bob")
    parting = asyncio.create_task(there.hub.part(10))
    await asyncio.sleep(1)
    assert bob.last == Farewell()
    there.hub.members["ada"].connection.arrive(Farewell())  # type: ignore[attr-defined]  # of a fake one
    bob.arrive(Farewell())
    await parting
    assert asyncio.get_running_loop().time() == pytest.approx(1) and bob.closed.is_set()
    assert not there.logged("refused") and not there.logged("leave")


async def _nothing(_round: int) -> None:
    pass


async def test_parting_does_not_wait_for_silent_or_lost_parties() -> None:
    there, ada, bob = await in_session()
    ada.lose(PartyAway("ada", "the connection was closed"))
    await there.hub.part(10)
    assert asyncio.get_running_loop().time() == pytest.approx(10)
    assert bob.closed.is_set()
    assert [event["party"] for event in there.logged("leave")] == ["ada"]
