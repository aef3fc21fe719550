"""VFL-AFE: split learning with embeddings adjusted and then protected row by row.

Mi, Liu, Xia, Sun, Guan, Zhou, "Flexible Differentially Private Vertical Federated Learning with Adaptive Feature
Embeddings" (2023), Algorithm 1:

    for each round t:
        server and parties derive the batch B(t)
      1   party i    h_i = f(x_i; theta_i) for the batch, every row brought into a region of diameter 2t,
                     grown if embeddings crowd together; N(0, 4 sigma^2 t^2) on every entry      -> server
      2   server     loss = l(g([h_1 .. h_M]; theta_0), y); one step on theta_0
      3   server     dh_i = d loss / d h_i, before that step                                     -> party i
      4   party i    clusters the rows of dh_i, separates those surely in different clusters (`federation.adjust`),
                     back-propagates dh_i and that through region and f, one step on theta_i

The messages are those of `split`. Embeddings are protected by `federation.privacy` with `mechanism: adaptive`, which is
optional in other protocols and required here.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.privacy import PROPOSED, PROPOSED_EPSILON
from colonnade.common.config.protocol import Defaults
from colonnade.common.contracts.contract import Contract, Exchange
from colonnade.common.errors import ConfigError
from colonnade.common.protocols import split


class Config(split.Config):
    """Keys under `federation.protocol`."""

    defaults: ClassVar[Defaults] = Defaults()
    ranks: ClassVar[bool] = False  # privacy of rows needs a backward pass of its own

    # The exchange is that of split.
    name: Literal["vfl_afe"] = Field(default="vfl_afe", description="the protocol")  # type: ignore[assignment]


def check(federation: FederationConfig, _config: Config) -> None:
    """Rejects a configuration without protected embeddings. Raises ConfigError."""
    if federation.privacy is None or federation.privacy.protects != "embeddings":
        raise ConfigError(
            "federation.privacy: vfl_afe protects every row, and needs mechanism: adaptive",
            hint=f"give privacy: {PROPOSED}, which finds the noise for epsilon {PROPOSED_EPSILON:g} of a row at one "
            "party over the whole run; or take split",
        )


CONTRACT = Contract(
    title="VFL-AFE: split learning with embeddings that are protected row by row and adjusted before",
    source="Mi et al. 2023, Algorithm 1",
    config=Config,
    messages=split.CONTRACT.messages,
    limits=split.limits,
    exchange=Exchange("embeddings", "gradients"),
    in_step=True,
    check=check,
    sees={
        "server": "embeddings of the training, validation and test rows with noise in every entry",
        "party": split.CONTRACT.sees["party"],
    },
)
