"""A server that sends gradients of its own choice: the party obeys unnoticed; noise with its budget holds.

The threat model names this as a threat that remains. The scenes hold that page to account, in both directions.

Bounds: a party's noise (server); messages (server).
"""

from __future__ import annotations

import asyncio
import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from colonnade.common.conversation.parcels import Failure, Hello, Open, Rewind
from colonnade.common.errors import BudgetSpent
from colonnade.common.protocols.split import Embedding, Gradient
from tests.support.false_server import scripted
from tests.support.in_memory import ROUNDS, ROWS, WIDTH

CLIP = 1.0
NOISE = "federation.privacy={clip: 1, noise_multiplier: 0.01, delta: 1.0e-5}"
BUDGET = "federation.privacy={clip: 1, noise_multiplier: 30, epsilon: 0.8, delta: 1.0e-5}"
FAST = "every_party.optimiser={name: sgd, lr: 0.5, momentum: 0}"


def driven(towards: float) -> Gradient:
    """Pushes every entry of an embedding to a value of the server's choice, whatever the labels are."""
    return Gradient(0, torch.full((ROWS, WIDTH), -math.copysign(0.05, towards)))


async def rounds(folder: Path, towards: float, *sets: str) -> tuple[list[Tensor], list[str]]:
    """The embeddings of a party that is driven so, and the kinds of its events."""
    sent: list[Tensor] = []
    with scripted(folder, FAST, *sets) as server:
        party, line = await server.begun()
        for number in range(1, ROUNDS + 1):
            line.send(Open(number))
            sent.append((await line.hear(Embedding)).h)
            line.send(Gradient(number, driven(towards).dh))
        await line.checkpoint(ROUNDS)
        party.cancel()
        await asyncio.wait({party})
        return sent, server.events


async def test_a_party_obeys_and_notices_nothing(tmp_path: Path) -> None:
    up, kinds = await rounds(tmp_path / "up", 1.0)
    down, _ = await rounds(tmp_path / "down", -1.0)
    assert torch.equal(up[0], down[0]) and up[-1].mean() > down[-1].mean() + 0.1
    assert not {"warning", "finding", "failed"} & set(kinds)


async def test_with_noise_every_release_is_clipped_and_paid_for_whatever_comes_back(tmp_path: Path) -> None:
    """The norm of what leaves is bounded; at this noise the rest is a hundredth of the clip an entry."""
    for number, towards in enumerate((100.0, -100.0)):
        sent, _ = await rounds(tmp_path / str(number), towards, NOISE)
        most = CLIP + 6 * 0.01 * math.sqrt(ROWS * WIDTH)
        assert all(float(torch.linalg.vector_norm(h)) <= most for h in sent)
    unbounded, _ = await rounds(tmp_path / "clear", 100.0)
    assert max(float(torch.linalg.vector_norm(h)) for h in unbounded) > CLIP + 1


@pytest.mark.parametrize("lowered", [False, True], ids=["rewinds", "with lower rates"])
async def test_rewinds_that_a_server_invents_are_paid_from_the_same_budget(tmp_path: Path, *, lowered: bool) -> None:
    """Each repeats a round at the same parameters with new noise: averages would wear it off, but for the budget."""

    with scripted(tmp_path, "federation.batch=256", BUDGET) as server:
        party, line = await server.joined()
        for number in range(50):
            line.begin(backed_off=number if lowered else 0)
            line.send(Open(1))
            await asyncio.sleep(0.1)
            if line.said(Failure) or party.done():
                break
            line.send(Rewind("again"))
            await line.hear(Hello)
        error = await server.error(party)
        assert isinstance(error, BudgetSpent) and "the privacy budget is spent" in str(error)
        releases = len(line.said(Embedding))
        assert 4 < releases < 12, releases  # the run itself needs seven
