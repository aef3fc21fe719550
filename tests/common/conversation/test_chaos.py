"""Fault injection, on the virtual clock."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from colonnade.common.config.chaos import (
    ChaosConfig,
    Pattern,
    PatternIndex,
    Pause,
    bits_per_second,
    parse_partition,
    parse_pause,
    read_chaos,
    seconds,
)
from colonnade.common.conversation.capacity import Bounded
from colonnade.common.conversation.chaos import Chaos
from colonnade.common.conversation.inprocess import run_virtual
from colonnade.common.conversation.parcels import Close, Item, Open
from colonnade.common.errors import ConfigError
from colonnade.common.messaging.message import Message
from colonnade.common.protocols.fedvs import Answer, Opened
from colonnade.common.protocols.split import Embedding, Evaluation
from tests.support.federation import config, federate
from tests.support.messages import dimensions, fitting_message

Came = list[tuple[float, Item]]


class Struck:
    """Incidents that only log."""

    def __init__(self) -> None:
        self.what: list[tuple[str, int]] = []

    def pause(self, chaos: Chaos, pause: Pause) -> None:
        self.what.append(("pause", pause.round))
        chaos.hold(pause.seconds)

    def crash(self, chaos: Chaos, round: int) -> None:
        self.what.append(("crash", round))


def embedding(round: int, rows: int = 2) -> Embedding:
    return Embedding(round, torch.full((rows, 1), float(round)))


def play(scene: Callable[[Callable[..., Chaos], Came], Coroutine[Any, Any, None]]) -> Came:
    """Runs a scene, and returns the arrivals with their times."""
    came: Came = []

    def make(incidents: Struck | None = None, seed: int = 0, index: int = 0, **faults: Any) -> Chaos:
        return Chaos(ChaosConfig(**faults), PatternIndex(index, 4, 100), seed, incidents or Struck())

    run_virtual(scene(make, came))
    return came


def receive(came: Came) -> Callable[[Item], None]:
    return lambda item: came.append((asyncio.get_running_loop().time(), item))


def sent(count: int = 1, rows: int = 2, **faults: Any) -> Came:
    """Arrivals of embeddings of rounds 1 .. count, sent at once."""

    async def scene(make: Callable[..., Chaos], came: Came) -> None:
        send = make(**faults).outward(receive(came))
        for round in range(1, count + 1):
            send(embedding(round, rows))
        await asyncio.sleep(1e6)

    return play(scene)


@pytest.mark.parametrize(
    ("text", "value"), [("0.5s", 0.5), ("20ms", 0.02), ("2min", 120), ("1h", 3600), (".5 s", 0.5), ("3.s", 3)]
)
def test_times(text: str, value: float) -> None:
    assert seconds(text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["", "5", "s", "-1s", "1 day", "1e3s", "1s2s", "nans"])
def test_invalid_times(text: str) -> None:
    with pytest.raises(ValueError, match="is no time"):
        seconds(text)


@pytest.mark.parametrize("text", ["exp", "exp(1s, 2s)", "uniform(1s)", "uniform(2s, 1s)", "normal(1s)", "exp(1)"])
def test_invalid_patterns(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no (delay|time)"):
        Pattern.parse(text)


ALONE = PatternIndex(0, 1)


def mean(pattern: str, index: PatternIndex = ALONE) -> float:
    draws, parsed = random.Random(1), Pattern.parse(pattern)
    return sum(parsed.draw(draws, index) for _ in range(40000)) / 40000


@pytest.mark.parametrize(
    ("pattern", "expected"), [("0.7s", 0.7), ("exp(0.5s)", 0.5), ("uniform(1s, 3s)", 2.0), ("exp(0s)", 0.0)]
)
def test_patterns_have_the_means_that_they_name(pattern: str, expected: float) -> None:
    assert mean(pattern) == pytest.approx(expected, rel=0.02)


def test_uniform_stays_between_its_ends() -> None:
    draws = random.Random(0)
    drawn = [Pattern.parse("uniform(1s, 2s)").draw(draws, PatternIndex(0, 1)) for _ in range(2000)]
    assert 1 <= min(drawn) < 1.05 and 1.95 < max(drawn) <= 2


def test_the_pattern_of_fedvs() -> None:
    """Section 6.2, N = 16: half 0.1 s, the others 2 + 4 i / 16 s for i = 1 .. 8."""
    means = [mean("fedvs", PatternIndex(number, 16)) for number in range(16)]
    assert means[:8] == pytest.approx([0.1] * 8, rel=0.03)
    assert means[8:] == pytest.approx([2 + 4 * i / 16 for i in range(1, 9)], rel=0.03)
    assert mean("fedvs(0.1)", PatternIndex(15, 16)) == pytest.approx(0.4, rel=0.03)
    shares = mean("fedvs-shares", PatternIndex(15, 16, batch=256))
    assert shares == pytest.approx(4 * math.log(16) ** 2 / 256, rel=0.03)


def test_model_shares_take_longer_the_fewer_rows_a_coded_batch_has() -> None:
    """N = 28, batch 256: with K = 6 a coded batch has 42 rows; the slowest party's shares take 1.06 s on average."""
    federation = config({"name": "fedvs", "segments": 6, "embedding": 8}, "federation.parties=28").federation
    rows = federation.protocol.coded_batch(256, 28)
    assert rows == 42
    slowest = mean("fedvs-shares", PatternIndex(27, 28, rows))
    assert slowest == pytest.approx(4 * math.log(28) ** 2 / 42, rel=0.03) == pytest.approx(1.06, rel=0.03)
    assert config({"name": "split"}).federation.protocol.coded_batch(256, 28) == 256


