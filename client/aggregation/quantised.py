"""A party's data and weights as field elements, and the checks on them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from colonnade.common.aggregation import fixed_point
from colonnade.common.aggregation.field import Field
from colonnade.common.errors import ConfigError, DataError, InputError
from colonnade.common.models.towers.polynomial import Polynomial
from colonnade.common.protocols.fedvs import Config


def polynomial(party: str, model: nn.Module) -> Polynomial:
    """Checks that a model can be computed on shares. Raises ConfigError."""
    if type(model) is not Polynomial:  # a subclass could mix rows in its powers
        raise ConfigError(
            f"parties.{party}.model: fedvs computes on shares, which only a polynomial network can",
            hint="model: {name: polynomial, layers: 2}",
        )
    return model


def columns_of(party: str, model: Polynomial, config: Config) -> int:
    """Number of columns of a party's data, including powers and bias; ConfigError if more than agreed."""
    if (columns := len(model.weight)) > config.columns:
        raise ConfigError(
            f"{party} has {columns} columns with powers and bias, federation.protocol.columns is {config.columns}",
            hint="raise it, in every member's file, or lower the model's layers",
        )
    return columns


def quantised_data(party: str, field: Field, values: Tensor, bits: int) -> Tensor:
    """X_n as int64 in the shape of `values`. Raises DataError, naming the party."""
    try:
        return fixed_point.quantise_data(field, values, bits)
    except InputError as bad:
        raise _unfit(party, "the data", field, bits, bad.hint) from None


def rounded_weights(party: str, field: Field, model: Polynomial, bits: int, draws: torch.Generator) -> Tensor:
    """W_n after stochastic rounding, int64 (columns, width). Raises DataError, naming the party."""
    try:
        return fixed_point.quantise_model(field, model.weight.detach().cpu(), bits, draws)
    except InputError as bad:
        raise _unfit(party, "the weights", field, bits, bad.hint) from None


def margin(field: Field, largest: Tensor, weights: Tensor, parties: int) -> float:
    """Ratio of a party's share of ±p/2 (1/N) to its largest embedding: below 1, the sum over all parties could wrap.

    It depends on private rows, so it stays at the party.

    Args:
        largest: largest absolute entry of each column, quantised, int64 (1, columns).
        weights: W_n as field elements, (columns, width).
        parties: N.
    """
    return fixed_point.headroom(field, [parties * fixed_point.sum_bound(field, largest, weights)])


def refuse_wrapping(party: str, field: Field, margin: float, parties: int) -> None:
    """Raises DataError if the margin is below 1; the error omits its value, because errors are sent to the server."""
    if margin < 1:
        raise DataError(
            f"{party}: its embedding could leave its part of the field, +-{field.p // 2 // parties} of {field.p} "
            f"elements among {parties} parties, and the sum wrap around",
            hint="lower federation.protocol.data_bits or weight_bits, scale the data, or take a larger prime",
        )


def _unfit(party: str, whose: str, field: Field, bits: int, hint: str) -> DataError:
    text = f"{party}: {whose} are not all finite, or with {bits} bits leave ±p/2 for p = {field.p}"
    return DataError(text, hint=hint)
