"""The device of a member. No GPU is needed: torch is told how many there are."""

from __future__ import annotations

from collections.abc import Iterator
from unittest import mock

import pytest
import torch

from colonnade.common.errors import EnvironmentFault
from colonnade.common.parsing.file import parse
from colonnade.common.run.device import choose_device
from colonnade.simulation.contexts import virtual_device
from tests.support.federation import tree

cudnn = torch.backends.cudnn


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before, precision = (cudnn.deterministic, cudnn.benchmark), torch.get_float32_matmul_precision()
    yield
    cudnn.deterministic, cudnn.benchmark = before
    torch.set_float32_matmul_precision(precision)


def gpus(count: int) -> mock._patch[mock.MagicMock]:
    return mock.patch("torch.cuda.device_count", return_value=count)


def test_members_of_a_machine_take_its_gpus_in_turn() -> None:
    with gpus(2):
        assert [choose_device("auto", index).index for index in range(4)] == [0, 1, 0, 1]
        assert choose_device("cuda:1", 0) == torch.device("cuda", 1)
        assert choose_device("cpu", 1) == torch.device("cpu")
    with gpus(0):
        assert choose_device("auto") == torch.device("cpu")


@pytest.mark.parametrize(("wanted", "count"), [("cuda", 0), ("cuda:0", 0), ("cuda:2", 2)])
def test_a_gpu_that_is_not_there_is_refused(wanted: str, count: int) -> None:
    with gpus(count), pytest.raises(EnvironmentFault, match=f"device {wanted}: this process sees {count} GPUs"):
        choose_device(wanted)


def test_kernels_repeat_to_the_bit_unless_the_fastest_are_wanted() -> None:
    with gpus(1):
        choose_device("cuda", repeatable=False)
        assert (cudnn.deterministic, cudnn.benchmark) == (False, True)
        assert torch.get_float32_matmul_precision() == "high"
        choose_device("cuda")
        assert (cudnn.deterministic, cudnn.benchmark) == (True, False)
        assert torch.get_float32_matmul_precision() == "highest"


@pytest.mark.parametrize(("other", "fastest"), [({}, True), ({"device": "cuda"}, False)])
def test_members_of_a_simulation_share_the_fastest_kernels_if_all_on_gpus_want_them(
    other: dict[str, str], fastest: bool
) -> None:
    made = tree({"name": "split"}, parties=["a", "b"])
    made["parties"] = {"a": {"device": "cuda", "repeatable": False}, "b": other}
    with gpus(1):
        assert virtual_device(parse(made), "a") == torch.device("cuda", 0)
        assert virtual_device(parse(made), "b").type == ("cuda" if other else "cpu")
    assert cudnn.benchmark is fastest