def test_nothing_asked_for_is_nothing_done() -> None:
    assert [when for when, _ in sent(3)] == [0, 0, 0]


def test_a_delay_is_drawn_anew_in_every_round_and_again_in_a_repeated_one() -> None:
    one, two = sent(5, delay="exp(1s)"), sent(5, delay="exp(1s)")
    assert one and [when for when, _ in one] == [when for when, _ in two]
    assert len({when for when, _ in one}) > 1
    assert [when for when, _ in sent(5, delay="exp(1s)", seed=1)] != [when for when, _ in one]
    assert [when for when, _ in sent(5, delay="exp(1s)", index=1)] != [when for when, _ in one]


@given(st.sampled_from(["exp(1s)", "uniform(0s, 2s)", "10ms"]), st.integers(0, 100), st.sampled_from(["", "1kbit/s"]))
def test_messages_arrive_in_sending_order(delay: str, seed: int, bandwidth: str) -> None:
    came = sent(6, delay=delay, seed=seed, jitter="exp(100ms)", bandwidth=bandwidth)
    assert [item.round for _, item in came if isinstance(item, Embedding)] == [1, 2, 3, 4, 5, 6]
    assert [when for when, _ in came] == sorted(when for when, _ in came)


def test_only_the_named_kind_is_delayed() -> None:
    async def scene(make: Callable[..., Chaos], came: Came) -> None:
        send = make(delay={"Evaluation": "3s"}).outward(receive(came))
        send(embedding(1))
        send(Evaluation(1, "test", 0, torch.zeros(1, 1)))
        await asyncio.sleep(10)

    assert [when for when, _ in play(scene)] == [0, pytest.approx(3)]


def answer(stage: int, block: int) -> Answer:
    return Answer(1, stage, block, "", torch.zeros(1, 1, dtype=torch.int32))


def test_a_slow_response_delays_only_its_own_kind() -> None:
    async def scene(make: Callable[..., Chaos], came: Came) -> None:
        send = make(delay={"Answer": "3s"}).outward(receive(came))
        for stage in range(2):
            send(answer(stage, 0))
            send(Opened(1, stage, torch.ones(4, dtype=torch.uint8)))
            send(Close())
            await asyncio.sleep(1)
        await asyncio.sleep(10)

    came = [(when, type(item).__name__, getattr(item, "stage", None)) for when, item in play(scene)]
    assert came == [(0, "Opened", 0), (0, "Close", None), (1, "Opened", 1), (1, "Close", None),
                    (pytest.approx(3), "Answer", 0), (pytest.approx(4), "Answer", 1)]  # fmt: skip


@given(seed=st.integers(0, 100), kinds=st.lists(st.sampled_from([Answer, Opened]), min_size=1, max_size=12))
def test_messages_of_one_kind_arrive_in_sending_order(seed: int, kinds: list[type[Message]]) -> None:
    """Rounds count the messages: each response has a delay of its own, and other kinds have none."""

    async def scene(make: Callable[..., Chaos], came: Came) -> None:
        send = make(delay={"Answer": "exp(2s)"}, seed=seed).outward(receive(came))
        for number, kind in enumerate(kinds):
            send(fitting_message(kind, dimensions(1, 1, 1), round=number))
            await asyncio.sleep(0.5)
        await asyncio.sleep(1e6)

    came = [(when, item) for when, item in play(scene) if isinstance(item, Message)]
    for kind in (Answer, Opened):
        numbers = [number for number, each in enumerate(kinds) if each is kind]
        assert [item.round for _, item in came if isinstance(item, kind)] == numbers
    assert all(when == 0.5 * item.round for when, item in came if isinstance(item, Opened))


