"""Batch norm over batches that may be a single row."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional


class BatchNorm(nn.BatchNorm1d):
    """Batch norm over rows. A single row, as an epoch may end with, is normalised by the running statistics."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input) if len(input) > 1 else _by_running(self, input)


class ImageBatchNorm(nn.BatchNorm2d):
    """Batch norm over rows and pixels. A single row is normalised by the running statistics, as in `BatchNorm`."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input) if len(input) > 1 else _by_running(self, input)


def take_single_rows(model: nn.Module) -> None:
    """Gives the batch norms of a model, which may be a user's own, this treatment of a single row."""
    for module in model.modules():
        if (kind := _OF_ROWS.get(type(module))) is not None:
            module.__class__ = kind


_OF_ROWS: dict[type[nn.Module], type[nn.Module]] = {nn.BatchNorm1d: BatchNorm, nn.BatchNorm2d: ImageBatchNorm}


def _by_running(norm: nn.BatchNorm1d | nn.BatchNorm2d, input: Tensor) -> Tensor:
    mean, variance = norm.running_mean, norm.running_var
    if mean is None or variance is None:  # without running statistics: the row as it is
        mean, variance = input.new_zeros(input.shape[1]), input.new_ones(input.shape[1])
    return functional.batch_norm(input, mean, variance, norm.weight, norm.bias, eps=norm.eps)
