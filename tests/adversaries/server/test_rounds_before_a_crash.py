"""Another answer for one party, and a crash before the parties' next statement: no transcript has the round.

A server can end a session when it likes. Nothing then compares what it told of rounds since the last statement.

Bounds: transcripts (server).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from colonnade.common.conversation.parcels import Item, Open
from colonnade.common.crypto.sealing import TranscriptError
from colonnade.common.protocols.vimadmm import Update
from colonnade.simulation.federation import Outcome, Simulation
from tests.support.altered_lines import change_each
from tests.support.federation import config, federate

VICTIM, EVERY, LIED, ROUNDS = "party2", 5, 7, 12
AGREED = config(
    {"name": "vimadmm"}, f"federation.rounds={ROUNDS}", "federation.epochs=0", f"federation.transcript.every={EVERY}",
    "federation.batch=100", "federation.evaluate.every=99",
)  # fmt: skip


class Crash(Exception):
    """The server's end, in the middle of a run."""


def crashed(after: int, lied: int = LIED) -> Outcome:
    """A run that lies to one party in a round, and ends when this many rounds are done."""

    def alter(cohort: Any) -> None:
        def told(item: Item) -> Item:
            if item == Open(after + 1):
                raise Crash
            return replace(item, dual=2 * item.dual) if isinstance(item, Update) and item.round == lied else item

        change_each(cohort[VICTIM], told)

    run = Simulation(AGREED, record=True, save=True, on_cohort=alter)
    with pytest.raises(Crash):
        run.run()
    assert run.outcome is not None
    return run.outcome


@pytest.mark.parametrize("after", range(LIED, 2 * EVERY))
def test_rounds_since_the_last_statement_are_not_compared(after: int) -> None:
    """The run goes on from a checkpoint behind the lie, and ends without a finding."""
    before = crashed(after)
    again = federate(AGREED, start=(after, before.saved[after]))
    assert [e["round"] for e in again.of_kind("round")][-1] == ROUNDS
    assert not before.of_kind("finding") and not again.of_kind("finding")


@pytest.mark.parametrize("lied", range(1, EVERY + 1))
def test_those_of_the_window_before_are_found(lied: int) -> None:
    """Before the crash: what a server can hide is at most one window, and the rounds that a statement is on its way."""
    with pytest.raises(TranscriptError, match=f"round {lied}: .* was told another Update than we were"):
        crashed(EVERY + 2, lied)
