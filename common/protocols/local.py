"""The active party alone: a baseline with its own columns and labels only.

The baseline Local of Wang, Gai, Yu, Zhu, "VFedMH: Vertical Federated Learning for Training Multi-party Heterogeneous
Models" (2023), Section 5.2, Tables 1 and 2. The server is the active party a: it holds the labels, and its own columns
and model in two parts.

    for each round t:
        server     derives the batch B(t)
      1 server     R_a = p(h(x_a; theta_a); theta_a) for the batch
      2 server     loss = l(R_a, y); back-propagated through p and h, one step on each

The passive parties join and follow the rounds without contributing: there are no messages.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.protocol import ProtocolConfig
from colonnade.common.contracts.contract import Contract, Exchange
from colonnade.common.errors import ConfigError


class Config(ProtocolConfig):
    """Keys under `federation.protocol`."""

    active: ClassVar[bool] = True
    optimisers: ClassVar[frozenset[str]] = frozenset({"server"})

    name: Literal["local"] = Field(default="local", description="the protocol")
    embedding: int = Field(default=60, ge=1, description="width of the active party's embedding")


def limits(_federation: FederationConfig, config: Config) -> dict[str, int]:
    """The largest value of every dimension; empty, since there are no messages."""
    return {"width": config.embedding}


def _check(federation: FederationConfig, _config: Config) -> None:
    if federation.privacy is not None:  # its budget would end a run that spends nothing
        raise ConfigError("federation.privacy: in local nothing leaves a party", hint="leave it out")


CONTRACT = Contract(
    title="The active party alone: the server trains on its own columns, and the parties say nothing",
    source="Local, a baseline of Wang et al. 2023 (VFedMH), Section 5.2",
    config=Config,
    messages=(),
    limits=limits,
    exchange=Exchange("nothing", "nothing"),
    check=_check,
    sees={"server": "nothing but its own columns and labels", "party": "nothing"},
)
