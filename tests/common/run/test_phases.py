"""Every second of a protocol side is in one phase."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colonnade.common.conversation.inprocess import run_virtual
from colonnade.common.conversation.mailbox import Mailbox
from colonnade.common.run.phases import CHECKPOINT, COMPUTING, EVALUATION, WAITING, Phases

ALL = (COMPUTING, WAITING, EVALUATION, CHECKPOINT)


class Clock:
    def __init__(self) -> None:
        self.now = 5.0

    def __call__(self) -> float:
        return self.now


STEP = st.tuples(st.sampled_from(["", *ALL]), st.integers(0, 100))


@given(st.lists(STEP))
def test_all_time_is_counted_once_and_none_outside_of_phases(steps: list[tuple[str, int]]) -> None:
    clock = Clock()
    phases, before = Phases(*ALL, clock=clock), dict.fromkeys(ALL, 0.0)
    for phase, seconds in steps:
        phases.turn(phase)
        clock.now += seconds
        now = phases.seconds()
        assert all(now[name] >= before[name] for name in ALL)
        before = now
    assert before == {name: sum(seconds for phase, seconds in steps if phase == name) for name in ALL}


def test_a_nested_phase_is_part_of_the_outer_one() -> None:
    clock = Clock()
    phases = Phases(COMPUTING, WAITING, EVALUATION, clock=clock)
    for base in ("", COMPUTING, EVALUATION):
        phases.turn(base)
        clock.now += 1
        with phases.aside(WAITING):
            clock.now += 10
        clock.now += 100
    assert phases.seconds() == {COMPUTING: 101.0, WAITING: 10.0, EVALUATION: 111.0}


def test_an_error_in_a_background_task_ends_it() -> None:
    clock = Clock()
    phases = Phases(COMPUTING, WAITING, clock=clock)
    phases.turn(COMPUTING)
    with pytest.raises(ZeroDivisionError), phases.aside(WAITING):
        clock.now += 1
        raise ZeroDivisionError
    clock.now += 2
    assert phases.seconds() == {COMPUTING: 2.0, WAITING: 1.0}


def test_reading_the_mailbox_counts_as_waiting() -> None:
    async def side() -> dict[str, float]:
        phases = Phases(COMPUTING, WAITING, clock=asyncio.get_running_loop().time)
        mailbox = Mailbox(phases=phases)
        phases.turn(COMPUTING)
        await asyncio.sleep(3)
        asyncio.get_running_loop().call_later(4, mailbox.ring)
        await mailbox.change()
        await mailbox.change(timeout=5)
        phases.turn()
        await asyncio.sleep(6)
        return phases.seconds()

    assert run_virtual(side()) == {COMPUTING: 3.0, WAITING: 9.0}
