"""A party that sends a hint of its own choice, to read the server's secret s from what comes back: H s is in every sum.

With Δ x X^j added to a bin's hint and taken from another's, the two sums change by x s_j, and totals stay as they are:
the server cannot tell it from gradients. What comes back is which splits are chosen. The split that the change brings
about contradicts its own sides: the run ends after the first, by name, and s is fresh for every vector.

Bounds: sums under encryption (party).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from colonnade.client.protocols.secureboost import participate
from colonnade.client.training.context import ClientContext
from colonnade.common.conversation.conversation import Link
from colonnade.common.encryption.messages import HintPart, Masks, Nonces, Vectors
from colonnade.common.encryption.parameters import SumSize
from colonnade.common.errors import ContractError
from colonnade.common.messaging.message import Message
from colonnade.common.messaging.outgoing import MaskedTensor
from colonnade.common.protocols.secureboost import Wanted
from colonnade.simulation.federation import Simulation
from tests.protocols.test_secureboost import DEPTH, ROUNDS, Lying, config

SIZE = SumSize(409)
READ = 8  # coefficients of s, each by two bins


def chosen(ctx: ClientContext, message: Message, amount: int) -> Message | None:
    if not isinstance(message, HintPart) or message.part:
        return None
    h = message.h.detach().numpy().copy().view(np.uint64)
    for j in range(READ):
        h[2 * j, j] += np.uint64(amount)
        h[2 * j + 1, j] -= np.uint64(amount)
    masked = MaskedTensor(torch.from_numpy(h.view(np.int64)), "chosen")
    return replace(message, h=ctx.admit_masked(masked))


@pytest.mark.parametrize(
    ("amount", "said"),
    [
        (SIZE.step << 24, r"party2 sent (Sides: expected the rows that its sums were over|Sums: .*)"),
        (SIZE.step << 8 | SIZE.step // 2, r"party2 sent Sums\.y: expected sums of its hint and our vectors"),
    ],
)
def test_it_reads_a_split_at_most_and_is_named(amount: int, said: str) -> None:
    async def side(ctx: ClientContext, link: Link, cfg: Any) -> None:
        await participate(ctx, Lying(link, lambda message: chosen(ctx, message, amount)), cfg)  # type: ignore[arg-type]

    simulation = Simulation(config("federation.protocol.bins=8"), record=True, instead={"party2": side})
    with pytest.raises(ContractError, match=said) as ended:
        simulation.run()
    assert not any(digit in str(ended.value).replace("party2", "") for digit in "0123456789")  # no number of the server
    back = [message for _, to, message in simulation._messages if to == "party2"]
    assert {type(message) for message in back} <= {Nonces, Masks, Vectors, Wanted}
    asked = sum(len(message.columns) for message in back if isinstance(message, Wanted))
    assert asked < ROUNDS * DEPTH
