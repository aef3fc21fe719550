"""VIMADMM-J: VIMADMM where every party keeps its head and sends logits instead of embeddings.

Xie, Chen, Li, Nourian, Zhang, Li, "Improving Privacy-Preserving Vertical Federated Learning by
Efficient Communication with ADMM", Algorithm 3 (without its noise, which is a release):

    for each round t:
        server and parties derive the batch B(t)
      1   party k    o_k = f(x_k; theta_k) W_k for the batch                        -> server
      2   server     z = argmin l(z, y) - lambda' z + rho/2 |sum_i o_i - z|^2       (Eq. 19)
      3   server     lambda += gamma rho (sum_i o_i - z)                            (Eq. 20)
      4   server     lambda, s_k = z - sum_(i != k) o_i                   (Eq. 21)  -> party k
      5   party k    tau times: an SGD step on W_k (Eq. 22), then one on theta_k (Eq. 23)

A party's steps depend on lambda and s_k only through the gradient at its logits o,
lambda + rho (o - s_k) = g + rho (o - o_k) with g = lambda + rho (sum_i o_i - z). It knows the o_k that it sent, so
`update: signal` sends g alone, half of the bytes, with the same result.

gamma, `dual_step`, is 1 in the paper.

With `damping: parties`, the default, step 4 sends s_k = o_k + (z - sum_i o_i) / M, and step 5 has M rho for rho: every
party covers its share of the remainder instead of all of it (Boyd et al. 2011, Section 7.3). Steps of plain SGD are
then shortened where they would overshoot (common/models/local_steps.py). `none` is the paper's.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field

from colonnade.common.aggregation.masked_sums import Summing
from colonnade.common.aggregation.messages import BLINDED, blinded_limits
from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.optimisers import SgdConfig
from colonnade.common.config.protocol import Damping, Defaults, Missing, ProtocolConfig
from colonnade.common.contracts.contract import Contract, Exchange
from colonnade.common.contracts.logits import Evaluation, Logits
from colonnade.common.errors import ConfigError
from colonnade.common.messaging.fields import Tensor
from colonnade.common.messaging.message import Alike, ServerMessage, TensorSpec, message


class Config(ProtocolConfig):
    """Keys under `federation.protocol`."""

    defaults: ClassVar[Defaults] = Defaults(
        optimiser=SgdConfig(lr=0.1, momentum=0.9), own_head=SgdConfig(lr=0.03, momentum=0)
    )
    optimisers: ClassVar[frozenset[str]] = frozenset({"party", "head"})
    matrix: ClassVar[bool] = True

    name: Literal["vimadmm_j"] = Field(default="vimadmm_j", description="the protocol")
    embedding: int = Field(default=60, ge=1, description="d_f, width of a party's embedding, which it keeps")
    rho: float = Field(
        default=0.5,
        gt=0,
        description="penalty of the constraint; left out, .5 for classes and 5 for numbers; the paper takes .5 to 2",
    )
    tau: int = Field(default=10, ge=1, description="local steps per exchange")
    dual_step: float = Field(
        default=1.0, gt=0, lt=2, description="gamma, how much of its step lambda takes; less for many parties"
    )
    damping: Damping = Field(
        default="parties",
        description="parties: local steps have rho times the number of parties, and descend; none: as in the paper",
    )
    update: Literal["variables", "signal"] = Field(
        default="variables", description="content of step 4: lambda and s_k, or the one tensor that steps depend on"
    )
    aggregate: Summing = "clear"
    missing: Missing = "zero"

    def settled(self, task: str) -> Self:
        """Sets the penalty of a regression: the squared loss has more curvature than cross-entropy."""
        return self.with_default("rho", 5.0) if task == "regression" else self


@message
class Update(ServerMessage):
    """Server to party: the dual variables lambda and the residuals s_k of the batch."""

    alike: ClassVar[Alike | None] = Alike(("dual",))

    dual: Annotated[Tensor, TensorSpec("rows", "classes")]
    residual: Annotated[Tensor, TensorSpec("rows", "classes")]


@message
class Signal(ServerMessage):
    """Server to party: g of the batch, the same for all, float32 (rows, classes).

    Args:
        g: lambda + rho (sum of logits - z).
    """

    alike: ClassVar[Alike | None] = Alike(("g",))

    g: Annotated[Tensor, TensorSpec("rows", "classes")]


def limits(federation: FederationConfig, config: Config) -> dict[str, int]:
    """The largest value of every dimension."""
    return {
        "rows": federation.batch,
        "width": config.embedding,
        "classes": federation.outputs,
        **blinded_limits(federation, federation.batch, federation.outputs),
    }


def check(_federation: FederationConfig, config: Config) -> None:
    """Rejects residuals with blinded sums: they need every party's part."""
    if config.aggregate == "blinded" and config.update != "signal":
        raise ConfigError(
            "federation.protocol.update = variables: the server cannot tell s_k without o_k, which is blinded",
            hint="set federation.protocol.update to signal: the parties then take the same steps",
        )


CONTRACT = Contract(
    title="VIMADMM-J: heads at the parties, logits travel, many local steps per exchange",
    source="Xie et al. 2024, Algorithm 3",
    config=Config,
    messages=(Logits, Update, Signal, Evaluation, *BLINDED),
    limits=limits,
    exchange=Exchange("logits", "duals"),
    in_step=True,
    check=check,
    subsampling=True,
    sees={
        "server": "every party's logits of the training, validation and test rows, in the clear; "
        "blinded, their sums, from which columns can be estimated too",
        "party": "duals and residuals of its batch rows, which carry information about the labels",
    },
)
