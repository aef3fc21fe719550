"""The active party alone: what its own columns and labels are worth without anybody else's.

The baseline Local of Wang, Gai, Yu, Zhu, "VFedMH: Vertical Federated Learning for Training Multi-party Heterogeneous
Models" (2023), Section 5.2, Tables 1 and 2. The server is the active party a: it holds the labels, columns and a model
in two parts of its own.

    for each round t:
        server     derives the batch B(t)
      1 server     R_a = p(h(x_a; theta_a); theta_a) for the batch
      2 server     loss = l(R_a, y); back-propagated through p and h, one step on each

The passive parties join, follow the rounds and contribute nothing: there is no message.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.protocol import ProtocolConfig
from colonnade.common.contracts.contract import Contract
from colonnade.common.errors import ConfigError


class Config(ProtocolConfig):
    """Keys under `federation.protocol`."""

    active: ClassVar[bool] = True

    name: Literal["local"] = "local"
    embedding: int = Field(default=60, ge=1, description="width of the active party's embedding")


def limits(federation: FederationConfig) -> dict[str, int]:
    """The largest value of every dimension, of which no message has one."""
    config = federation.protocol
    assert isinstance(config, Config)  # the registry pairs them
    return {"width": config.embedding}


def _check(federation: FederationConfig) -> None:
    if federation.privacy is not None:  # its budget would end a run that spends none
        raise ConfigError("federation.privacy: in local nothing leaves a party", hint="leave it out")


CONTRACT = Contract(
    title="The active party alone: the server trains on its own columns, and the parties say nothing",
    source="Local, a baseline of Wang et al. 2023 (VFedMH), Section 5.2",
    config=Config,
    messages=(),
    limits=limits,
    check=_check,
    sees={"server": "nothing but its own columns and labels", "party": "nothing"},
)
