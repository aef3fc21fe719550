"""Tests of a user's module on a few rows, by copies of it: does a row change the outputs of others, do gradients reach
its parameters, and does it take a batch of one row?

They find mistakes such as batch statistics, attention over rows, memory of earlier rows or a lost graph, not a model
built to deceive, which would harm its own party.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from colonnade.common.config.models import PretrainedConfig, UserModule
from colonnade.common.errors import ConfigError

PROBE = 32  # rows for a test, at most
_NAMED = 4  # parameters in a warning
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
    with _same_draws(first), torch.no_grad():
        return probe(first), probe(second)


@contextmanager
def _same_draws(rows: Tensor) -> Iterator[None]:
    with torch.random.fork_rng(devices=[rows.device] if rows.is_cuda else []):
        torch.default_generator.manual_seed(0)
        if rows.is_cuda:
            torch.cuda.manual_seed(0)
        yield


def _another(rows: Tensor, place: int) -> Tensor:
    """A row with other values: another row of the batch, unless all are equal."""
    different = (rows != rows[place]).flatten(1).any(1).nonzero()
    return rows[int(different[0])] if len(different) else rows[place] + 1


def _same(ones: tuple[Tensor, ...], others: tuple[Tensor, ...]) -> bool:
    return all(_close(one, other) for one, other in zip(ones, others, strict=True))


def _close(one: Tensor, other: Tensor) -> bool:
    scale = float(one.nan_to_num(0.0, 0.0, 0.0).abs().max()) if one.numel() else 0.0
    return torch.allclose(one, other, rtol=0.0, atol=_TOLERANCE * scale, equal_nan=True)


def doubtful(
    owner: str, config: object, model: nn.Module, rows: Tensor, parts: Sequence[str], *, by_gradients: bool = True
) -> str:
    """A warning about a model or head of other code that is to learn from such rows; "" for none, and for one of ours.

    Raises ConfigError if it cannot: it takes no single row where a batch of `parts` (`Schedule.single_rows`) has one,
    or no gradient reaches a parameter.
    """
    if isinstance(config, UserModule | PretrainedConfig):
        _refuse_single_rows(owner, model, rows, parts)
    return _unreached(owner, model, rows) if isinstance(config, UserModule) and by_gradients else ""


def _unreached(owner: str, model: nn.Module, rows: Tensor) -> str:
    try:
        probe = copy.deepcopy(model).train()
        with _same_draws(rows), torch.enable_grad():
            made = probe(rows)
            if made.requires_grad:
                made.backward(torch.ones_like(made))
    except Exception:  # noqa: BLE001  # user code, which `mixing` has warned of, or which fails in the first round
        return ""
    trained = {name: parameter for name, parameter in probe.named_parameters() if parameter.requires_grad}
    lost = [name for name, parameter in trained.items() if parameter.grad is None]
    if len(lost) == len(trained):
        raise ConfigError(
            f"{owner} has nothing to train: the gradient at its outputs reaches no parameter",
            hint="compute the outputs from its layers, without `detach`, `torch.no_grad` or numpy on the way",
        )
    if not lost:
        return ""
    more = f" and {len(lost) - _NAMED} others" if len(lost) > _NAMED else ""
    return f"{owner}: no gradient reaches its {', '.join(lost[:_NAMED])}{more}, which stay as they began"


def _refuse_single_rows(owner: str, model: nn.Module, rows: Tensor, parts: Sequence[str]) -> None:
    """Refuses a model that takes these rows together and not one alone: its code fails, or gives no finite numbers."""
    for part in parts:
        training = part == "training"
        if (said := _alone(model, rows, training)) and not _alone(model, rows, training, single=False):
            raise ConfigError(
                f"{owner} {said} of a batch of one row, and the {part} rows have one: the last",
                hint="take another federation.batch, or a row less by federation.rows; or take a single row as it is, "
                "or by running statistics, as nn.BatchNorm1d and nn.BatchNorm2d do here",
            )


def _alone(model: nn.Module, rows: Tensor, training: bool, *, single: bool = True) -> str:
    try:
        found, _ = _outputs(model, rows[:1] if single else rows, rows, training)
        return "" if bool(found.isfinite().all()) else "makes no finite numbers"
    except Exception as error:  # noqa: BLE001  # user code; the error's text may contain values
        return f"makes nothing ({type(error).__name__})"
