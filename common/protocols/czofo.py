"""VFL-CZOFO: the server returns loss differences instead of gradients; parties are asynchronous.

Wang, Zhang, Gu, Li, Wang, Ling, "A Unified Solution for Privacy and Communication Efficiency in Vertical
Federated Learning" (NeurIPS 2023), Algorithm 1. A party takes its turns i = 1, 2, .. at its own pace, on its own batch
B(i):

      1   party m    C(h_m), h_m = f(x_m; w_m) of B(i), and i                    -> server
      2   server     keeps h_m as party m's last of these rows; with everyone's last (zeros where there is none)
                     and w_0 as it is, for j = 1 .. q:
                     delta^j = l(w_0, .. h_m + mu u^j ..) - l(w_0, .. h_m ..)
      3   server     C(delta^1 .. delta^q) / mu                                  -> this party alone
      4   server     one first-order step on w_0
      5   party m    dh_m = phi / q sum_j (delta^j / mu) u^j  (Eq. 2), back through f, a step on w_m; turn i + 1

Both ends draw the directions u^j from the federation's seed, the party's name and the turn, and compare digests of the
keystream. C is the compression of `federation.compress`.

`delta: batch` is the paper's: q differences of the batch's mean loss, whose estimate lives in rows x width
dimensions. `delta: row` sends q differences of every row's own loss, an estimate in width dimensions each, so
that few directions and few bits suffice; a party then learns more about every label.

A round has as many turns as there are parties. Only a round with an evaluation waits for all parties, subject to the
quorum: turns in progress when it opens are discarded at both ends and repeated. With `arrivals: false` all parties take
their turns together, on B(t) in round t.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.protocol import SMALL, Defaults, ProtocolConfig
from colonnade.common.contracts.contract import Contract, Exchange
from colonnade.common.contracts.embeddings import Evaluation
from colonnade.common.errors import ConfigError
from colonnade.common.messaging.fields import Released, Tensor
from colonnade.common.messaging.message import PartyMessage, ServerMessage, TensorSpec, message


class Config(ProtocolConfig):
    """Keys under `federation.protocol`."""

    defaults: ClassVar[Defaults] = Defaults(SMALL, SMALL, of_numbers=1)
    ranks: ClassVar[bool] = True

    name: Literal["czofo"] = Field(default="czofo", description="the protocol")
    embedding: int = Field(default=60, ge=1, description="width of every party's embedding")
    directions: int = Field(default=10, ge=1, description="q, number of directions of the loss differences")
    mu: float = Field(default=1e-3, gt=0, le=1e3, description="the step along a direction")
    delta: Literal["batch", "row"] = Field(
        default="batch", description="differences of the batch's mean loss, as in the paper, or of every row's own"
    )
    draw: Literal["sphere", "normal", "signs", "orthogonal"] = Field(
        default="sphere",
        description="distribution of directions: uniform on the unit sphere, standard normal, signs (the cheapest), "
        "or orthogonal (on the sphere, a row's at right angles)",
    )
    antithetic: bool = Field(default=False, description="differences between a step along a direction and one back")
    combine: Literal["concatenate", "average"] = Field(
        default="concatenate", description="combination of the parties' embeddings: side by side, or their average"
    )
    arrivals: bool = Field(
        default=True, description="asynchronous: every party acts when it is ready, instead of all in every round"
    )
    ahead: int | None = Field(
        default=None, ge=0, description="most turns that a party may be ahead of the slowest; left out, any number"
    )
    theorem: bool = Field(default=True, description="measures the quantities of Theorem 4.1, for the summary")


@message
class Embedding(PartyMessage):
    """Party to server: C(h_m) of the batch of a turn, float32 (rows, width).

    Args:
        turn: the batch's number, from 1.
    """

    turn: int
    h: Annotated[Released, TensorSpec("rows", "width")]


@message
class Differences(ServerMessage):
    """Server to party: C(delta^j) / mu, float32 (losses, directions): one loss a batch, or one a row.

    Divided by mu they are slopes, and fit into half precision.

    Args:
        round: the embedding's round.
        mark: identifies the directions' keystream.
    """

    mark: int
    delta: Annotated[Tensor, TensorSpec("losses", "directions")]


def limits(federation: FederationConfig, config: Config) -> dict[str, int]:
    """The largest value of every dimension."""
    losses = federation.batch if config.delta == "row" else 1
    return {
        "rows": federation.batch, "width": config.embedding, "losses": losses, "directions": config.directions
    }  # fmt: skip


def check(_federation: FederationConfig, config: Config) -> None:
    """Rejects more orthogonal directions than the embedding's width."""
    if config.draw == "orthogonal" and config.directions > config.embedding:
        raise ConfigError(
            f"federation.protocol.directions = {config.directions}: at most {config.embedding}, the embedding's width, "
            "stand at right angles to each other",
            hint="lower it, or take draw: sphere",
        )
    if config.ahead is not None and not config.arrivals:
        raise ConfigError(
            f"federation.protocol.ahead = {config.ahead}: `ahead` needs asynchronous rounds",
            hint="leave it out, or set arrivals to true",
        )


CONTRACT = Contract(
    title="VFL-CZOFO: differences of the loss instead of gradients, few bits, parties that act when they like",
    source="Wang et al. 2023, Algorithm 1",
    config=Config,
    messages=(Embedding, Differences, Evaluation),
    limits=limits,
    exchange=Exchange("embeddings", "losses"),
    in_step=True,
    check=check,
    response_noise=True,
    sees={
        "server": "every party's embeddings of the training, validation and test rows, in the clear",
        "party": "how the loss changes along directions that it knows, of a batch or of every row: exact equations "
        "in the gradient at its cut layer, which carry information about the labels",
    },
)
