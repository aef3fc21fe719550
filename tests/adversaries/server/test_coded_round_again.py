"""A server that goes back to a checkpoint and sums a round of FedVS again over another set: no party answers.

Bounds: FedVS's shares (server).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from colonnade.common.conversation.conversation import SERVER
from colonnade.common.protocols.fedvs import Answer, Senders
from colonnade.common.run.run_cache import RunCache
from tests.support.federation import Outcome, config, federate

PROTOCOL = {"name": "fedvs", "embedding": 8, "segments": 1}
SETS = (
    "federation.rounds=4",
    "federation.epochs=0",
    "federation.evaluate.every=99",
    "federation.quorum={need: 3, grace: 0.5}",
)
LATE = "parties.party4.chaos.delay={Shares: 3s}"


@pytest.fixture
def disks(tmp_path: Path) -> dict[str, Path]:
    """Members' folders, which last from one start of the run to the next."""
    return {name: tmp_path / name for name in (SERVER, "party1", "party2", "party3", "party4")}


def run(disks: dict[str, Path], *sets: str, **how: Any) -> Outcome:
    caches = {name: RunCache(folder) for name, folder in disks.items()}
    return federate(config(PROTOCOL, *SETS, *sets), caches=caches, **how)


def announced(outcome: Outcome) -> dict[tuple[int, int], list[int]]:
    """The set of senders of every stage."""
    return {(m.round, m.stage): m.senders.tolist() for _, _, m in outcome.messages if isinstance(m, Senders)}


def forget(folder: Path) -> None:
    """Removes a member's record of its sets."""
    for file in folder.glob("members*"):
        file.unlink()


def test_a_server_that_rolls_back_and_sums_over_all_others_gets_no_response(disks: dict[str, Path]) -> None:
    """First over all four, then over three: the difference would be the fourth's embeddings."""
    before = run(disks, save=True)
    assert set(map(tuple, announced(before).values())) == {(1, 1, 1, 1)}
    forget(disks[SERVER])
    after = run(disks, LATE, start=(2, before.saved[2]))
    assert announced(after)[3, 0] == [1, 1, 1, 0]  # the server tried
    assert [m for _, _, m in after.messages if isinstance(m, Answer) and len(m.h)] == []
    assert [event["round"] for event in after.of_kind("skipped")] == [3, 4]
    (warning,) = [e for e in after.of_kind("warning") if e["party"] == "party1" and "round 3" in e["reason"]]
    assert "may have been summed over party1, party2, party3, party4" in warning["reason"]


def test_a_refusing_party_does_not_block_the_responses_of_others(disks: dict[str, Path]) -> None:
    """It alone knows of another set: as far as it can tell, it was present while the others were absent."""
    before = run(disks, save=True)
    for name in (SERVER, "party1", "party2", "party3"):
        forget(disks[name])
    after = run(disks, LATE, start=(2, before.saved[2]))
    assert {by for by, _, m in after.messages if isinstance(m, Answer) and not len(m.h)} == {"party4"}
    assert [event["round"] for event in after.of_kind("round")] == [3, 4] and not after.of_kind("skipped")


def test_a_server_of_ours_goes_over_the_same_sets_again(disks: dict[str, Path]) -> None:
    """The party that was late is in time the second time, and is still left out."""
    before = run(disks, LATE, save=True)
    after = run(disks, start=(2, before.saved[2]))
    assert {place: members for place, members in announced(before).items() if place[0] > 2} == announced(after)
    assert announced(after)[3, 0] == [1, 1, 1, 0]
    assert not after.of_kind("skipped")


def test_a_repeated_round_over_all_parties_waits_for_all_of_them(disks: dict[str, Path]) -> None:
    before = run(disks, save=True)
    after = run(disks, LATE, start=(2, before.saved[2]))
    assert set(map(tuple, announced(after).values())) == {(1, 1, 1, 1)}
    assert not after.of_kind("skipped")


def test_a_round_that_cannot_have_its_set_again_is_given_up(disks: dict[str, Path]) -> None:
    before = run(disks, save=True)
    silent = "parties.party4.chaos.delay={Shares: 500s}"
    after = run(disks, silent, "federation.timeouts.answer=5", start=(2, before.saved[2]))
    assert announced(after) == {}
    assert [event["round"] for event in after.of_kind("skipped")] == [3, 4]
    assert {event["party"] for event in after.of_kind("abandoned")} == {"party4"}
