"""Tests of a user's module on a few rows, by copies of it: does a row change the outputs of others, do gradients reach
its parameters, does it take a batch of one row, and does its `state_dict` hold all that it computes with?

They find mistakes such as batch statistics, attention over rows, memory of earlier rows or a lost graph, not a model
built to deceive, which would harm its own party.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from colonnade.common.config.models import PretrainedConfig, UserModule
from colonnade.common.errors import ConfigError

PROBE = 32  # rows for a test, at most
_NAMED = 4  # parameters in a warning
_STEPS, _RATE = 3, 1e-3  # of a copy that is tested after use
_TOLERANCE = 1e-5  # of the largest output: tolerance for kernels that sum in another order


UNTESTED = "cannot be tested"
_TRAINING, _EVALUATION = "in training mode", "in evaluation mode"
_LATER = {
    _TRAINING: "a resumed run ends with another model",
    _EVALUATION: "a resumed run, predictions and exports are of another model",
}


def mixing(model: nn.Module, rows: Tensor) -> str:
    """How a row changes a model's outputs for other rows; "" if it does not.

    Tested in training and evaluation mode, in the row's own batch and in the next one. The model and the generators do
    not change. `rows` are at least 2 of the party's own, (batch, ...), on the model's device.
    """
    found = (_in_mode(model, rows, training=training) for training in (True, False))
    return next((said for said in found if said), "")


def _in_mode(model: nn.Module, rows: Tensor, *, training: bool) -> str:
    mode = _TRAINING if training else _EVALUATION
    try:
        now, later = _outputs(model, rows, rows, training)
        if not _same((now, later), _outputs(model, rows, rows, training)):
            return f"it is not deterministic with the same rows and seed, {mode}, so it {UNTESTED}"
        for place in sorted({0, len(rows) // 2, len(rows) - 1}):
            changed, others = rows.clone(), torch.arange(len(rows), device=rows.device) != place
            changed[place] = _another(rows, place)
            of_changed, after = _outputs(model, changed, rows, training)
            if not _same((now[others],), (of_changed[others],)):
                return f"a row changes the outputs for other rows of the batch, {mode}"
            if not _same((later,), (after,)):
                return f"a row changes the outputs for the next batch, {mode}"
    except Exception as error:  # noqa: BLE001  # user code; the error's text may contain values
        return f"it {UNTESTED} with {len(rows)} rows, {mode}: {type(error).__name__}"
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


def head_rows(inputs: int) -> Tensor:
    """Inputs for the test of a head, float32 (rows, inputs)."""
    return torch.randn(PROBE, inputs, generator=torch.Generator().manual_seed(0))


@dataclass(frozen=True)
class ModelProbe:
    """A model or head of a member's section, before it learns.

    Args:
        owner: its key, for messages.
        config: its section; only what other code makes is tested.
        make: makes another one, whose first weights the generator draws, as a resumed run and a prediction do.
        rows: some of its inputs, (batch, ...), on its device.
    """

    owner: str
    config: object
    model: nn.Module
    make: Callable[[torch.Generator], nn.Module]
    rows: Tensor

    def doubts(self, parts: Sequence[str], *, by_gradients: bool = True) -> Iterator[str]:
        """Warnings about code that is not ours.

        Raises ConfigError if it cannot learn: it takes no single row where a batch of `parts` (`Schedule.single_rows`)
        has one, or no gradient reaches a parameter.
        """
        if isinstance(self.config, UserModule | PretrainedConfig):
            _refuse_single_rows(self.owner, self.model, self.rows, parts)
        if not isinstance(self.config, UserModule):
            return
        if mixed := mixing(self.model, self.rows):
            yield (
                f"{self.owner}: {mixed}; a row then shows in what leaves about others, and scores depend on the batches"
            )
        used = copy.deepcopy(self.model).train()
        try:
            with _same_draws(self.rows):
                for _ in range(_STEPS):
                    _learn(used, self.rows, by_gradients=by_gradients)
        except Exception:  # noqa: BLE001  # user code, which `mixing` has warned of, or which fails in the first round
            return
        if by_gradients:
            yield from _unreached(self.owner, used)
        if UNTESTED not in mixed and (mode := self._forgets(used)):
            yield (
                f"{self.owner}: its outputs depend on more than its `state_dict`, {mode}, and a checkpoint holds no "
                f"more: {_LATER[mode]}; keep what calls change, and what is drawn besides parameters, in "
                "`self.register_buffer(NAME, TENSOR)`, and change it in place"
            )

    def _forgets(self, used: nn.Module) -> str:
        """The mode in which a new model with this one's state computes other outputs; "" if there is none."""
        for mode, training in ((_EVALUATION, False), (_TRAINING, True)):
            try:
                with torch.random.fork_rng(devices=[]):
                    new = self.make(torch.Generator().manual_seed(1)).to(self.rows.device)
                new.load_state_dict(used.state_dict())
                if not _same(*(_twice(each.train(training), self.rows) for each in (used, new))):
                    return mode
            except Exception:  # noqa: BLE001  # user code, or a state that does not fit
                return mode
        return ""


def _twice(model: nn.Module, rows: Tensor) -> tuple[Tensor, Tensor]:
    with _same_draws(rows), torch.no_grad():
        return model(rows), model(rows)


def _learn(model: nn.Module, rows: Tensor, *, by_gradients: bool) -> None:
    """A small step; where a protocol learns by comparing outputs, a call."""
    with torch.set_grad_enabled(by_gradients):
        made = model(rows)
    if not made.requires_grad:
        return
    model.zero_grad()
    made.backward(torch.ones_like(made))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.add_(parameter.grad, alpha=-_RATE / len(rows))


def _unreached(owner: str, used: nn.Module) -> Iterator[str]:
    trained = {name: parameter for name, parameter in used.named_parameters() if parameter.requires_grad}
    lost = [name for name, parameter in trained.items() if parameter.grad is None]
    if len(lost) == len(trained):
        raise ConfigError(
            f"{owner} has nothing to train: the gradient at its outputs reaches no parameter",
            hint="compute the outputs from its layers, without `detach`, `torch.no_grad` or numpy on the way",
        )
    if lost:
        more = f" and {len(lost) - _NAMED} others" if len(lost) > _NAMED else ""
        yield f"{owner}: no gradient reaches its {', '.join(lost[:_NAMED])}{more}, which stay as they began"


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
