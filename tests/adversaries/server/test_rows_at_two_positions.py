"""A server that has a row of a prediction twice: once from the kept alignment, once aligned anew.

A budget counts a row by its position, so that two releases of the row would count as one.

Bounds: a row's noise (server).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from colonnade.common.conversation.conversation import SERVER
from colonnade.common.errors import ContractError
from colonnade.server.alignment.finding import ServerFinding
from tests.support.alignment import federation
from tests.support.kept import Members

TABLES = {SERVER: ["ada", "bob", "cyd", "dan"], "party1": ["bob", "ada", "gus", "dan"], "party2": ["dan", "ada", "bob"]}


@pytest.mark.parametrize("again", [["ada"], ["dan", "bob"], ["ada", "bob", "dan"]])
@pytest.mark.parametrize("more", [{}, {"align_checks": "planted"}])
def test_no_row_of_a_party_has_two_positions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: list[str], more: dict[str, Any]
) -> None:
    there = Members(tmp_path, federation(2, **more), {name: list(own) for name, own in TABLES.items()})
    there.run()
    asked = ["ada", "bob", "dan", "zoe"]

    def others(_self: ServerFinding) -> Tensor:
        return torch.tensor([asked.index(key) for key in (*again, "zoe")])

    monkeypatch.setattr(ServerFinding, "_others", others)
    found = there.predict(asked)
    for party in ("party1", "party2"):
        refused = found.rows[party]
        assert isinstance(refused, ContractError) and "some again" in str(refused)
