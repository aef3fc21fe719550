"""aggVFL: every member predicts on its own, the predictions are averaged, and nothing is trained on top.

The baselines Heter_aggVFL and Homo_aggVFL of Wang, Gai, Yu, Zhu, "VFedMH: Vertical Federated Learning for Training
Multi-party Heterogeneous Models" (2023), Sections 5.2 and 5.5, Table 2. The server is the active party a: it holds the
labels, and its own columns and model in two parts. K passive parties hold other columns of the same rows:

    for each round t:
        server and parties derive the batch B(t)
      1   party k    R_k = p(h(x_k; theta_k); theta_k) for the batch             -> server
      2   server     R = 1/C (R_a + sum_k R_k), loss = l(R, y)
      3   server     dR_k = d loss / d R_k, which is 1/C d loss / d R            -> every party, the same
      4   party k    back-propagates dR_k through p and h; one step on each; the active party likewise

C counts the active party and the included passive parties. R are logits: the softmax is in the loss. Equal models
(Homo) or different ones (Heter) are each member's choice.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.protocol import ProtocolConfig
from colonnade.common.contracts.contract import Contract, Exchange
from colonnade.common.messaging.fields import Released, Tensor
from colonnade.common.messaging.message import Alike, PartyMessage, ServerMessage, TensorSpec, message


class Config(ProtocolConfig):
    """Keys under `federation.protocol`."""

    active: ClassVar[bool] = True
    optimisers: ClassVar[frozenset[str]] = frozenset({"party", "head", "server"})

    name: Literal["agg_vfl"] = Field(default="agg_vfl", description="the protocol")
    embedding: int = Field(default=60, ge=1, description="width of a member's embedding, which it keeps")
    missing: Literal["leave_out", "zero", "last", "skip"] = Field(
        default="leave_out",
        description="a party that did not answer: left out, so that the average is over those who did; or in its place "
        "zeros, so that it is over all, its last, or no round",
    )


@message
class Prediction(PartyMessage):
    """Party to server: R_k of the batch, float32 (rows, classes)."""

    r: Annotated[Released, TensorSpec("rows", "classes")]


@message
class Gradient(ServerMessage):
    """Server to party: the gradient of the batch's mean loss with respect to R_k, float32 (rows, classes)."""

    alike: ClassVar[Alike | None] = Alike(("dr",))

    dr: Annotated[Tensor, TensorSpec("rows", "classes")]


@message
class Evaluation(PartyMessage):
    """Party to server: R_k of one block of the validation or test rows, float32 (rows, classes)."""

    part: str
    block: int
    r: Annotated[Released, TensorSpec("rows", "classes")]


def limits(federation: FederationConfig, config: Config) -> dict[str, int]:
    """The largest value of every dimension."""
    return {"rows": federation.batch, "width": config.embedding, "classes": federation.outputs}


CONTRACT = Contract(
    title="aggVFL: the average of all members' predictions, the server's own among them",
    source="Heter_aggVFL and Homo_aggVFL, baselines of Wang et al. 2023 (VFedMH), Section 5.2",
    config=Config,
    messages=(Prediction, Gradient, Evaluation),
    limits=limits,
    exchange=Exchange("logits", "gradients"),
    in_step=True,
    sees={
        "server": "every party's logits of the training, validation and test rows, in the clear",
        "party": "the gradient at the average of all logits of its batch rows, which names their labels",
    },
)
