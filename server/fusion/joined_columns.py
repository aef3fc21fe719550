"""The parties' columns, concatenated."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from colonnade.common.errors import ContractError
from colonnade.server.training.context import ServerContext


class Joined:
    """Concatenates the parties' columns in roster order.

    The number of a party's columns is not agreed: it is learnt from the party's first message and kept in the state.
    """

    def __init__(self, ctx: ServerContext, parties: tuple[str, ...]) -> None:
        self._parties = parties
        self._columns: dict[str, int] = ctx.state.keep("columns", dict)

    @property
    def columns(self) -> int:
        """Total number of columns; 0 until every party has sent some."""
        return sum(self._columns.values()) if len(self._columns) == len(self._parties) else 0

    def learn(self, kind: str, responses: Mapping[str, Tensor]) -> None:
        """Records the number of columns of each party's x_k, (rows, columns).

        Raises ContractError if a party's number of columns changed; `kind` is the message's name, for the error.
        """
        for party, x in responses.items():
            if (known := self._columns.setdefault(party, x.shape[1])) != x.shape[1]:
                raise ContractError(party, kind, "x", f"columns = {known}, as at first", f"shape {tuple(x.shape)}")

    def join(self, responses: Mapping[str, Tensor], rows: int) -> Tensor:
        """[x_1 .. x_M], float32 (rows, columns); zeros for missing parties."""
        columns = self._columns
        return torch.cat([responses.get(p, torch.zeros(rows, columns[p])) for p in self._parties], dim=1)
