"""FedBCD: split learning with many local steps per gradient.

Liu, Zhang, Kang, Li, Chen, Hong, Yang, "FedBCD: A Communication-Efficient Collaborative Learning
Framework for Distributed Features" (arXiv 2019; IEEE Transactions on Signal Processing, 2022), its
parallel form, with embeddings side by side and labels at the server alone, as Xie et al. 2024 run it:

    for each round t:
        server and parties derive the batch B(t)
      1   party k    h_k = f(x_k; theta_k) for the batch              -> server
      2   server     loss = l(g([h_1 .. h_M]; theta_0), y); one SGD step on theta_0
      3   server     dh_k = d loss / d h_k, before that step          -> party k
      4   party k    tau times: back-propagates the same dh_k through f at the theta_k that it now has,
                     one step on theta_k
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.protocol import INTERACTING, SMALL, Defaults, Missing, ProtocolConfig
from colonnade.common.contracts.contract import Contract, Exchange
from colonnade.common.contracts.embeddings import Embedding, Evaluation, Gradient


class Config(ProtocolConfig):
    """Keys under `federation.protocol`."""

    defaults: ClassVar[Defaults] = Defaults(SMALL, SMALL, joint=INTERACTING)
    ranks: ClassVar[bool] = True

    name: Literal["fedbcd"] = Field(default="fedbcd", description="the protocol")
    embedding: int = Field(default=60, ge=1, description="width of every party's embedding")
    tau: int = Field(default=5, ge=1, description="local steps per exchange; 1 is split learning")
    missing: Missing = "zero"


def limits(federation: FederationConfig, config: Config) -> dict[str, int]:
    """The largest value of every dimension."""
    return {"rows": federation.batch, "width": config.embedding}


CONTRACT = Contract(
    title="FedBCD: split learning with many local steps along one stale gradient",
    source="Liu et al. 2022, the parallel algorithm",
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
