"""Linear, logistic and multinomial regression over the columns of all parties, from residuals that the server encrypts.

Full batch, by L-BFGS whose vectors stay with their owners (common/models/vector_free.py). A party's columns X_k are a
matrix M of small whole numbers, of which the server encrypts the hint and returns the sums as in `additive`
(common/encryption/messages.py). The loss is that of the server's labels plus |B|^2 / (2 C); a round is a step:

    for each round t
      1   server     c of r, the derivatives of the loss by the logits of the training rows       -> every party
      2   party k    M c + u c_d + its mask                                                       -> server
      3   server     that less H s, and a noise                                                   -> party k
          party k    X_k' r; in coordinates in which its part of the Hessian is about 1: g_k
      4   party k    scalar products of its parts of the last steps, gradients' changes and g,
                     blinded                                                                      -> server
      5   server     coefficients of the direction in these                                       -> every party
      6   party k    X_k D_k of all common rows (training, validation, test), and D_k' D_k / C,
                     blinded                                                                      -> server
      7   server     the length of the step with the least loss along the direction               -> every party

**The server learns** the blinded sums of steps 4 and 6: of every direction, and so of the logits. **A party learns**
X_k' r in every round, which is a function of the sums of its columns over the rows of each class and of those that the
model expects there. Coefficients stay with their party.

Hardy et al. 2017 let a third party hold the keys and take the loss's Taylor polynomial; neither is needed, since
the server decrypts and computes the loss itself.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from colonnade.common.aggregation.masked_sums import Summing
from colonnade.common.aggregation.messages import BLINDED, blinded_limits
from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.protocol import ProtocolConfig
from colonnade.common.contracts.boosting import ROWS, check_boosted, scores_of
from colonnade.common.contracts.contract import Contract
from colonnade.common.contracts.exchange import Exchange
from colonnade.common.encryption.messages import RETURNED, SUMMED, sum_limits
from colonnade.common.encryption.parameters import PROBES
from colonnade.common.errors import ConfigError
from colonnade.common.messaging.fields import Released, Tensor
from colonnade.common.messaging.message import Alike, PartyMessage, ServerMessage, TensorSpec, message

CURVATURE = {"classification": 0.25, "regression": 1.0}
"""Largest second derivative of the loss of a row by its logit, by task (Boehning and Lindsay 1988)."""
WEIGHT = 8
"""Largest magnitude of an entry of M: digits to base 16 are -8 to 7."""


class Config(ProtocolConfig):
    """Keys under `federation.protocol`."""

    few_rounds: ClassVar[bool] = True
    full_batch: ClassVar[bool] = True
    weighted: ClassVar[bool] = True
    converges: ClassVar[bool] = True
    optimisers: ClassVar[frozenset[str]] = frozenset()

    name: Literal["hetero_lr"] = Field(default="hetero_lr", description="the protocol; a round is a step of L-BFGS")
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
        description="the loss of a row that the next step would gain, below which there are no more steps",
    )


@message
class Products(PartyMessage):
    """Party to server, where sums are in the clear: numbers of a round's stage, float32 (lines, scores).

    Args:
        stage: 0: scalar products; 1: the direction's logits of all rows, and its penalty.
    """

    stage: int
    o: Annotated[Released, TensorSpec("lines", "scores")]


@message
class Direction(ServerMessage):
    """Server to party: coefficients of the direction, float64 (vectors of L-BFGS,).

    Args:
        steps: that were made before it.
    """

    alike: ClassVar[Alike | None] = Alike(("coefficients",))

    steps: int
    coefficients: Annotated[Tensor, TensorSpec("memory", dtype="float64")]


@message
class Step(ServerMessage):
    """Server to party: the step's length, and the unit of gradients from now on, float64 (2,)."""

    alike: ClassVar[Alike | None] = Alike(("step",))

    step: Annotated[Tensor, TensorSpec("two", dtype="float64")]


def scale_of(federation: FederationConfig) -> float:
    """What logits of a direction are multiplied by before they are summed.

    A direction has the length 1 in coordinates in which |X D|^2 is at most 1 / CURVATURE, so that no logit of it is
    above 2: it uses half of the range.
    """
    return federation.blinding.bound / 4


def lines_of(numbers: int, scores: int) -> int:
    """Lines of a sum, `scores` numbers each, that hold so many numbers."""
    return -(-numbers // scores)


def limits(federation: FederationConfig, config: Config) -> dict[str, int]:
    """The largest value of every dimension."""
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


def check(federation: FederationConfig, config: Config) -> None:
    """Refuses what does not go with exact sums, and rounds without a party by intent."""
    check_boosted(federation, "the logits")
    if federation.participation < 1:
        raise ConfigError(
            f"federation.participation = {federation.participation:g}: {config.name} needs every party in every round",
            hint="leave it out",
        )


CONTRACT = Contract(
    title="Linear and logistic regression, from encrypted residuals; every party keeps its coefficients",
    source="Hardy et al. 2017; Chen et al. 2014",
    config=Config,
    messages=(*SUMMED, *RETURNED, Products, Direction, Step, *BLINDED),
    limits=limits,
    exchange=Exchange("logits", "sums"),
    in_step=True,
    check=check,
    sees={
        "server": "sums over the parties of what a direction adds to the logits of all rows (in the clear: each "
        "party's), from which columns can be estimated, and sums of scalar products of coefficients",
        "party": "sums of its own columns over the training rows of each class, and those that the model expects",
    },
)
