"""C-VFL: few and compressed exchanges, many local steps at every member; every party holds the labels.

Castiglia, Das, Wang, Patterson, "Compressed-VFL: Communication-Efficient Learning with Vertically
Partitioned Data" (ICML 2022), Algorithm 1. It assumes that every party holds the labels. Here only the server holds
them, so it **sends every party the labels** of its batches and, as the algorithm requires, **every other party's
embeddings**. One round is one exchange and its Q local iterations:

    for each round t:
        server and parties derive the batch B(t)
      1   party k    C(h_k), h_k = f(x_k; theta_k) for the batch                  -> server
      2   server     y, the labels of the batch                                   -> party k
      3   server     C(h_i) of every other party i                                -> party k
      4   server     C(theta_0), its model                                        -> party k
      5   party k    Q times: the gradient of l(g(.. C(h_i) .. h_k .. ; C(theta_0)), y) at h_k, which is made
                     anew, uncompressed, by the theta_k of that moment, back through f; a step on theta_k
      6   server     Q times: a step on theta_0 down l(g(C(h_1) .. C(h_M); theta_0), y)

C is the compression of `federation.compress`: a number of bits per entry, or all. With Q = 1 and all bits it is split
learning.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.models import JointHeadConfig, LinearHeadConfig
from colonnade.common.config.optimisers import AdamWConfig
from colonnade.common.config.protocol import Defaults, Missing, ProtocolConfig
from colonnade.common.contracts.contract import Contract, Exchange
from colonnade.common.contracts.embeddings import Evaluation
from colonnade.common.messaging.fields import Released, Tensor
from colonnade.common.messaging.label_messages import LABEL_MESSAGES
from colonnade.common.messaging.message import Alike, PartyMessage, ServerMessage, TensorSpec, message

_TOGETHER = AdamWConfig(lr=3e-4, weight_decay=0.1)  # every member takes all local steps against the others' old values


class Config(ProtocolConfig):
    """Keys under `federation.protocol`."""

    defaults: ClassVar[Defaults] = Defaults(_TOGETHER, _TOGETHER)
    ranks: ClassVar[bool] = True

    name: Literal["c_vfl"] = Field(default="c_vfl", description="the protocol")
    embedding: int = Field(default=60, ge=1, description="width of every party's embedding")
    local_steps: int = Field(default=10, ge=1, description="Q, steps of parties and server per exchange")
    head: JointHeadConfig = Field(default=LinearHeadConfig(), description="g, linear or mlp, which parties compute too")
    missing: Missing = "zero"


@message
class Embedding(PartyMessage):
    """Party to server: C(h_k) of the batch, float32 (rows, width)."""

    h: Annotated[Released, TensorSpec("rows", "width")]


@message
class Other(ServerMessage):
    """Server to party: C(h_i) of another party, float32 (rows, width); one for each, in the roster's order."""

    h: Annotated[Tensor, TensorSpec("rows", "width")]


@message
class Head(ServerMessage):
    """Server to party: C(theta_0), float32 (parameters,).

    Args:
        parameters: C(theta_0), layer by layer, weight (out, in), then bias.
    """

    alike: ClassVar[Alike | None] = Alike(("parameters",))

    parameters: Annotated[Tensor, TensorSpec("parameters")]


def parameters(federation: FederationConfig, config: Config) -> int:
    """Number of parameters in theta_0."""
    return config.head.size(config.embedding * len(federation.names), federation.outputs)


def limits(federation: FederationConfig, config: Config) -> dict[str, int]:
    """The largest value of every dimension."""
    return {
        "rows": federation.batch,
        "width": config.embedding,
        "classes": federation.outputs,
        "parameters": parameters(federation, config),
    }


CONTRACT = Contract(
    title="C-VFL: compressed exchanges, many local steps; every party is given labels and others' embeddings",
    source="Castiglia et al. 2022, Algorithm 1",
    config=Config,
    messages=(Embedding, *LABEL_MESSAGES, Other, Head, Evaluation),
    limits=limits,
    exchange=Exchange("embeddings", "labels"),
    in_step=True,
    sees={
        "server": "every party's embeddings of the training, validation and test rows, in the clear",
        "party": "THE LABELS of all training rows, EVERY OTHER PARTY'S EMBEDDINGS of them, and the server's model",
    },
)
