"""Connections and links that are over leave their counts behind, and nothing else."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

import pytest

from colonnade.common.conversation.conversation import Link
from colonnade.common.wire.connection import Connection
from colonnade.server.member.traffic import Totals
from tests.adversaries.server.test_disturbed_lines import tried
from tests.support.relay import Fault

CUTS = (
    Fault("cut", "Gradient", "party1", 0),
    Fault("cut", "Gradient", "party2", 1),
    Fault("cut", "Gradient", "party1", 2),
    Fault("cut", "Gradient", "party3", 2),
)


def test_a_run_with_many_sessions_keeps_the_present_ones_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them holds buffers, tasks and what gRPC keeps of a stream: 40 kB an end, as long as a member lives."""
    alive: dict[type, WeakSet[Any]] = {Connection: WeakSet(), Link: WeakSet()}
    made: dict[type, int] = {Connection: 0, Link: 0}
    at_the_end: list[dict[type, int]] = []

    def noting(kind: type) -> Callable[..., None]:
        init = kind.__init__  # type: ignore[misc]

        def note(self: Any, *args: Any, **more: Any) -> None:
            init(self, *args, **more)
            alive[kind].add(self)
            made[kind] += 1

        return note

    summary = Totals.summary

    def counted(self: Totals) -> dict[str, Any]:
        gc.collect()
        at_the_end.append({kind: len(those) for kind, those in alive.items()})
        return summary(self)

    for kind in alive:
        monkeypatch.setattr(kind, "__init__", noting(kind))
    monkeypatch.setattr(Totals, "summary", counted)
    end = tried(*CUTS)
    assert end.relay.struck == set(CUTS) and set(end.errors.values()) == {None}
    assert made[Connection] >= 8 + 2 * len(CUTS) and made[Link] >= 3 * 8
    (kept,) = at_the_end
    assert kept[Connection] <= 8 and kept[Link] <= 8  # both ends of four
