"""A server that gives a run or a session another number, or begins anew, to sum a round again without one party.

Bounds: blinded sums (server); checkpoints, sessions (server, both).
"""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest

from colonnade.common.config.members import Config
from colonnade.common.conversation.parcels import Save
from colonnade.common.errors import CheckpointError, ContractError, PeerError
from colonnade.common.run.checkpoints import Checkpoints
from colonnade.common.run.json_text import read_lines
from tests.support.federation import config
from tests.support.lying_server import Liar, lying

pytestmark = pytest.mark.real_time

SETS = ("federation.quorum={need: 3, grace: 0.5}", "federation.batch=64", "federation.timeouts={answer: 20, away: 20}")
VICTIM = "party4"


def agreed() -> Config:
    return config({"name": "vfedmh", "embedding": 8}, *SETS)


async def summed(there: Liar, run: str) -> None:
    """The first session: round 1 over all parties."""
    await there.begin(run)
    assert await there.sum(run, there.config.federation.names) is not None


async def two_checkpoints(there: Liar) -> None:
    """The first session: two rounds over all parties, and a checkpoint of each."""
    there.start()
    await there.begin("run1")
    sums = await there.summing("run1")
    rounds = there.cohort.rounds(4)
    for number in (1, 2):
        assert await anext(rounds) == number
        await sums.training(number, sums.ctx.schedule.batch(number))
        there.hub.request_save(Save(number, keep=number - 1))  # while the one before may still be written
    await anext(rounds)
    await there.kept(2)


def others(there: Liar) -> list[str]:
    return [name for name in there.config.federation.names if name != VICTIM]


def left(there: Liar) -> list[int]:
    """Number of releases of each party, from its ledger."""
    ledgers = [read_lines(there.home(name) / "ledger.jsonl") for name in there.config.federation.names]
    return [sum("control" not in line for line in ledger) for ledger in ledgers]


@pytest.mark.parametrize(
    ("run", "restarted"),
    [("run2", False), *((run, True) for run in ("run2", "run1 9", "", "x" * 65, "run1 1 32"))], ids=str,
)  # fmt: skip
async def test_another_run_in_the_same_folder_is_refused_by_every_party(
    tmp_path: Path, run: str, restarted: bool
) -> None:
    async with lying(agreed(), tmp_path) as there:
        there.start()
        await summed(there, "run1")
        before = left(there)
        await there.again(restarted=restarted)
        with pytest.raises(PeerError):  # the sum over the others, which would show what the victim sent
            await there.begin(run)
            await there.sum(run, others(there))
        for name, error in (await there.errors()).items():
            assert isinstance(error, CheckpointError | ContractError)
            if run == "run2":
                assert f"{there.home(name)} holds records of run run1, and the server begins run run2" in str(error)
                assert isinstance(error, CheckpointError) and "choose another --out" in error.hint
        assert left(there) == before
        assert json.loads((there.home(VICTIM) / "pinned.json").read_text())["run"] == "run1"


@pytest.mark.parametrize("session", [1, 0], ids=["the same", "an older one"])
async def test_a_session_that_is_no_newer_is_refused(tmp_path: Path, session: int) -> None:
    async with lying(agreed(), tmp_path) as there:
        there.start()
        await summed(there, "run1")
        await there.stop()
        there.start()
        there.numbers.next = session
        with pytest.raises(PeerError):
            await there.begin("run1")
            await there.sum("run1", others(there))
        for error in (await there.errors()).values():
            assert isinstance(error, ContractError) and "Begin.session: expected more than 1" in str(error)


async def test_before_a_checkpoint_is_committed_the_run_may_begin_anew_and_rounds_keep_their_sets(
    tmp_path: Path,
) -> None:
    async with lying(agreed(), tmp_path) as there:
        there.start()
        await summed(there, "run1")
        there.hub.request_save(Save(1))
        for restarted in (False, True):
            await there.again(restarted=restarted)
            await there.begin("run1")
            assert await there.sum("run1", others(there)) is None
        assert any("nothing is sent for it over another set" in reason for reason in there.warnings("party1"))


@pytest.mark.parametrize("restarted", [False, True], ids=["rewound", "restarted"])
async def test_the_beginning_is_refused_once_a_checkpoint_was_committed(tmp_path: Path, restarted: bool) -> None:
    async with lying(agreed(), tmp_path) as there:
        await two_checkpoints(there)
        await there.again(restarted=restarted)
        with pytest.raises(PeerError):
            await there.begin("run1")
            await there.sum("run1", there.config.federation.names)
        for error in (await there.errors()).values():
            assert isinstance(error, ContractError) and "Begin.round: expected a checkpoint's" in str(error)


async def test_a_slow_checkpoint_does_not_remove_the_one_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prune = Checkpoints.prune

    def slow(store: Checkpoints, keep: set[int]) -> None:
        if 1 in keep and 2 not in keep:
            time.sleep(0.3)  # while the server asks for the checkpoint of round 2
        prune(store, keep)

    monkeypatch.setattr(Checkpoints, "prune", slow)

    async with lying(agreed(), tmp_path) as there:
        await two_checkpoints(there)
        await asyncio.sleep(0.5)
        stores = [Checkpoints(there.home(name) / "checkpoints") for name in there.parties]
        assert [store.usable() for store in stores] == [[2, 1]] * len(stores)


@pytest.mark.parametrize("restarted", [False, True], ids=["rewound", "restarted"])
async def test_a_party_that_goes_back_drops_its_checkpoints_of_later_rounds(tmp_path: Path, restarted: bool) -> None:
    """They may be of a divergence: one that stays would be taken for the new one of the same round."""

    async with lying(agreed(), tmp_path) as there:
        await two_checkpoints(there)
        stores = [Checkpoints(there.home(name) / "checkpoints") for name in there.parties]
        assert [store.usable() for store in stores] == [[2, 1]] * len(stores)
        await there.again(restarted=restarted)
        await there.begin("run1", round=1)
        waiting = set(there.parties)
        while waiting:  # a party says that it has begun after it has dropped them
            event = await there.events.get()
            if event["kind"] == "begin" and event["round"] == 1:
                waiting.remove(event["party"])
        assert [store.usable() for store in stores] == [[1]] * len(stores)
