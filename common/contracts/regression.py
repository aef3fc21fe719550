"""What regressions have in common: keys, messages of a step, and settings that exclude exact sums."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from colonnade.common.aggregation.masked_sums import Summing
from colonnade.common.aggregation.messages import BLINDED, blinded_limits
from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.protocol import ProtocolConfig
from colonnade.common.contracts.boosting import ROWS, check_boosted, scores_of
from colonnade.common.encryption.messages import RETURNED, SUMMED, sum_limits
from colonnade.common.encryption.parameters import PROBES
from colonnade.common.errors import ConfigError
from colonnade.common.messaging.fields import Released, Tensor
from colonnade.common.messaging.message import Alike, PartyMessage, ServerMessage, TensorSpec, message

CURVATURE = {"classification": 0.25, "regression": 1.0}
"""Largest second derivative of the loss of a row by its logit, by task (Boehning and Lindsay 1988)."""


class RegressionConfig(ProtocolConfig):
    """Keys under `federation.protocol` of every regression."""

    few_rounds: ClassVar[bool] = True
    full_batch: ClassVar[bool] = True
    converges: ClassVar[bool] = True
    optimisers: ClassVar[frozenset[str]] = frozenset()

    c: Annotated[float, Field(ge=1e-6)] | Literal["none"] = Field(
        default=1.0, description="C, the inverse of the penalty of squared coefficients, as in scikit-learn; or none"
    )
    aggregate: Summing = Field(
        default="blinded", description="clear: the server sees each party's logits, and not their sum alone"
    )
    memory: int = Field(default=30, ge=1, le=100, description="steps from which L-BFGS knows the curvature")
    tolerance: float = Field(
        default=1e-13,
        gt=0,
        description="least reduction of the mean loss by the next step; below it the run ends",
    )


@message
class Products(PartyMessage):
    """Party to server, for sums in the clear: numbers of a round's stage, float32 (lines, scores).

    Args:
        stage: 0: scalar products; 1: the direction's logits of all rows, and its penalty.
    """

    stage: int
    o: Annotated[Released, TensorSpec("lines", "scores")]


@message
class Direction(ServerMessage):
    """Server to party: coefficients of the direction, float64 (vectors of L-BFGS,).

    Args:
        steps: number of steps made before it.
    """

    alike: ClassVar[Alike | None] = Alike(("coefficients",))

    steps: int
    coefficients: Annotated[Tensor, TensorSpec("memory", dtype="float64")]


@message
class Step(ServerMessage):
    """Server to party: the step's length, and the unit of gradients from now on, float64 (2,)."""

    alike: ClassVar[Alike | None] = Alike(("step",))

    step: Annotated[Tensor, TensorSpec("two", dtype="float64")]


REGRESSION = (*SUMMED, *RETURNED, Products, Direction, Step, *BLINDED)  # message kinds of a regression's steps


def scale_of(federation: FederationConfig) -> float:
    """Factor of a direction's logits before they are summed.

    A direction has length 1 in coordinates in which |X D|^2 is at most 1 / CURVATURE, so that its logits are at most 2,
    half of the range.
    """
    return federation.blinding.bound / 4


def lines_of(numbers: int, scores: int) -> int:
    """Lines of `scores` numbers each that hold this many numbers."""
    return -(-numbers // scores)


def regression_limits(federation: FederationConfig, config: RegressionConfig) -> dict[str, int]:
    """The largest value of every dimension of these messages."""
    scores, memory = scores_of(federation), 2 * config.memory + 1
    lines = max(ROWS // scores + 1, lines_of(memory**2, scores))
    return {
        **sum_limits(federation, max(2 * scores, PROBES)),
        **blinded_limits(federation, lines, scores),
        "lines": lines,
        "scores": scores,
        "memory": memory,
        "two": 2,
    }


def check_regression(federation: FederationConfig, config: RegressionConfig) -> None:
    """Refuses settings that exclude exact sums, and rounds that intentionally leave out parties."""
    check_boosted(federation, "the logits")
    if federation.participation < 1:
        raise ConfigError(
            f"federation.participation = {federation.participation:g}: {config.name} needs every party in every round",
            hint="leave it out",
        )
