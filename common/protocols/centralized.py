"""The reference: one model on the joined columns. IT SHARES EVERY FEATURE with the server.

No federated learning and no privacy: the result with all columns in one place, as a reference for every other protocol
of this repository. It is the "centralized setting" of Xie et al., "Improving Privacy-Preserving Vertical Federated
Learning by Efficient Communication with ADMM", Section VI:

    for each round t:
        server and parties derive the batch B(t)
      1   party k    x_k, its raw columns of the batch                               -> server
      2   server     loss = l(g([x_1 .. x_M]; theta_0), y); one step on theta_0

Nothing goes back to the parties.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.protocol import ProtocolConfig
from colonnade.common.contracts.contract import Contract, Exchange
from colonnade.common.messaging.fields import Released
from colonnade.common.messaging.message import PartyMessage, TensorSpec, message


class Config(ProtocolConfig):
    """Keys under `federation.protocol`."""

    optimisers: ClassVar[frozenset[str]] = frozenset({"server"})

    name: Literal["centralized"] = Field(default="centralized", description="the protocol")
    columns: int = Field(default=1024, ge=1, description="the most columns that one party may have")


@message
class Features(PartyMessage):
    """Party to server: the party's raw columns of the batch, scaled, float32 (rows, columns)."""

    x: Annotated[Released, TensorSpec("rows", "columns")]


@message
class Evaluation(PartyMessage):
    """Party to server: its raw columns of one block of the validation or test rows, float32 (rows, columns)."""

    part: str
    block: int
    x: Annotated[Released, TensorSpec("rows", "columns")]


def limits(federation: FederationConfig, config: Config) -> dict[str, int]:
    """The largest value of every dimension."""
    return {"rows": federation.batch, "columns": config.columns}


CONTRACT = Contract(
    title="The reference without any privacy: raw columns go to the server, which trains one model",
    source="the centralized setting of Xie et al. 2024, Section VI",
    config=Config,
    messages=(Features, Evaluation),
    limits=limits,
    exchange=Exchange("columns", "nothing"),
    in_step=True,
    sees={
        "server": "EVERYTHING: every party's raw columns of the training, validation and test rows, in the clear",
        "party": "nothing",
    },
)
