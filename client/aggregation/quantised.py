"""A party's data and weights as elements of the field, and the checks on them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from colonnade.common.errors import ConfigError, DataError, InputError
from colonnade.common.models.towers.polynomial import Polynomial
from colonnade.common.numerics import fixed_point
from colonnade.common.numerics.field import Field
from colonnade.common.protocols.fedvs import Config


def polynomial(party: str, model: nn.Module) -> Polynomial:
    """Returns a party's model, if it can be computed on shares. Raises ConfigError."""
    if type(model) is not Polynomial:  # a derived class could mix rows in its powers
        raise ConfigError(
            f"parties.{party}.model: fedvs computes on shares, which only a polynomial network can",
            hint="model: {name: polynomial, layers: 2}",
        )
    return model


def columns_of(party: str, model: Polynomial, config: Config) -> int:
    """Number of columns of a party's data, powers and bias included.

    Raises:
        ConfigError: there are more than agreed.
    """
    if (columns := len(model.weight)) > config.columns:
        raise ConfigError(
            f"{party} has {columns} columns with powers and bias, federation.protocol.columns is {config.columns}",
            hint="raise it, in every member's file, or lower the model's layers",
        )
    return columns


def quantised_data(party: str, field: Field, values: Tensor, bits: int) -> Tensor:
    """X_n of some rows, int64 in the shape of the values. Raises DataError, naming the party."""
    try:
        return fixed_point.quantise_data(field, values, bits)
    except InputError as bad:
        raise _unfit(party, "the data", field, bits, bad.hint) from None


def rounded_weights(party: str, field: Field, model: Polynomial, bits: int, draws: torch.Generator) -> Tensor:
    """W_n rounded at random, int64 (columns, width). Raises DataError, naming the party."""
    try:
        return fixed_point.quantise_model(field, model.weight.detach().cpu(), bits, draws)
    except InputError as bad:
        raise _unfit(party, "the weights", field, bits, bad.hint) from None


def margin(field: Field, largest: Tensor, weights: Tensor, parties: int) -> float:
    """Ratio of a party's N-th of ±p/2 to its embeddings: below 1, the sum over all parties could wrap.

    A function of private rows: it stays at the party.

    Args:
        field: F_p.
        largest: the size of each column's largest entry, quantised, int64 (1, columns).
        weights: W_n, elements (columns, width).
        parties: N.
    """
    return fixed_point.headroom(field, [parties * fixed_point.sum_bound(field, largest, weights)])


def refuse_wrapping(party: str, field: Field, margin: float, parties: int) -> None:
    """Raises DataError if the margin is below 1; the error omits its value, since errors travel."""
    if margin < 1:
        raise DataError(
            f"{party}: its embedding could leave its part of the field, +-{field.p // 2 // parties} of {field.p} "
            f"elements among {parties} parties, and the sum wrap around",
            hint="lower federation.protocol.data_bits or weight_bits, scale the data, or take a larger prime",
        )


def _unfit(party: str, whose: str, field: Field, bits: int, hint: str) -> DataError:
    """Error without the number that is too large: errors travel."""
    text = f"{party}: {whose} are not all finite, or with {bits} bits leave ±p/2 for p = {field.p}"
    return DataError(text, hint=hint)
