"""Heads that are sent: their number of parameters, and equal construction at both ends."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from colonnade.common.config.models import JointHeadConfig
from colonnade.common.models.build import build_agreed_head, build_head
from tests.support.seeded import seeded

joint = TypeAdapter(JointHeadConfig).validate_python
SMALL = st.integers(1, 9)
HEADS = st.one_of(
    st.builds(lambda bias: {"name": "linear", "bias": bias}, st.booleans()),
    st.builds(lambda hidden, layers: {"name": "mlp", "hidden": hidden, "layers": layers}, SMALL, st.integers(2, 4)),
)


@given(HEADS, SMALL, st.integers(2, 9))
def test_a_head_is_as_many_numbers_as_it_says(head: dict, inputs: int, classes: int) -> None:
    built = build_agreed_head(joint(head), inputs, classes, torch.Generator())
    assert sum(p.numel() for p in built.parameters()) == joint(head).size(inputs, classes)
    assert built(torch.zeros(3, inputs)).shape == (3, classes)


def test_an_agreed_head_begins_as_one_of_the_server_s_own() -> None:
    own, agreed = (
        build_head(joint("linear"), 6, 3, seeded(5)),
        build_agreed_head(joint("linear"), 6, 3, seeded(0), seeded(5)),
    )
    for one, two in zip(own.parameters(), agreed.parameters(), strict=True):
        assert torch.equal(one, two)
