"""Test for interaction between rows in a model: one row is changed, and the outputs of all others are compared.

This finds mistakes such as batch statistics, attention over rows, or memory of earlier rows, not a model built to
deceive, which would harm its own party.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

_TOLERANCE = 1e-5  # of the largest output: tolerance for kernels that sum in another order


def mixing(model: nn.Module, rows: Tensor) -> str:
    """How a row changes a model's outputs for other rows; "" if it does not.

    Tested in training and evaluation mode, in the row's own batch and in the next one. The model and the generators do
    not change. `rows` are at least 2 of the party's own, (batch, ...), on the model's device.
    """
    found = (_in_mode(model, rows, training=training) for training in (True, False))
    return next((said for said in found if said), "")


def _in_mode(model: nn.Module, rows: Tensor, *, training: bool) -> str:
    mode = f"in {'training' if training else 'evaluation'} mode"
    try:
        now, later = _outputs(model, rows, rows, training)
        if not _same((now, later), _outputs(model, rows, rows, training)):
            return f"it is not deterministic with the same rows and seed, {mode}, so it cannot be tested"
        for place in sorted({0, len(rows) // 2, len(rows) - 1}):
            changed, others = rows.clone(), torch.arange(len(rows), device=rows.device) != place
            changed[place] = _another(rows, place)
            of_changed, after = _outputs(model, changed, rows, training)
            if not _same((now[others],), (of_changed[others],)):
                return f"a row changes the outputs for other rows of the batch, {mode}"
            if not _same((later,), (after,)):
                return f"a row changes the outputs for the next batch, {mode}"
    except Exception as error:  # noqa: BLE001  # user code; the error's text may contain values
        return f"it cannot be tested with {len(rows)} rows, {mode}: {type(error).__name__}"
    return ""


def _outputs(model: nn.Module, first: Tensor, second: Tensor, training: bool) -> tuple[Tensor, Tensor]:
    """Outputs of a copy of the model for two successive batches, with the same draws in every call."""
    probe = copy.deepcopy(model).train(training)
    with torch.random.fork_rng(devices=[first.device] if first.is_cuda else []), torch.no_grad():
        torch.default_generator.manual_seed(0)
        if first.is_cuda:
            torch.cuda.manual_seed(0)
        return probe(first), probe(second)


def _another(rows: Tensor, place: int) -> Tensor:
    """A row with other values: another row of the batch, unless all are equal."""
    different = (rows != rows[place]).flatten(1).any(1).nonzero()
    return rows[int(different[0])] if len(different) else rows[place] + 1


def _same(ones: tuple[Tensor, ...], others: tuple[Tensor, ...]) -> bool:
    return all(_close(one, other) for one, other in zip(ones, others, strict=True))


def _close(one: Tensor, other: Tensor) -> bool:
    scale = float(one.nan_to_num(0.0, 0.0, 0.0).abs().max()) if one.numel() else 0.0
    return torch.allclose(one, other, rtol=0.0, atol=_TOLERANCE * scale, equal_nan=True)
