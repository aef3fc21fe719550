"""Linear ADMM: softmax regression over the parties' columns by ADMM sharing, a closed form at every party.

Hu, Liu, Kong, Niu, "Learning Privately over Distributed Features: An ADMM Sharing Approach" (2019),
the Linear-ADMM of Xie et al. 2024, Table III, without its noise, which is a release. It minimises

    1/b sum_j l(sum_k x_jk W_k, y_j) + beta/2 sum_k |W_k|^2

over one matrix W_k per party, from its columns to the logits, without a bias. D_k are the batch's x_k:

    for each round t:
        server and parties derive the batch B(t)
      1   party k    o_k = D_k W_k                                                    -> server
      2   server     z = argmin l(z, y) - lambda' z + rho/2 |sum_i o_i - z|^2
      3   server     lambda += rho (sum_i o_i - z)
      4   server     g = (lambda + rho (sum_i o_i - z)) / b, the same to all          -> party k
      5   party k    W_k = argmin beta/2 |W|^2 + <g, D_k W> + M rho/2b |D_k W - o_k|^2

All M parties step at once, so step 5 has the penalty M rho of the sharing problem (Boyd et al.,
"Distributed Optimization and Statistical Learning via ADMM", 2011, Section 7.3), with which the
iteration converges for any rho > 0 when the batch is all rows: docs/protocols/linear_admm.md.

Where an epoch has B > 1 batches, step 5 has the penalty B M rho with `damping: batches`, the default: a batch moves
W_k by its share of an epoch's step, and does not fit W_k to its own rows alone. `none` is the paper's.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field

from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.protocol import Missing, ProtocolConfig
from colonnade.common.contracts.contract import Contract, Exchange
from colonnade.common.contracts.logits import Evaluation, Logits
from colonnade.common.messaging.fields import Tensor
from colonnade.common.messaging.message import Alike, ServerMessage, TensorSpec, message


class Config(ProtocolConfig):
    """Keys under `federation.protocol`."""

    few_rounds: ClassVar[bool] = True
    optimisers: ClassVar[frozenset[str]] = frozenset()

    name: Literal["linear_admm"] = Field(default="linear_admm", description="the protocol")
    rho: float = Field(
        default=0.05,
        gt=0,
        description="penalty of the constraint (smaller: longer steps); left out, .05 for classes and .5 for numbers",
    )
    beta: float = Field(default=0.001, gt=0, description="weight of the regulariser beta/2 |W|^2, beside the mean loss")
    damping: Literal["batches", "none"] = Field(
        default="batches", description="penalty of a party's step: multiplied by the batches of an epoch, or not"
    )
    missing: Missing = "zero"

    def settled(self, task: str) -> Self:
        """Sets the penalty of a regression: the squared loss has more curvature than cross-entropy."""
        return self.with_default("rho", 0.5) if task == "regression" else self


@message
class Update(ServerMessage):
    """Server to party: g, the gradient of the augmented Lagrangian at the logits, float32 (rows, classes)."""

    alike: ClassVar[Alike | None] = Alike(("g",))

    g: Annotated[Tensor, TensorSpec("rows", "classes")]


def limits(federation: FederationConfig, _config: Config) -> dict[str, int]:
    """The largest value of every dimension."""
    return {"rows": federation.batch, "classes": federation.outputs}


CONTRACT = Contract(
    title="Linear ADMM: softmax regression, logits travel, every party solves its part in closed form",
    source="Hu et al. 2019; Boyd et al. 2011, Section 7.3",
    config=Config,
    messages=(Logits, Update, Evaluation),
    limits=limits,
    exchange=Exchange("logits", "duals"),
    in_step=True,
    sees={
        "server": "every party's logits of the training, validation and test rows, in the clear",
        "party": "a gradient at the logits of its batch rows, which carries information about the labels",
    },
)
