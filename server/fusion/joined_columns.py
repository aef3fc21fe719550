"""The parties' columns side by side."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from colonnade.common.errors import ContractError
from colonnade.server.training.context import ServerContext


class Joined:
    """Lays what parties send side by side, in the roster's order.

    How many columns a party has is agreed nowhere; it is learned from the first that it sends.

    Args:
        ctx: of the server's half, whose state keeps the numbers of columns.
        parties: in the cohort's order.
    """

    def __init__(self, ctx: ServerContext, parties: tuple[str, ...]) -> None:
        self._parties = parties
        self._columns: dict[str, int] = ctx.state.keep("columns", dict)

    @property
    def columns(self) -> int:
        """Of all parties together; 0 until every one of them has been heard."""
        return sum(self._columns.values()) if len(self._columns) == len(self._parties) else 0

    def learn(self, kind: str, answers: Mapping[str, Tensor]) -> None:
        """Notes how many columns each party has.

        Args:
            kind: of the messages, for the error.
            answers: x_k by party, (rows, columns).

        Raises:
            ContractError: a party sent another number of columns than at first.
        """
        for party, x in answers.items():
            if (known := self._columns.setdefault(party, x.shape[1])) != x.shape[1]:
                raise ContractError(party, kind, "x", f"columns = {known}, as at first", f"shape {tuple(x.shape)}")

    def join(self, answers: Mapping[str, Tensor], rows: int) -> Tensor:
        """[x_1 .. x_M], float32 (rows, columns); zeros for who is missing.

        Args:
            answers: x_k by party, (rows, columns).
            rows: how many.
        """
        columns = self._columns
        return torch.cat([answers.get(p, torch.zeros(rows, columns[p])) for p in self._parties], dim=1)