def test_pending_responses_share_the_line() -> None:
    """They are computed concurrently, and pass the narrow line one after the other: 1 s each."""

    async def scene(make: Callable[..., Chaos], came: Came) -> None:
        send = make(delay={"Embedding": "3s"}, bandwidth="32kbit/s").outward(receive(came))
        send(embedding(1, 1000))
        send(embedding(2, 1000))
        send(Evaluation(1, "test", 0, torch.zeros(1000, 1)))
        await asyncio.sleep(20)

    came = [(when, type(item).__name__) for when, item in play(scene)]
    assert came == [(pytest.approx(1), "Evaluation"), (pytest.approx(4), "Embedding"), (pytest.approx(5), "Embedding")]


def test_a_sent_tensor_may_be_changed_in_transit() -> None:
    async def scene(make: Callable[..., Chaos], came: Came) -> None:
        message = embedding(1)
        make(delay="1s").outward(receive(came))(message)
        message.h.fill_(9)
        await asyncio.sleep(2)

    ((_, item),) = play(scene)
    assert isinstance(item, Embedding) and item.h.unique() == 1


class Room(Bounded):
    """Has room for two items, and is emptied by the test."""

    def __init__(self, came: Came, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self.inside, self._came, self._loop = 0, came, loop

    @property
    def full(self) -> bool:
        return self.inside >= 2

    def put(self, item: Any) -> None:
        assert not self.full
        self.inside += 1
        self._came.append((self._loop.time(), item))

    def empty(self) -> None:
        self.inside = 0
        self._left.set()


def test_delayed_items_wait_for_room_in_the_connection_in_their_order() -> None:
    """A party that saw room for a message has sent it: no burst of delayed ones is too much for its connection."""

    async def scene(make: Callable[..., Chaos], came: Came) -> None:
        room = Room(came, asyncio.get_running_loop())
        send = make(delay={"Embedding": "1s"}).outward(room.put, room)
        for number in range(1, 6):
            send(embedding(number))
        await asyncio.sleep(2)
        later = Evaluation(6, "test", 0, torch.zeros(1, 1))
        send(later)  # not delayed, and behind what waits
        later.h.fill_(9)
        for _ in range(4):
            room.empty()
            await asyncio.sleep(1)

    came = play(scene)
    assert [item.round for _, item in came] == [1, 2, 3, 4, 5, 6]
    assert [when for when, _ in came] == pytest.approx([1, 1, 2, 2, 3, 3])
    assert came[-1][1].h.unique() == 0


def test_bandwidth_takes_its_time_one_after_the_other_and_both_ways() -> None:
    """1000 rows x 4 bytes are 32 kbit: 1 s each on 32 kbit/s."""
    assert [when for when, _ in sent(3, 1000, bandwidth="32kbit/s")] == pytest.approx([1, 2, 3])

    async def scene(make: Callable[..., Chaos], came: Came) -> None:
        hear = make(bandwidth="32kbit/s").inward(receive(came))
        hear(embedding(1, 1000))
        hear(Open(2))
        await asyncio.sleep(10)

    assert [when for when, _ in play(scene)] == pytest.approx([1, 1])


@pytest.mark.parametrize(("text", "bits"), [("300Mbit/s", 3e8), ("1Gbit/s", 1e9), ("10 kbit/s", 1e4), ("", math.inf)])
def test_bandwidths(text: str, bits: float) -> None:
    assert bits_per_second(text) == bits


def test_responses_are_dropped_at_the_configured_rate() -> None:
    kept = len(sent(2000, drop=0.3))
    assert 0.66 < kept / 2000 < 0.74
    assert len(sent(50, drop={"Evaluation": 0.9})) == 50


def test_nothing_passes_a_partition_in_either_direction_and_all_of_it_afterwards() -> None:
    async def scene(make: Callable[..., Chaos], came: Came) -> None:
        chaos = make(partition="5s-9s")
        send, hear = chaos.outward(receive(came)), chaos.inward(receive(came))
        for at in range(12):
            send(embedding(at))
            hear(Open(at))
            await asyncio.sleep(1)

    came = play(scene)
    assert [when for when, _ in came] == pytest.approx([0, 0, 1, 1, 2, 2, 3, 3, 4, 4] + [9] * 10 + [10, 10, 11, 11])
    opened = [item.round for _, item in came if isinstance(item, Open)]
    assert opened == list(range(12))


@pytest.mark.parametrize("faults", [{"delay": "5s"}, {"jitter": "5s"}])
def test_what_is_delayed_beyond_its_session_is_discarded_in_both_directions(faults: dict[str, str]) -> None:
    async def scene(make: Callable[..., Chaos], came: Came) -> None:
        chaos = make(**faults)
        chaos.outward(receive(came))(embedding(7))
        chaos.inward(receive(came))(Open(7))
        await asyncio.sleep(4)
        chaos.end()
        chaos.outward(receive(came))(Close())
        await asyncio.sleep(100)

    assert [item for _, item in play(scene)] == ([Open(7)] if "delay" in faults else [])


def test_a_pause_holds_everything_from_the_opening_of_its_round() -> None:
    struck = Struck()

    async def scene(make: Callable[..., Chaos], came: Came) -> None:
        chaos = make(struck, pause=["2s@3"], crash=5)
        send, hear = chaos.outward(receive(came)), chaos.inward(receive(came))
        for round in (2, 3):
            hear(Open(round))
            send(embedding(round))
        await asyncio.sleep(5)
        hear(Open(5))
        hear(Close())

    assert [when for when, _ in play(scene)] == pytest.approx([0, 0, 2, 2, 5, 5])
    assert struck.what == [("pause", 3), ("crash", 5)]


@pytest.mark.parametrize("text", ["10s", "s@3", "10s@x", "10@3"])
def test_invalid_pauses(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no (pause|time)"):
        parse_pause(text)


@pytest.mark.parametrize("text", ["5s", "9s-5s", "5s-5s", "a-b"])
def test_invalid_partitions(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no (partition|time)"):
        parse_partition(text)


def test_the_command_line_equals_a_file() -> None:
    faults = read_chaos(("party2: delay=exp(0.5s), drop.Embedding=0.1", "every_party: partition=5s-9s"))
    cfg = config({"name": "split"}, *faults)
    assert cfg.parties["party2"].chaos == ChaosConfig(delay="exp(0.5s)", drop={"Embedding": 0.1}, partition="5s-9s")
    assert cfg.parties["party1"].chaos == ChaosConfig(partition=("5s-9s",))
    between = read_chaos(("party1: delay=uniform(1s, 2s), pause=10s@20",))
    assert between == ("parties.party1.chaos.delay=uniform(1s, 2s)", "parties.party1.chaos.pause=10s@20")


@pytest.mark.parametrize("text", ["party2", "party2:", ": delay=1s", "party2: delay", "party2: delay=1s, drop"])
def test_invalid_command_line_faults(text: str) -> None:
    with pytest.raises(ConfigError, match="expected NAME: KEY=VALUE"):
        read_chaos((text,))


def test_a_fault_of_a_misspelt_party_names_it_and_the_roster() -> None:
    with pytest.raises(ConfigError) as refused:
        config({"name": "split"}, *read_chaos(("party9: delay=1s",)))
    assert str(refused.value).startswith("parties.party9: not in the roster federation.parties")
    assert "party1" in refused.value.hint


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("delay=1 day", "parties.party1.chaos.delay = '1 day': '1 day' is no time"),
        ("jitter=fedvs(nan)", "parties.party1.chaos.jitter = 'fedvs(nan)': 'fedvs(nan)' is no delay"),
        ("delay.Embeding=1s", "split has no message 'Embeding' (did you mean 'Embedding'?)"),
        ("drop=1.5", "parties.party1.chaos.drop"),
        ("dely=1s", "parties.party1.chaos.dely: unknown key (did you mean 'delay'?)"),
        ("bandwidth=fast", "'fast' is no bandwidth"),
    ],
)
def test_a_wrong_fault_is_reported_before_the_run(fault: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        config({"name": "split"}, *read_chaos((f"party1: {fault}",)))
    assert said in str(refused.value)


def test_a_configuration_is_read_back_as_it_was_written() -> None:
    faults = ChaosConfig(delay={"Embedding": "fedvs(0.1)"}, jitter=0.5, pause="1s@2", drop=0.2)
    assert ChaosConfig.model_validate(faults.model_dump(mode="json")) == faults
    with pytest.raises(ValidationError):
        ChaosConfig(crash=0)


def test_a_crash_on_the_virtual_clock_is_refused_before_the_run() -> None:
    crashing = config({"name": "split", "embedding": 4}, "parties.party2.chaos={crash: 3}")
    with pytest.raises(ConfigError, match=r"parties.party2.chaos.crash = 3: nothing can crash on the virtual clock"):
        federate(crashing)
