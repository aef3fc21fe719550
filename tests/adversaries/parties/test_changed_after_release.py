"""A protocol side changes a tensor in place after its release: the released values leave, or nothing does.

Bounds: no cell.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from colonnade.client.privacy.egress import Egress
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.conversation.parcels import Item
from colonnade.common.errors import ContractError
from colonnade.common.messaging.message import tensors
from colonnade.common.messaging.outgoing import Released
from colonnade.common.privacy.accounting.ledger import Ledger
from colonnade.common.privacy.release import release_clear
from colonnade.common.protocols.split import Embedding

SECRET = 7.0


def noised(private: Tensor, *, evaluation: bool, rows: Tensor | None = None) -> Released:
    return Released(private + 1, "noise", 1.0)


def through_data(released: Tensor, private: Tensor) -> None:
    released.data.fill_(SECRET)


def through_numpy(released: Tensor, private: Tensor) -> None:
    released.numpy()[:] = SECRET


def by_another_storage(released: Tensor, private: Tensor) -> None:
    released.set_(torch.full((2, 4), SECRET))  # type: ignore[call-overload]


def by_another_shape(released: Tensor, private: Tensor) -> None:
    released.data = torch.full((5, 4), SECRET)


CHANGES: list[Callable[[Tensor, Tensor], object]] = [
    lambda released, private: released.fill_(SECRET),
    lambda released, private: released[0].copy_(torch.full((4,), SECRET)),
    lambda released, private: released.resize_(1, 4).fill_(SECRET),
    lambda released, private: private.fill_(SECRET),
    lambda released, private: private.numpy().fill(SECRET),
    through_data,
    through_numpy,
    by_another_storage,
    by_another_shape,
]


@pytest.mark.parametrize("stage", [release_clear, noised], ids=["in the clear", "noised"])
@pytest.mark.parametrize("change", CHANGES, ids=range(len(CHANGES)))
def test_nothing_but_the_released_values_leaves(stage: Callable[..., Released], change: Callable[..., object]) -> None:
    passed: list[Item] = []
    egress = Egress(passed.append, SERVER, stage, Ledger(None))
    private = torch.zeros(2, 4)
    released = egress.release(private)
    expected = released.clone()
    change(released, private)
    try:
        egress(Embedding(1, released))
    except ContractError as refused:
        assert "changed afterwards" in str(refused)
        assert passed == []
    else:
        (message,) = passed
        assert isinstance(message, Embedding)
        assert torch.equal(tensors(message)["h"], expected)


def test_a_change_that_torch_counts_is_an_error_and_not_a_silent_repair() -> None:
    passed: list[Item] = []
    egress = Egress(passed.append, SERVER, release_clear, Ledger(None))
    released = egress.release(torch.zeros(2, 4))
    released.add_(SECRET)
    with pytest.raises(ContractError, match=r"Embedding.h: expected the tensor as it was released, got .* afterwards"):
        egress(Embedding(1, released))
    assert passed == []
