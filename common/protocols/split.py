"""Split learning in the vertical setting: one gradient step per exchange.

Vepakomma, Gupta, Swedish, Raskar, "Split learning for health" (2018), as Xie et al., "Improving
Privacy-Preserving Vertical Federated Learning by Efficient Communication with ADMM", state it in
Algorithm 2:

    for each round t:
        server and parties derive the batch B(t)
      1   party k    h_k = f(x_k; theta_k) for the batch              -> server
      2   server     loss = l(g([h_1 .. h_M]; theta_0), y); one SGD step on theta_0
      3   server     dh_k = d loss / d h_k, before that step          -> party k
      4   party k    back-propagates dh_k through f, one step on theta_k
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.protocol import INTERACTING, Defaults, Missing, ProtocolConfig
from colonnade.common.contracts.contract import Contract, Exchange
from colonnade.common.contracts.embeddings import Embedding, Evaluation, Gradient


class Config(ProtocolConfig):
    """Keys under `federation.protocol`."""

    defaults: ClassVar[Defaults] = Defaults(joint=INTERACTING)
    ranks: ClassVar[bool] = True

    name: Literal["split"] = Field(default="split", description="the protocol")
    embedding: int = Field(default=60, ge=1, description="width of every party's embedding")
    missing: Missing = "zero"


def limits(federation: FederationConfig, config: Config) -> dict[str, int]:
    """The largest value of every dimension."""
    return {"rows": federation.batch, "width": config.embedding}


CONTRACT = Contract(
    title="Split learning: concatenated embeddings, one gradient step per exchange",
    source="Vepakomma et al. 2018; Xie et al. 2024, Algorithm 2",
    config=Config,
    messages=(Embedding, Gradient, Evaluation),
    limits=limits,
    exchange=Exchange("embeddings", "gradients"),
    in_step=True,
    sees={
        "server": "every party's embeddings of the training, validation and test rows, in the clear",
        "party": "the gradients of the loss at its own cut layer, which carry information about the labels",
    },
)
