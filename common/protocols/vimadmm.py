"""VIMADMM: one head per party, many local steps per exchange.

Xie, Chen, Li, Nourian, Zhang, Li, "Improving Privacy-Preserving Vertical Federated Learning by
Efficient Communication with ADMM", Algorithm 1 (without its noise, which is a release):

    for each round t:
        server and parties derive the batch B(t)
      1   party k    h_k = f(x_k; theta_k) for the batch                            -> server
      2   server     z = argmin l(z, y) - lambda' z + rho/2 |sum_i h_i W_i - z|^2   (Eq. 5)
      3   server     lambda += gamma rho (sum_i h_i W_i - z)                        (Eq. 6)
      4   server     one SGD step on every head W_k                                 (Eq. 7)
      5   server     lambda, s_k = z - sum_(i != k) h_i W_i (Eq. 8), W_k            -> party k
      6   party k    tau SGD steps on theta_k                                       (Eq. 9)

With non-linear heads (Section III-B(d)) h_i W_i is g(h_i; W_i) throughout, g a small MLP. Its dropout acts
where heads and models step, in 4 and 6; z, lambda and s_k are computed without it.

Eq. 8 prints the heads *after* step 4. All heads step at once, each as if the others were fixed; residuals from the new
heads feed that overshoot back into every party and the iteration diverges at the paper's rates. Residuals here use the
sum from *before* step 4, as the authors' code does: docs/protocols/vimadmm.md.

gamma, `dual_step`, is 1 in the paper. Use a smaller value with many parties, which overshoot together.

With `federation.privacy.steps.rate` a party draws the rows of each step in 6 itself, in secret, among all training rows
whose newest dual and residual it holds.

With `damping: parties` step 5 sends s_k = h_k W_k + (z - sum_i h_i W_i) / M, and step 6 has M rho for rho: every party
covers its share of the remainder instead of all of it (Boyd et al. 2011, Section 7.3). Steps of plain SGD, in 4 and 6,
are then shortened where they would overshoot (common/models/local_steps.py). `none`, the default, is the paper's.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field

from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.models import PartyHeadConfig, ProductHeadConfig
from colonnade.common.config.protocol import SMALL, Damping, Defaults, Missing, ProtocolConfig
from colonnade.common.contracts.contract import Contract, Exchange
from colonnade.common.contracts.embeddings import Embedding, Evaluation
from colonnade.common.messaging.fields import Tensor
from colonnade.common.messaging.message import Alike, ServerMessage, TensorSpec, message


class Config(ProtocolConfig):
    """Keys under `federation.protocol`."""

    defaults: ClassVar[Defaults] = Defaults(SMALL, SMALL.model_copy(update={"lr": 5e-4}))
    ranks: ClassVar[bool] = True

    name: Literal["vimadmm"] = Field(default="vimadmm", description="the protocol")
    embedding: int = Field(default=60, ge=1, description="d_f, width of every party's embedding")
    rho: float = Field(
        default=1.0,
        gt=0,
        description="penalty of the constraint; left out, 1 for classes and 5 for numbers; the paper takes .5 to 2",
    )
    tau: int = Field(default=10, ge=1, description="local steps per exchange")
    dual_step: float = Field(
        default=1.0, gt=0, lt=2, description="gamma, how much of its step lambda takes; less for many parties"
    )
    damping: Damping = Field(
        default="none",
        description="parties: local steps have rho times the number of parties, and descend; none: as in the paper",
    )
    residual: Literal["old", "new"] = Field(
        default="old", description="heads in Eq. 8: before step 4, or after it as printed (which diverges)"
    )
    head: PartyHeadConfig = Field(default=ProductHeadConfig(), description="g, linear or mlp, alike for all parties")
    missing: Missing = "zero"

    def settled(self, task: str) -> Self:
        """Sets the penalty of a regression: the squared loss has more curvature than cross-entropy."""
        return self.with_default("rho", 5.0) if task == "regression" else self


@message
class Update(ServerMessage):
    """Server to party: the dual variables lambda and the residuals s_k of the batch, and the head W_k.

    Args:
        head: float32: W_k, (width, classes) row by row, or an MLP's parameters, layer by layer: weight (out, in), then
            bias.
    """

    alike: ClassVar[Alike | None] = Alike(("dual",))

    dual: Annotated[Tensor, TensorSpec("rows", "classes")]
    residual: Annotated[Tensor, TensorSpec("rows", "classes")]
    head: Annotated[Tensor, TensorSpec("parameters")]


def limits(federation: FederationConfig, config: Config) -> dict[str, int]:
    """The largest value of every dimension."""
    width, classes = config.embedding, federation.outputs
    return {
        "rows": federation.batch,
        "width": width,
        "classes": classes,
        "parameters": config.head.size(width, classes),
    }


CONTRACT = Contract(
    title="VIMADMM: one head per party, many local steps per exchange",
    source="Xie et al. 2024, Algorithm 1",
    config=Config,
    messages=(Embedding, Update, Evaluation),
    limits=limits,
    exchange=Exchange("embeddings", "duals"),
    in_step=True,
    secret_steps=True,
    subsampling=True,
    sees={
        "server": "every party's embeddings of the training, validation and test rows, in the clear",
        "party": "duals and residuals of its batch rows, which carry information about the labels, and its head",
    },
)
