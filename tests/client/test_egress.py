"""The egress: only released tensors leave, and never before the ledger has the line."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from colonnade.client.privacy.egress import Egress
from colonnade.common.aggregation.messages import Masked
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.conversation.parcels import Close, Item, Open
from colonnade.common.errors import ContractError, InputError
from colonnade.common.messaging.message import Message
from colonnade.common.messaging.outgoing import MaskedTensor, Released
from colonnade.common.privacy.accounting.ledger import Ledger
from colonnade.common.privacy.release import release_clear
from colonnade.common.protocols.fedvs import Opened, Shares
from colonnade.common.protocols.split import Embedding


class Outside:
    """The other side of the egress: records the messages that pass, and the number of ledger lines by then."""

    def __init__(self, ledger: Path) -> None:
        self._ledger = ledger
        self.passed: list[Item] = []
        self.lines_by_then: list[int] = []

    def __call__(self, item: Item) -> None:
        self.passed.append(item)
        self.lines_by_then.append(len(lines(self._ledger)))


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.jsonl"


@pytest.fixture
def outside(path: Path) -> Outside:
    return Outside(path)


@pytest.fixture
def egress(path: Path, outside: Outside) -> Egress:
    return Egress(outside, SERVER, release_clear, Ledger(path))


def test_a_released_tensor_passes(egress: Egress, outside: Outside) -> None:
    egress(Embedding(1, egress.release(torch.ones(2, 4))))
    (message,) = outside.passed
    assert isinstance(message, Embedding) and torch.equal(message.h, torch.ones(2, 4))


@pytest.mark.parametrize(
    "disguise",
    [
        lambda private, released: private,
        lambda private, released: released.clone(),
        lambda private, released: released[:],
        lambda private, released: released * 1,
        lambda private, released: torch.ones(2, 4),
    ],
    ids=["the private one", "a copy", "a view", "a result", "an equal one"],
)
def test_no_other_tensor_passes_not_even_an_equal_one(
    egress: Egress, outside: Outside, path: Path, disguise: Any
) -> None:
    private = torch.ones(2, 4)
    released = egress.release(private)
    with pytest.raises(ContractError, match=r"this side sent Embedding.h: expected a tensor from ctx.release"):
        egress(Embedding(1, disguise(private, released)))
    assert outside.passed == [] and lines(path) == []


def test_a_tensor_passes_once(egress: Egress, outside: Outside, path: Path) -> None:
    h = egress.release(torch.ones(2, 4))
    egress(Embedding(1, h))
    with pytest.raises(ContractError, match=r"expected a tensor from ctx.release"):
        egress(Embedding(2, h))
    assert len(outside.passed) == len(lines(path)) == 1


def test_released_tensors_may_leave_in_another_order(egress: Egress, outside: Outside) -> None:
    first, second = egress.release(torch.zeros(1, 4)), egress.release(torch.ones(1, 4))
    egress(Embedding(1, second))
    egress(Embedding(2, first))
    assert [float(message.h.sum()) for message in outside.passed if isinstance(message, Embedding)] == [4, 0]


def test_a_released_tensor_has_no_gradient_history(egress: Egress) -> None:
    weight = torch.ones(4, 4, requires_grad=True)
    assert not egress.release(torch.ones(2, 4) @ weight).requires_grad


def test_the_ledger_has_its_line_before_the_message_leaves(egress: Egress, outside: Outside) -> None:
    for round in (1, 2):
        egress(Embedding(round, egress.release(torch.ones(2, 4))))
    assert outside.lines_by_then == [1, 2]


def test_a_message_that_does_not_get_through_is_in_the_ledger_all_the_same(path: Path) -> None:
    def broken(_item: Item) -> None:
        raise ConnectionError("the cable is out")

    egress = Egress(broken, SERVER, release_clear, Ledger(path))
    with pytest.raises(ConnectionError):
        egress(Embedding(1, egress.release(torch.ones(2, 4))))
    assert len(lines(path)) == 1


def test_a_message_that_cannot_be_written_down_does_not_leave(outside: Outside) -> None:
    class Full(Ledger):
        def charge(self, message: Message, to: str, mechanism: str, epsilon: float | None) -> None:
            raise OSError("no space left on device")

    egress = Egress(outside, SERVER, release_clear, Full(None))
    with pytest.raises(OSError, match="no space left"):
        egress(Embedding(1, egress.release(torch.ones(2, 4))))
    assert outside.passed == []


def test_after_the_ledgers_end_nothing_leaves(path: Path, outside: Outside) -> None:
    ledger = Ledger(path)
    egress = Egress(outside, SERVER, release_clear, ledger)
    egress(Embedding(1, egress.release(torch.ones(2, 4))))
    ledger.close()
    with pytest.raises(ValueError, match="closed"):
        egress(Embedding(2, egress.release(torch.ones(2, 4))))
    assert len(outside.passed) == 1


def test_a_line_has_time_message_receiver_and_protection(egress: Egress, path: Path) -> None:
    begin = time.time()
    egress(Embedding(7, egress.release(torch.ones(5, 3))))
    (line,) = lines(path)
    assert begin - 1e-3 <= line.pop("time") <= time.time() + 1e-3
    assert len(line.pop("chain")) == 64  # its contents are tested in test_chain
    assert line == {
        "round": 7,
        "kind": "Embedding",
        "to": "server",
        "fields": {"h": ["float32", 5, 3]},
        "bytes": 60,
        "rows": 5,
        "mechanism": "none",
        "epsilon": None,
    }


def test_a_line_has_the_mechanism_and_the_budget_spent_so_far(path: Path, outside: Outside) -> None:
    spent = iter([0.5, 0.75])

    def noisy(private: Tensor, *, evaluation: bool, rows: Tensor | None = None) -> Released:
        return Released(private + 1, "clip 1 + gaussian 2", next(spent))

    egress = Egress(outside, SERVER, noisy, Ledger(path))
    for round in (1, 2):
        egress(Embedding(round, egress.release(torch.zeros(2, 4))))
    assert [line["epsilon"] for line in lines(path)] == [0.5, 0.75]
    assert lines(path)[0]["mechanism"] == "clip 1 + gaussian 2"
    (first, _) = outside.passed
    assert isinstance(first, Embedding) and first.h.sum() == 8


def boxes() -> MaskedTensor:
    return MaskedTensor(torch.arange(12, dtype=torch.uint8).view(3, 4), "model shares, sealed")


def words() -> MaskedTensor:
    return MaskedTensor(torch.arange(8, dtype=torch.int32).view(2, 4), "blinded, a sum of 3", summed=True)


def test_a_masked_tensor_passes_and_is_logged_by_its_name(egress: Egress, outside: Outside, path: Path) -> None:
    egress(Shares(2, 0, egress.admit_masked(boxes())))
    (message,) = outside.passed
    assert isinstance(message, Shares) and torch.equal(message.boxes, boxes())
    (line,) = lines(path)
    assert (line["kind"], line["mechanism"], line["epsilon"]) == ("Shares", "model shares, sealed", None)
    assert (line["bytes"], line["rows"], line["about"]) == (12, 0, {"stage": 0})


@pytest.mark.parametrize(
    "disguise",
    [
        lambda masked: masked.clone(),
        lambda masked: masked[:],
        lambda masked: boxes(),
    ],
    ids=["a copy", "a view", "an equal one"],
)
def test_a_tensor_neither_masked_nor_released_is_refused(
    egress: Egress, outside: Outside, path: Path, disguise: Any
) -> None:
    masked = egress.admit_masked(boxes())
    with pytest.raises(ContractError, match=r"Shares.boxes: expected a tensor from ctx.admit_masked, got another"):
        egress(Shares(2, 0, disguise(masked)))
    assert outside.passed == [] and lines(path) == []


def test_a_masked_tensor_passes_once_and_without_a_gradient_history(egress: Egress, outside: Outside) -> None:
    masked = egress.admit_masked(MaskedTensor(torch.ones(2, 4, requires_grad=True) * 2, "sealed"))
    assert not masked.requires_grad
    egress(Shares(1, 0, masked))
    with pytest.raises(ContractError, match=r"expected a tensor from ctx.admit_masked"):
        egress(Shares(2, 0, masked))
    assert len(outside.passed) == 1


def test_each_way_out_is_for_its_own_fields(egress: Egress, outside: Outside) -> None:
    with pytest.raises(ContractError, match=r"Embedding.h: expected a tensor from ctx.release, got another"):
        egress(Embedding(1, egress.admit_masked(boxes())))
    with pytest.raises(ContractError, match=r"Shares.boxes: expected a tensor from ctx.admit_masked, got another"):
        egress(Shares(1, 0, egress.release(torch.ones(2, 4))))
    assert outside.passed == []


def test_an_ordinary_tensor_cannot_be_masked(egress: Egress) -> None:
    with pytest.raises(InputError, match="a Tensor is not masked"):
        egress.admit_masked(torch.ones(2, 4))  # type: ignore[arg-type]


def test_tensors_in_a_sum_must_have_been_released(egress: Egress) -> None:
    """The receiver learns the sum: the masks must cover a tensor released and paid for by the privacy stage."""
    with pytest.raises(InputError, match="what goes into a sum was not released"):
        egress.admit_masked(words())


def test_a_tensor_changed_after_its_release_cannot_be_masked(egress: Egress) -> None:
    released = egress.release(torch.ones(2, 4))
    released.add_(1)
    with pytest.raises(InputError, match="what is masked was not released"):
        egress.admit_masked(words(), released)


def test_masking_does_not_pass_through_the_privacy_stage(path: Path, outside: Outside) -> None:
    def never(private: Tensor, *, evaluation: bool, rows: Tensor | None = None) -> Released:
        raise AssertionError("nothing is released")

    egress = Egress(outside, SERVER, never, Ledger(path))
    egress(Shares(1, 0, egress.admit_masked(boxes())))
    assert lines(path)[0]["epsilon"] is None


def test_a_tensor_released_and_masked_is_logged_with_both_and_its_cost(path: Path, outside: Outside) -> None:
    def noised(private: Tensor, *, evaluation: bool, rows: Tensor | None = None) -> Released:
        return Released(private + 1, f"gaussian {evaluation}", 2.5)

    egress = Egress(outside, SERVER, noised, Ledger(path))
    released = egress.release(torch.ones(2, 4), evaluation=True)
    egress(Masked(3, 1, egress.admit_masked(words(), released)))
    (line,) = lines(path)
    assert (line["kind"], line["mechanism"], line["epsilon"]) == ("Masked", "gaussian True, blinded, a sum of 3", 2.5)
    assert (line["bytes"], line["rows"], line["about"]) == (32, 1, {"stage": 1})  # one of the two lines is of zeros


def test_the_tensor_under_a_mask_was_released_and_is_used_once(egress: Egress, outside: Outside) -> None:
    """Otherwise it would leave unpaid, or twice: masked and in the clear."""
    released = egress.release(torch.ones(2, 4))
    egress.admit_masked(words(), released)
    for unpaid in (released, Released(torch.ones(2, 4), "none", None)):
        with pytest.raises(InputError, match="what is masked was not released"):
            egress.admit_masked(words(), unpaid)
    with pytest.raises(ContractError, match=r"expected a tensor from ctx.release"):
        egress(Embedding(1, released))
    assert outside.passed == []


def test_tensors_independent_of_private_rows_pass_and_are_logged(egress: Egress, outside: Outside, path: Path) -> None:
    egress(Opened(3, 0, torch.ones(7, dtype=torch.uint8)))
    assert len(outside.passed) == 1
    (line,) = lines(path)
    assert (line["kind"], line["mechanism"], line["epsilon"], line["bytes"]) == ("Opened", "", None, 7)


def test_rounds_are_no_messages_and_cost_no_line(egress: Egress, outside: Outside, path: Path) -> None:
    egress(Open(1))
    egress(Close())
    assert outside.passed == [Open(1), Close()] and lines(path) == []


def test_a_second_start_adds_to_the_ledger(path: Path, outside: Outside) -> None:
    for _ in range(2):
        ledger = Ledger(path)
        egress = Egress(outside, SERVER, release_clear, ledger)
        egress(Embedding(1, egress.release(torch.ones(2, 4))))
        ledger.close()
    assert len(lines(path)) == 2
