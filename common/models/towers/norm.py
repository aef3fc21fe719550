"""Batch norm over batches that may be a single row."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional


class BatchNorm(nn.BatchNorm1d):
    """Batch norm over rows. A single row, as an epoch may end with, is normalised by the running statistics."""

    def forward(self, input: Tensor) -> Tensor:
        """(batch, width) -> (batch, width)."""
        return super().forward(input) if len(input) > 1 else _by_running(self, input)


class ImageBatchNorm(nn.BatchNorm2d):
    """Batch norm over rows and pixels. A single row is normalised by the running statistics, as in `BatchNorm`."""

    def forward(self, input: Tensor) -> Tensor:
        """(batch, channels, height, width) -> the same shape."""
        return super().forward(input) if len(input) > 1 else _by_running(self, input)


def _by_running(norm: nn.BatchNorm1d | nn.BatchNorm2d, input: Tensor) -> Tensor:
    return functional.batch_norm(input, norm.running_mean, norm.running_var, norm.weight, norm.bias, eps=norm.eps)
