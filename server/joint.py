"""The server's part of a joint model: from what the parties send of some rows to logits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor, nn


class Joint(Protocol):
    """What a protocol's server makes of everyone's answers, in training's evaluations and afterwards."""

    def logits(self, parts: Sequence[Tensor]) -> Tensor:
        """What each party sent, in the roster's order, float32 (rows, width) each -> logits (rows, classes)."""

    def heads(self) -> list[Tensor] | None:
        """The weights that each party's part meets first, (width, outputs) each; None if there are none."""


class HeadSum:
    """sum_k h_k W_k.

    Args:
        weight: W_1 .. W_M, float32 (M, width, classes).
    """

    def __init__(self, weight: Tensor) -> None:
        self._weight = weight

    def logits(self, parts: Sequence[Tensor]) -> Tensor:
        """h_1 .. h_M -> their heads' sum."""
        return torch.bmm(torch.stack(list(parts)).to(self._weight.device), self._weight).sum(0)

    def heads(self) -> list[Tensor]:
        """W_1 .. W_M."""
        return list(self._weight.detach())


class LogitSum:
    """sum_k o_k, of parties that have their heads themselves.

    Args:
        device: that the sum is wanted on.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def logits(self, parts: Sequence[Tensor]) -> Tensor:
        """o_1 .. o_M -> their sum."""
        return torch.stack(list(parts)).sum(0).to(self._device)

    def heads(self) -> None:
        """There are none here."""


class JointHead:
    """One head over all embeddings laid side by side.

    Args:
        head: theta_0, (rows, M * width) -> (rows, classes).
        parties: M.
        width: of an embedding.
        device: that the head lives on.
    """

    def __init__(self, head: nn.Module, parties: int, width: int, device: torch.device) -> None:
        self._head, self._parties, self._width, self._device = head, parties, width, device

    def logits(self, parts: Sequence[Tensor]) -> Tensor:
        """h_1 .. h_M -> the head's logits, without dropout and the like."""
        self._head.eval()
        logits: Tensor = self._head(torch.cat(list(parts), dim=1).to(self._device))
        self._head.train()
        return logits

    def heads(self) -> list[Tensor] | None:
        """Each party's block of the first layer, if that is linear over all embeddings."""
        first = next((layer for layer in self._head.modules() if isinstance(layer, nn.Linear)), None)
        if first is None or first.in_features != self._parties * self._width:
            return None
        return list(torch.split(first.weight.detach().T, self._width))
