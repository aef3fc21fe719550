"""Participants of a prediction that permits absent parties: on the virtual clock."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from colonnade.common.conversation.parcels import Failure
from colonnade.common.errors import PartyFailed, PartyLost
from colonnade.server.prediction.run import PredictionSessions
from colonnade.server.prediction.terms import PredictionTerms
from tests.server.stage import Stage, stage


def asking(there: Stage, **how: Any) -> PredictionSessions:
    nothing: Any = None
    terms = PredictionTerms(**how)
    ctx: Any = SimpleNamespace(warn=nothing)  # unused here but for its warnings
    return PredictionSessions(
        terms, there.agreed, ctx, there.hub, store=nothing, owner=nothing, held=[], row_index=nothing, folder=Path()
    )


@pytest.mark.parametrize("absent", ["refuse", "mean"])
@pytest.mark.parametrize("patience", [3.0, None])
async def test_parties_have_the_configured_time(absent: str, patience: float | None) -> None:
    there = stage()
    with pytest.raises(PartyLost, match="did not join within"):
        await asking(there, absent=absent, patience=patience).gather()
    waited = there.agreed.timeouts.away if patience is None else patience
    assert asyncio.get_running_loop().time() == pytest.approx(waited)


async def test_a_failed_party_is_absent_if_allowed_and_the_others_are_waited_for() -> None:
    there = stage()
    gathering = asyncio.create_task(asking(there, absent="mean", patience=9).gather())
    await asyncio.sleep(0)
    (ada,) = await there.join("ada")
    ada.arrive(Failure("", "its table has changed"))
    await asyncio.sleep(2)
    assert not gathering.done()
    await there.join("bob")
    assert await gathering == ("bob",) and asyncio.get_running_loop().time() == pytest.approx(2)


async def test_a_failed_party_ends_the_run_if_absence_is_not_allowed() -> None:
    there = stage()
    (ada,) = await there.join("ada")
    ada.arrive(Failure("", "its table has changed"))
    with pytest.raises(PartyFailed, match="ada failed: its table has changed"):
        await asking(there).gather()


async def test_a_connected_party_without_an_answer_is_left_out_if_allowed_and_may_come_back() -> None:
    there = stage()
    await there.join("ada", "bob")
    sessions = asking(there, absent="mean", patience=5)
    sessions.leave_out(silent("bob"))
    assert await sessions.gather() == ("ada",) and asyncio.get_running_loop().time() == 0
    await asyncio.sleep(5)
    assert await sessions.gather() == ("ada", "bob")


@pytest.mark.parametrize(("absent", "who"), [("refuse", "bob"), ("mean", "ada, bob")])
async def test_a_party_without_an_answer_ends_the_run_if_nothing_can_replace_it(absent: str, who: str) -> None:
    there = stage()
    await there.join("ada", "bob")
    with pytest.raises(PartyLost, match="no Output") as raised:
        asking(there, absent=absent).leave_out(silent(who))
    assert "--absent mean" in raised.value.hint


def silent(party: str) -> PartyLost:
    return PartyLost(party, "no Output for round 4 within 60 s")
