"""A whole configuration file, and the sections that are local: never hashed, never sent.

`every_party` holds the settings that all parties on one machine share; a party's own section overrides it, key by key
(common/parsing/yaml_tree.py; docs/tables.md).
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.policy import PolicyConfig
from colonnade.common.config.run_options import CaptureConfig
from colonnade.common.conversation.chaos import ChaosConfig
from colonnade.common.data.sources import DataConfig, LabelConfig
from colonnade.common.errors import ConfigError
from colonnade.common.models.build import HeadConfig, ModelConfig
from colonnade.common.models.heads import LinearHeadConfig
from colonnade.common.models.optimiser import OptimiserConfig, SgdConfig
from colonnade.common.models.towers.mlp import MlpConfig
from colonnade.common.privacy.labels import LabelPrivacyConfig
from colonnade.common.privacy.response_noise import ResponseNoiseConfig
from colonnade.common.section import Section
from colonnade.common.tracking.sections import Trackers

Device = Annotated[str, Field(pattern=r"^(auto|cpu|cuda:\d+)$", description="auto, cpu or cuda:N")]


def _check_address(value: str) -> str:
    host, _, port = value.rpartition(":")
    if value and not (host and port.isdecimal() and int(port) <= _LARGEST_PORT):
        raise ValueError(f"expected HOST:PORT, a port of 0 to {_LARGEST_PORT}")
    return value


def _on_loopback(value: Any) -> Any:
    """Binds a bare port to loopback: an address reachable from other machines must be explicit."""
    bare = isinstance(value, int) and not isinstance(value, bool)
    return f"127.0.0.1:{value}" if bare or (isinstance(value, str) and value.isdecimal()) else value


Address = Annotated[str, AfterValidator(_check_address)]
Endpoint = Annotated[str, AfterValidator(_check_address), BeforeValidator(_on_loopback)]

Weight = Annotated[float, Field(gt=0, le=1e6)]
ClassWeights = Literal["none", "balanced"] | tuple[Weight, ...]

_LARGEST_PORT = 65_535


class _Member(Section):
    identity: Path | None = Field(default=None, description="folder with key.pem, cert.pem and ca.pem")
    device: Device = "auto"
    threads: int = Field(default=0, ge=0, description="of this process; 0 leaves it to torch, or to `up`")
    metrics: Endpoint = Field(default="", description="PORT on loopback, or HOST:PORT, that Prometheus reads")
    health: Endpoint = Field(default="", description="PORT on loopback, or HOST:PORT, of the gRPC health service")
    trackers: Trackers = Field(default=(), description="experiment trackers of this member's record: docs/trackers.md")


class ServerPrivacyConfig(Section):
    """Privacy of the server's own data."""

    labels: LabelPrivacyConfig | None = Field(default=None, description="noise on the training labels, drawn once")
    answers: ResponseNoiseConfig | None = Field(
        default=None, description="noise on all responses to the parties, in protocols that support it"
    )

    @model_validator(mode="after")
    def _one_of_two(self) -> ServerPrivacyConfig:
        if self.labels is not None and self.answers is not None:
            raise ConfigError(
                "server.privacy: both labels and answers are given; results of noisy labels are already protected",
                hint="take one of the two: a second noise on the same labels costs accuracy and protects no other",
            )
        return self


class ActiveConfig(Section):
    """The server's own columns and bottom model, in protocols with an active party."""

    data: DataConfig
    model: ModelConfig = MlpConfig()
    optimiser: OptimiserConfig = SgdConfig()


class ServerConfig(_Member):
    """The server's own section."""

    listen: Address = Field(default="127.0.0.1:0", min_length=1, description="HOST:PORT; port 0 takes a free one")
    revoked: Path | None = Field(default=None, description="list of revoked certificates, read again when it changes")
    labels: LabelConfig
    privacy: ServerPrivacyConfig = ServerPrivacyConfig()
    class_weights: ClassWeights = Field(
        default="none", description="of the loss, where the server computes it: none, balanced, or one a class"
    )
    head: HeadConfig = LinearHeadConfig()
    optimiser: OptimiserConfig = SgdConfig(momentum=0)
    active: ActiveConfig | None = Field(default=None, description="columns of its own, in protocols that support them")

    @field_validator("optimiser", mode="before")
    @classmethod
    def _plain_sgd(cls, value: Any) -> Any:
        return _without_momentum(value)


class PartyConfig(_Member):
    """One party's own section."""

    connect: Address = Field(default="", description="HOST:PORT of the server")
    data: DataConfig
    model: ModelConfig = MlpConfig()
    optimiser: OptimiserConfig = SgdConfig()
    head: HeadConfig = Field(
        default=LinearHeadConfig(), description="the party's prediction network, in protocols where it has one"
    )
    head_optimiser: OptimiserConfig = Field(
        default=SgdConfig(lr=0.03, momentum=0), description="of the party's own head, in protocols where it has one"
    )
    chaos: ChaosConfig = ChaosConfig()
    policy: PolicyConfig = PolicyConfig()
    capture: CaptureConfig | None = Field(
        default=None, description="records the party's traffic on its disk, for research; left out, nothing"
    )

    @field_validator("head_optimiser", mode="before")
    @classmethod
    def _plain_sgd(cls, value: Any) -> Any:
        return _without_momentum(value)


class LaunchConfig(Section):
    """Restarts by `up` of a process that was killed, after a pause that doubles."""

    restarts: int = Field(default=5, ge=0, description="of one member, in a run")
    backoff: float = Field(default=0.2, ge=0, description="seconds before the first restart")


class Config(Section):
    """A whole configuration file."""

    federation: FederationConfig
    server: ServerConfig | None = None
    parties: dict[str, PartyConfig] = Field(default_factory=dict)
    launch: LaunchConfig = LaunchConfig()


def _without_momentum(value: Any) -> Any:
    """Sets the momentum of heads to zero unless it is given; local models have one by default."""
    if value == "sgd" or (isinstance(value, dict) and value.get("name", "sgd") == "sgd"):
        return {"momentum": 0.0, **(value if isinstance(value, dict) else {})}
    return value
