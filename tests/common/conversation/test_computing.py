"""Computing on the virtual clock: operations counted by hand, and exact seconds."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import torch

from colonnade.common.aggregation.field import Field
from colonnade.common.config.chaos import operations_per_second
from colonnade.common.conversation.inprocess import run_virtual
from colonnade.common.conversation.parcels import Item, Open
from colonnade.common.run.phases import evaluation
from colonnade.simulation.computing import Benches
from colonnade.simulation.federation import Outcome
from tests.support.federation import config, federate, parameters

SPLIT_AVG = {"name": "split_avg", "embedding": 8}
RATE = 1000  # operations a second
A, B = torch.ones(2, 3), torch.ones(3, 4)  # their product: 2 * 2 * 3 * 4 = 48 operations
Send = Callable[[Item], None]


def left(side: Callable[[Send], Coroutine[Any, Any, None]], *later: Callable[[], object]) -> list[float]:
    """Times at which a party's items leave; `later` is called by the loop after .02 s, in the context of the party."""
    came: list[float] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        benches = Benches(config(SPLIT_AVG, f"parties.party1.chaos.computing={RATE}op/s"))
        send = benches.outward("party1", lambda _item: came.append(loop.time()))
        with benches.counting():
            await benches.work("party1", side(send))
            await asyncio.sleep(100)

    run_virtual(main())
    return came


def product() -> None:
    torch.mm(A, B)


def test_a_message_leaves_when_the_work_before_it_is_done() -> None:
    async def side(send: Send) -> None:
        send(Open(1))
        product()
        send(Open(2))
        send(Open(3))
        product()
        send(Open(4))

    assert left(side) == pytest.approx([0, 0.048, 0.048, 0.096])


def test_work_begins_with_its_inputs_or_after_the_work_before_it() -> None:
    async def side(send: Send) -> None:
        product()  # until .048
        await asyncio.sleep(0.04)
        product()  # until .096, and not .088
        await asyncio.sleep(0.96)
        send(Open(1))  # at 1: nothing is left to do
        product()
        await asyncio.sleep(0.5)
        send(Open(2))  # likewise: it was begun at 1

    assert left(side) == pytest.approx([1, 1.5])

    async def busy(send: Send) -> None:
        product()
        await asyncio.sleep(0.04)
        product()
        send(Open(1))

    assert left(busy) == pytest.approx([0.096])


@pytest.mark.parametrize(
    ("work", "operations"),
    [
        (lambda: torch.addmm(torch.ones(4), A, B), 4 + 48),  # torch.ones fills four elements
        (lambda: torch.ones(2, 4).addmm_(A, B), 8 + 48),
        (lambda: torch.bmm(A.expand(5, 2, 3), B.expand(5, 3, 4)), 240),
        (lambda: A + 1, 6),
        (A.sum, 1),
        (lambda: A.T.reshape(6)[2:], 6),  # a copy of the transpose; a part of it is a view
        (lambda: A.view(3, 2).T.unsqueeze(0), 0),
        (lambda: torch.empty(50), 0),
        (lambda: torch._foreach_add_([A.clone(), B.clone()], 1), 2 * 18),  # clones, then sums in place
        (lambda: torch.nn.functional.conv2d(torch.ones(1, 1, 5, 5), torch.ones(2, 1, 3, 3)), 25 + 18 + 2 * 9 * 2 * 9),
    ],
)
def test_operations_are_counted_by_shape(work: Callable[[], object], operations: int) -> None:
    async def side(send: Send) -> None:
        work()
        send(Open(1))

    assert left(side) == pytest.approx([operations / RATE])


def test_the_way_back_through_a_layer_costs_a_product_for_the_weights() -> None:
    weights = torch.zeros(3, 4, requires_grad=True)

    async def side(send: Send) -> None:
        torch.mm(A, weights).backward(torch.ones(2, 4))
        send(Open(1))

    assert 48 + 48 <= left(side)[0] * RATE <= 48 + 48 + 8 + 12  # ones, and the gradient is kept


