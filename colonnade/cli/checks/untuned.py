"""Settings for which no default can be good, and where to begin: docs/defaults.md."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.models import MlpConfig, ModelConfig
from colonnade.common.contracts.registry import CONTRACTS
from colonnade.common.contracts.schedule import Schedule
from colonnade.common.data.columns.scale import Columns, varied
from colonnade.reports.words import counted

_DEVIATIONS = 20  # beyond which the rest of a standardised column is squeezed together
_LOOKED_AT = 100_000  # rows
_STEPS = 100
_TABLE, _COLOUR = 2, 4  # axes of columns, and of images with channels


def of_party(columns: Columns, rows: Tensor, model: ModelConfig) -> Iterator[str]:
    """Properties of a party's model and columns for which no default can be good.

    Args:
        columns: of the party, scaled.
        rows: of training, int64 (m,).
        model: the party's.
    """
    if len(columns.shape) == _COLOUR and isinstance(model, MlpConfig):
        yield "hint: rows are images in colour, and the model is an mlp; `model: cnn` suits them"
    if len(columns.shape) != _TABLE:
        return
    values = columns[rows[:_LOOKED_AT]]
    if far := sum(_long_tailed(column) for column in values.unbind(1)):
        yield (
            f"hint: {far} of {values.shape[1]} columns reach beyond {_DEVIATIONS} deviations, so that their other "
            "values look alike; try `data.scale: auto`, or take their logarithms in the table"
        )


def of_federation(federation: FederationConfig, schedule: Schedule) -> Iterator[str]:
    """Properties of the protocol and of the length for which no default can be good."""
    protocol = federation.protocol
    if CONTRACTS[protocol.name].exchange.one_number:
        yield (
            f"hint: {protocol.name} learns from one number a batch, so that it needs many epochs, and rates of its "
            "own; begin with `colonnade tune`"
        )
    if schedule.rounds < _STEPS and not protocol.few_rounds:
        yield (
            f"hint: only {counted(schedule.rounds, 'round')}; take {_STEPS} or more, by a smaller federation.batch or "
            "more federation.epochs"
        )


def _long_tailed(column: Tensor) -> bool:
    return bool(column.abs().amax() > _DEVIATIONS) and varied(column)
