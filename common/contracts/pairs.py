"""Pairs of embeddings up, one number down: config and messages of the purely zeroth-order protocols.

      1   party m    draws u_m, sends h_m = h(w_m) and h'_m = h(w_m + mu u_m) of a batch     -> server
      2   server     delta_m = f(.. h'_m ..) - f(.. h_m ..), of the batch's mean loss
      3   server     delta_m / mu                                                            -> party m
      4   party m    a step of w_m down phi delta_m / mu u_m

`zoo_vfl` runs this turn by turn, `syn_zoo_vfl` round by round. Estimates are computed in common/models/zeroth_order.py.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.optimisers import AdamConfig
from colonnade.common.config.protocol import Defaults, ProtocolConfig
from colonnade.common.errors import ConfigError
from colonnade.common.messaging.fields import Released, Tensor
from colonnade.common.messaging.message import PartyMessage, ServerMessage, TensorSpec, message


class PairsConfig(ProtocolConfig):
    """Keys under `federation.protocol` of both protocols."""

    defaults: ClassVar[Defaults] = Defaults(AdamConfig(lr=5e-3), AdamConfig(lr=5e-3))

    embedding: int = Field(default=60, ge=1, description="width of every party's embedding")
    combine: Literal["concatenate", "average", "max"] = Field(
        default="concatenate",
        description="combination of the parties' embeddings: concatenated, average, or maximum",
    )
    mu: float = Field(default=1e-3, gt=0, description="distance of the second point from the first")
    draw: Literal["sphere", "normal"] = Field(
        default="sphere", description="directions: uniform on the unit sphere, or with standard normal entries"
    )


@message
class Pair(PartyMessage):
    """Party to server: h(w_m) and h(w_m + mu u_m) of the batch of a turn, float32 (rows, width) each.

    Args:
        turn: the batch's number, from 1.
        h: at the party's parameters.
        perturbed: at parameters moved by mu along the party's direction.
    """

    turn: int
    h: Annotated[Released, TensorSpec("rows", "width")]
    perturbed: Annotated[Released, TensorSpec("rows", "width")]


@message
class Difference(ServerMessage):
    """Server to party: delta_m / mu, the slope of the batch's mean loss along u_m, float32 (directions,).

    It is divided before it is sent: delta itself, about 1e-6, would vanish in half precision.

    Args:
        round: the pair's round.
        slope: the difference of the losses, divided by mu.
    """

    slope: Annotated[Tensor, TensorSpec("directions")]


@message
class Evaluation(PartyMessage):
    """Party to server: h(w_m) of one block of the validation or test rows, float32 (rows, width)."""

    part: str
    block: int
    h: Annotated[Released, TensorSpec("rows", "width")]


PAIRS = (Pair, Difference, Evaluation)  # a contract's messages

SEES = {
    "server": "every party's embeddings of the training, validation and test rows, in the clear, and of every batch a "
    "second one, at slightly other parameters",
    "party": "a number a batch, the change of the loss along its own direction, which carries information about the "
    "labels",
}


def pairs_limits(federation: FederationConfig, config: PairsConfig) -> dict[str, int]:
    """The largest value of every dimension."""
    return {"rows": federation.batch, "width": config.embedding, "directions": 1}


def check_pairs(federation: FederationConfig, config: PairsConfig) -> None:
    """Refuses noise, which would drown the difference of two embeddings. Raises ConfigError."""
    if federation.privacy is not None:
        raise ConfigError(
            f"federation.privacy with the protocol {config.name}: two embeddings of a batch differ by far "
            "less than the noise that each would be released with",
            hint="leave it out; or take split or vimadmm, whose parties follow gradients",
        )
