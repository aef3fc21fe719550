"""VFedMH: each party has its own architecture and optimiser, over one global embedding summed with blinding.

Wang, Gai, Yu, Zhu, "VFedMH: Vertical Federated Learning for Training Multi-party Heterogeneous Models" (2023),
Sections 4.2 to 4.5, Algorithm 1. The server is the active party l_0: it holds the labels, and its own columns and
model. Party k's model is an embedding network h and a prediction network p:

    for each round t:
        server and parties derive the batch B(t)
      0   server     S, the parties over whose embeddings the round sums            -> every party in S
      1   party k    [E_k] = h(x_k; theta_k) + r_k, blinded (Eqs. 4, 5)             -> server
      2   server     E = 1/C (h(x_a; theta_a) + sum_(k in S) [E_k])   (Eq. 6), C = |S| + 1     -> every party in S
      3   party k    R_k = p(E; theta_k)                                            -> server
      4   server     L_k = l(R_k, y)   (Eq. 7); dR_k = d L_k / d R_k                -> party k
      5   party k    back-propagates dR_k through p, and dE / C through h; one step on theta_k (Eq. 2)
          server     the same on theta_a with R_a = p(E; theta_a)

The paper sends the scalar L_k in step 4, which the party cannot differentiate; dR_k replaces it. For r_k, and the
reason it differs from the paper's, see common/aggregation/masks.py.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from colonnade.common.aggregation.masked_sums import Summing
from colonnade.common.aggregation.messages import BLINDED, blinded_limits
from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.protocol import ProtocolConfig
from colonnade.common.contracts.contract import Contract, Exchange
from colonnade.common.messaging.fields import Released, Tensor
from colonnade.common.messaging.message import Alike, PartyMessage, ServerMessage, TensorSpec, message


class Config(ProtocolConfig):
    """Keys under `federation.protocol`."""

    active: ClassVar[bool] = True
    optimisers: ClassVar[frozenset[str]] = frozenset({"party", "head", "server"})

    name: Literal["vfedmh"] = Field(default="vfedmh", description="the protocol")
    embedding: int = Field(default=64, ge=1, description="width of every member's embedding")
    aggregate: Summing = Field(
        default="blinded", description="clear: the server sees every party's embeddings, as in most other protocols"
    )


@message
class Embedding(PartyMessage):
    """Party to server, where sums are in the clear: E_k of the batch, float32 (rows, width)."""

    e: Annotated[Released, TensorSpec("rows", "width")]


@message
class Evaluation(PartyMessage):
    """Party to server, likewise: E_k of one block of the validation or test rows, float32 (rows, width)."""

    part: str
    block: int
    e: Annotated[Released, TensorSpec("rows", "width")]


@message
class Global(ServerMessage):
    """Server to party: E, float32 (rows, width), the average over C members.

    Stage 0 is the training batch of the round; every block of validation or test rows has its own stage.

    Args:
        stage: 0: the training batch; then the blocks of validation and test rows in order.
        members: C, including the server.
    """

    alike: ClassVar[Alike | None] = Alike(("members", "e"), key=("stage",))

    stage: int
    members: int
    e: Annotated[Tensor, TensorSpec("rows", "width")]


@message
class Prediction(PartyMessage):
    """Party to server: R_k, its logits, float32 (rows, classes): a function of E and of what p has learned from E.

    Args:
        stage: the Global's stage.
        r: R_k, logits.
    """

    stage: int
    r: Annotated[Tensor, TensorSpec("rows", "classes", public="made of E, and of gradients at what was made of E")]


@message
class Gradient(ServerMessage):
    """Server to party: dR_k, the gradient of the batch's mean loss at R_k, float32 (rows, classes)."""

    dr: Annotated[Tensor, TensorSpec("rows", "classes")]


def limits(federation: FederationConfig, config: Config) -> dict[str, int]:
    """The largest value of every dimension."""
    return {
        "rows": federation.batch,
        "width": config.embedding,
        "classes": federation.outputs,
        **blinded_limits(federation, federation.batch, config.embedding),
    }


CONTRACT = Contract(
    title="VFedMH: heterogeneous models over one global embedding, which is added up blind",
    source="Wang et al. 2023, Algorithm 1",
    config=Config,
    messages=(Embedding, Evaluation, Global, Prediction, Gradient, *BLINDED),
    limits=limits,
    exchange=Exchange("embeddings", "average"),
    in_step=True,
    sees={
        "server": "sums of the parties' embeddings of the training, validation and test rows (in the clear: each of "
        "them), from which columns can be estimated, and every party's predictions from the global embedding",
        "party": "the global embedding of the same rows, and the gradient of its own loss at its predictions, which "
        "tells the labels of its batch rows",
    },
)
