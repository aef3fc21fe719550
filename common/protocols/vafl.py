"""VAFL: a weighted sum of all embeddings, with learned weights, or their concatenation; synchronous or asynchronous.

Chen, Jin, Sun, Yin, "VAFL: a Method of Vertical Asynchronous Federated Learning" (2020). Synchronous (`arrivals:
false`), as Xie et al. 2024 run it:

    for each round t:
        server and parties derive the batch B(t)
      1   party k    h_k = f(x_k; theta_k) for the batch              -> server
      2   server     h = sum_k a_k h_k, loss = l(g(h; theta_0), y); one SGD step on theta_0 and on a
      3   server     dh_k = d loss / d h_k, before that step          -> party k
      4   party k    back-propagates dh_k through f, one step on theta_k

Asynchronous (`arrivals: true`), as in Chen et al.: a party takes its turns i = 1, 2, .. at its own pace, on its own
batch B(i), and waits for the server only:

      1   party k    h_k of B(i), and i                               -> server
      2   server     keeps h_k as party k's last of these rows; as above with everyone's last h
                     (zeros where there is none yet)
      3   server     dh_k                                             -> this party alone
      4   party k    as above, then turn i + 1

A round then has as many arrivals as there are parties. Only a round with an evaluation waits for all parties, subject
to the quorum: turns in progress when it opens are discarded at both ends and repeated.

With `combine: concatenate` the head's input is [h_1 .. h_M] instead, and there are no weights a.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.protocol import INTERACTING, LARGE, SMALL, Defaults, ProtocolConfig
from colonnade.common.contracts.contract import Contract, Exchange
from colonnade.common.contracts.embeddings import Evaluation, Gradient
from colonnade.common.messaging.fields import Released
from colonnade.common.messaging.message import PartyMessage, TensorSpec, message


class Config(ProtocolConfig):
    """Keys under `federation.protocol`."""

    defaults: ClassVar[Defaults] = Defaults(LARGE, SMALL, joint=INTERACTING)
    ranks: ClassVar[bool] = True

    name: Literal["vafl"] = Field(default="vafl", description="the protocol")
    embedding: int = Field(default=60, ge=1, description="width of every party's embedding")
    combine: Literal["sum", "concatenate"] = Field(
        default="sum",
        description="the head's input: the embeddings' sum with learned weights, or the embeddings side by side",
    )
    weights_lr: float = Field(default=0.01, gt=0, description="learning rate of the weights a_k of a sum")
    arrivals: bool = Field(
        default=False, description="asynchronous: every party acts when it is ready, instead of all in every round"
    )
    missing: Literal["zero", "last", "skip"] = Field(
        default="zero",
        description="replacement for a party that did not answer: zeros, its last value, or skip the round; "
        "with `arrivals` it is always its last",
    )


@message
class Embedding(PartyMessage):
    """Party to server: h_k of the batch of a turn (the round, unless `arrivals`), float32 (rows, width).

    Args:
        turn: the batch's number, from 1.
    """

    turn: int
    h: Annotated[Released, TensorSpec("rows", "width")]


def limits(federation: FederationConfig, config: Config) -> dict[str, int]:
    """The largest value of every dimension."""
    return {"rows": federation.batch, "width": config.embedding}


CONTRACT = Contract(
    title="VAFL: a learned weighted sum of embeddings, or all side by side; together or as the parties come",
    source="Chen et al. 2020",
    config=Config,
    messages=(Embedding, Gradient, Evaluation),
    limits=limits,
    exchange=Exchange("embeddings", "gradients"),
    in_step=True,
    sees={
        "server": "every party's embeddings of the training, validation and test rows, in the clear",
        "party": "the gradients of the loss at its own cut layer, which carry information about the labels, unless "
        "server.privacy.answers puts noise on them",
    },
    response_noise=True,
)
