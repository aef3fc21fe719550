"""FDML: every party predicts on its own, the predictions are averaged, and every party holds the labels.

Hu, Niu, Yang, Zhou, "FDML: A Collaborative Machine Learning Framework for Distributed Features"
(KDD 2019), synchronous, as Xie et al. 2024 run it. FDML assumes that every party owns a copy of the labels. Here only
the server holds them, so it **sends every party the labels** of its batches:

    for each round t:
        server and parties derive the batch B(t)
      1   party k    o_k = f(x_k; theta_k) W_k for the batch          -> server
      2   server     y, the labels of the batch                       -> party k
      3   server     o = 1/M sum_k o_k                                -> party k
      4   party k    puts o_k into o as it was; do = (softmax(o) - y) / b, the gradient of the batch's mean
                     cross-entropy at o; back-propagates do through W_k and f; one step on W_k, one on theta_k

Every party uses the whole of do, not the 1/M of it that the mean passes on: it descends M times the loss. If o_k is
sent with noise, clipped or compressed, the party replaces its own part of o by the original (`own: exact`). This costs
no privacy, since nothing more is sent. It is ours: in the papers a party takes o as the server returns it, and its
gradient passes the clip as every other operation (`own: sent`).
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from colonnade.common.aggregation.masked_sums import Summing
from colonnade.common.aggregation.messages import BLINDED, blinded_limits
from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.protocol import Missing, ProtocolConfig
from colonnade.common.contracts.contract import Contract, Exchange
from colonnade.common.contracts.logits import Evaluation, Logits
from colonnade.common.messaging.fields import Tensor
from colonnade.common.messaging.label_messages import LABEL_MESSAGES
from colonnade.common.messaging.message import Alike, ServerMessage, TensorSpec, message


class Config(ProtocolConfig):
    """Keys under `federation.protocol`."""

    optimisers: ClassVar[frozenset[str]] = frozenset({"party", "head"})
    matrix: ClassVar[bool] = True

    name: Literal["fdml"] = Field(default="fdml", description="the protocol")
    embedding: int = Field(default=60, ge=1, description="width of a party's embedding, which it keeps")
    aggregate: Summing = "clear"
    own: Literal["exact", "sent"] = Field(
        default="exact",
        description="a party's own part of the mean: exact puts its logits back as they were; sent leaves the mean as "
        "the server returned it, and follows its gradient back through the clip of federation.privacy",
    )
    missing: Missing = "zero"


@message
class Aggregate(ServerMessage):
    """Server to party: o, the mean of all parties' logits of the batch, float32 (rows, classes)."""

    alike: ClassVar[Alike | None] = Alike(("o",))

    o: Annotated[Tensor, TensorSpec("rows", "classes")]


def limits(federation: FederationConfig, config: Config) -> dict[str, int]:
    """The largest value of every dimension."""
    return {
        "rows": federation.batch,
        "width": config.embedding,
        "classes": federation.outputs,
        **blinded_limits(federation, federation.batch, federation.outputs),
    }


CONTRACT = Contract(
    title="FDML: averaged logits; every party is given the labels",
    source="Hu et al. 2019",
    config=Config,
    messages=(Logits, *LABEL_MESSAGES, Aggregate, Evaluation, *BLINDED),
    limits=limits,
    exchange=Exchange("logits", "labels"),
    in_step=True,
    sees={
        "server": "every party's logits of the training, validation and test rows, in the clear; "
        "blinded, their sums, from which columns can be estimated too",
        "party": "THE LABELS of all training rows, and the mean of all parties' logits of its batch rows",
    },
)