def test_a_product_in_the_field_costs_its_two_limbs() -> None:
    left_, right = torch.ones(4, 16, dtype=torch.int64), torch.ones(16, 8, dtype=torch.int64)

    async def side(send: Send) -> None:
        Field(2147483647).matmul(left_, right)
        send(Open(1))

    products, passes = 2 * 2 * 4 * 16 * 8, 40 * (4 * 16 + 16 * 8)
    assert products < left(side)[0] * RATE < products + passes


def test_evaluations_and_deliveries_take_no_time() -> None:
    @evaluation
    async def evaluate() -> None:
        product()
        await asyncio.sleep(0.01)
        product()

    async def side(send: Send) -> None:
        await evaluate()
        asyncio.get_running_loop().call_later(0.01, product)  # as a message is delivered: in its sender's context
        await asyncio.sleep(0.02)
        send(Open(1))
        product()
        send(Open(2))

    assert left(side) == pytest.approx([0.03, 0.078])


def test_nothing_is_counted_where_computing_takes_no_time() -> None:
    benches = Benches(config(SPLIT_AVG))

    async def main() -> float:
        with benches.counting():
            assert torch.utils._python_dispatch._get_current_dispatch_mode() is None
            await benches.work("party1", asyncio.sleep(0))
        await benches.rest()
        return benches.clock()

    assert run_virtual(main()) == 0


@pytest.mark.parametrize(
    ("text", "rate"), [("1Gop/s", 1e9), ("2.5 Top/s", 2.5e12), ("500Mop/s", 5e8), ("7op/s", 7), ("", math.inf)]
)
def test_rates(text: str, rate: float) -> None:
    assert operations_per_second(text) == rate


@pytest.mark.parametrize("text", ["0op/s", "1e9", "fast", "1Gflop/s", "-1Mop/s"])
def test_a_rate_that_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="is no rate of computing: write 1Gop/s"):
        operations_per_second(text)


BOTH = ("server.chaos.computing={}Mop/s", "every_party.chaos.computing={}Mop/s")


def run(*rates: str, rate: int = 10, **protocol: Any) -> Outcome:
    sets = [each.format(rate) for each in rates]
    return federate(config({**SPLIT_AVG, **protocol}, "federation.epochs=0", "federation.rounds=6", *sets))


def test_a_federation_learns_the_same_and_takes_its_time() -> None:
    free, slow, fast = run(), run(*BOTH), run(*BOTH, rate=40)
    assert free.seconds < 1e-9 < slow.seconds
    assert slow.seconds == pytest.approx(4 * fast.seconds)
    for name, values in parameters(free).items():
        assert torch.equal(values, parameters(slow)[name])
    last = slow.of_kind("round")[-1]
    assert last["time"] == pytest.approx(sum(e["seconds"] for e in slow.of_kind("round")), abs=1e-2)


def test_rounds_wait_for_both_sides() -> None:
    server, parties, both = run(BOTH[0]), run(BOTH[1]), run(*BOTH)
    assert server.seconds > 0 and parties.seconds > 0
    assert both.seconds == pytest.approx(server.seconds + parties.seconds, rel=0.05)


def test_a_server_that_takes_parties_as_they_come_has_as_many_updates_to_compute_as_there_are_parties() -> None:
    """Four parties: four times the seconds of a round, and some for the embeddings that are kept."""
    together, alone = run(BOTH[0]), run(BOTH[0], arrivals=True)
    assert 4 < alone.seconds / together.seconds < 5


def test_the_time_limit_of_a_round_begins_when_the_server_is_done_with_the_one_before() -> None:
    """A server that works for longer than the limit hears everybody who answers within it."""
    late = (
        "federation.quorum={deadline: 0.01}",
        "federation.epochs=0",
        "federation.rounds=4",
        "every_party.chaos.delay=8ms",
    )
    outcome = federate(config(SPLIT_AVG, *late, "server.chaos.computing=1Mop/s"))
    assert outcome.seconds > 4 * 0.01
    assert not outcome.of_kind("missing")
