"""The configuration of a federation: one YAML file.

`federation` is the same everywhere and compared when parties join. `server` and `parties.NAME`
are local: never hashed, never sent. `every_party` holds what all parties on one machine share;
a party's own section goes before it, key by key (tree.py; docs/tables.md).
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    SerializeAsAny,
    ValidationError,
    field_validator,
    model_validator,
)

from colonnade.common.alignment.keys import KeysConfig
from colonnade.common.config.roster import check_pin, check_roster, read_roster
from colonnade.common.config.run_options import (
    CaptureConfig,
    CheckpointConfig,
    EvaluateConfig,
    QuorumConfig,
    StopConfig,
    TimeoutsConfig,
)
from colonnade.common.conversation.chaos import ChaosConfig
from colonnade.common.conversation.compression import CompressConfig
from colonnade.common.conversation.responses import Quorum
from colonnade.common.crypto.pki.names import SERVER
from colonnade.common.data.rows import RowsConfig
from colonnade.common.data.sources import DataConfig, LabelConfig
from colonnade.common.data.split import Seat
from colonnade.common.data.targets import Task
from colonnade.common.embeddings.adjustment import AdjustConfig
from colonnade.common.errors import ConfigError, nearest
from colonnade.common.models.build import HeadConfig, ModelConfig
from colonnade.common.models.heads import LinearHeadConfig
from colonnade.common.models.optimiser import OptimiserConfig, SgdConfig
from colonnade.common.models.own import OwnConfig
from colonnade.common.models.towers.mlp import MlpConfig
from colonnade.common.parsing.consistency import check_answers, check_labels, check_task, check_together
from colonnade.common.parsing.error_messages import in_words, shown
from colonnade.common.parsing.yaml_tree import override, read_tree, share_template
from colonnade.common.privacy.labels import LabelPrivacyConfig
from colonnade.common.privacy.mechanism import Privacy
from colonnade.common.privacy.response_noise import AnswerPrivacyConfig
from colonnade.common.privacy.settings import BEFORE, PolicyConfig
from colonnade.common.protocols import CONTRACTS
from colonnade.common.protocols.contract import ProtocolConfig
from colonnade.common.section import Section
from colonnade.common.secure_aggregation.masked_sums import BlindingConfig

Device = Annotated[str, Field(pattern=r"^(auto|cpu|cuda:\d+)$", description="auto, cpu or cuda:N")]


def _check_address(value: str) -> str:
    host, _, port = value.rpartition(":")
    if value and not (host and port.isdecimal() and int(port) <= _LARGEST_PORT):
        raise ValueError(f"expected HOST:PORT, a port of 0 to {_LARGEST_PORT}")
    return value


def _on_loopback(value: Any) -> Any:
    """A bare port is one of loopback: who wants to be reached from elsewhere has to say so."""
    bare = isinstance(value, int) and not isinstance(value, bool)
    return f"127.0.0.1:{value}" if bare or (isinstance(value, str) and value.isdecimal()) else value


Address = Annotated[str, AfterValidator(_check_address)]
Endpoint = Annotated[str, AfterValidator(_check_address), BeforeValidator(_on_loopback)]

Weight = Annotated[float, Field(gt=0, le=1e6)]
ClassWeights = Literal["none", "balanced"] | tuple[Weight, ...]

_LARGEST_PORT = 65_535


# Of the federation section: what a resumed run may have otherwise.
_MAY_CHANGE = ("parties", "server", "rounds", "epochs", "quorum", "timeouts", "checkpoint", "absence", "stop")


_NEWER = [("privacy.accounting", BEFORE["accounting"])]


class FederationConfig(Section):
    """What all members agree on."""

    id: str = Field(min_length=1, description="names the federation; a party joins no other")
    protocol: SerializeAsAny[ProtocolConfig]
    parties: dict[str, str] = Field(description="the roster: name -> certificate fingerprint")
    server: str = Field(default="", description="fingerprint of the server's certificate")
    task: Task = Field(default="classification", description="whether classes are predicted or numbers")
    classes: int | tuple[str, ...] = Field(default=0, description="how many classes, or their names in order")
    targets: int = Field(default=0, ge=0, description="of a regression: how many numbers a row, 1 unless given")
    epochs: int = Field(default=0, ge=0)
    rounds: int = Field(default=0, ge=0)
    batch: int = Field(ge=1, description="rows of a batch")
    shuffle: bool = Field(default=False, description="a new order of the training rows in every epoch")
    seed: int = Field(default=0, ge=0)
    align: Literal["none", "sorted", "psi"] = Field(
        default="none", description="how members come to have the same rows in the same order: docs/alignment.md"
    )
    keys: KeysConfig = KeysConfig()
    rows: RowsConfig = RowsConfig()
    evaluate: EvaluateConfig = EvaluateConfig()
    stop: StopConfig | None = Field(default=None, description="when a run ends early; left out, it does not")
    quorum: QuorumConfig = QuorumConfig()
    timeouts: TimeoutsConfig = TimeoutsConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    absence: Literal["rollback", "wait", "continue"] = Field(
        default="rollback", description="what a run does when a party is gone and may come back"
    )
    compress: CompressConfig = CompressConfig()
    blinding: BlindingConfig = BlindingConfig()
    privacy: Privacy | None = Field(default=None, description="left out, nothing is protected")
    adjust: AdjustConfig = AdjustConfig()
    participation: float = Field(default=1.0, gt=0, le=1, description="share of the parties in a training round")
    benchmark: bool = Field(default=False, description="nobody's secrets are in it: allows evaluations in the clear")

    @field_validator("parties", mode="before")
    @classmethod
    def _short_roster(cls, value: Any) -> Any:
        """The short forms."""
        return read_roster(value)

    @field_validator("parties")
    @classmethod
    def _names_and_fingerprints(cls, value: dict[str, str]) -> dict[str, str]:
        return check_roster(value)

    @field_validator("server")
    @classmethod
    def _server_fingerprint(cls, value: str) -> str:
        return check_pin(SERVER, value)

    @field_validator("protocol", mode="before")
    @classmethod
    def _protocol(cls, value: Any) -> Any:
        if isinstance(value, str):
            value = {"name": value}
        allowed = f"one of {', '.join(CONTRACTS)}"
        if not isinstance(value, dict):
            raise ConfigError(f"federation.protocol{shown(value)}: expected {allowed}, or keys and values")
        if "name" not in value:
            raise ConfigError("federation.protocol.name: missing", hint=allowed)
        name = str(value["name"])
        if name not in CONTRACTS:
            near = nearest(name, CONTRACTS)
            raise ConfigError(f"federation.protocol.name = {value['name']!r}: unknown protocol{near}", hint=allowed)
        return CONTRACTS[name].config.model_validate(value)

    @model_validator(mode="after")
    def _consistent(self) -> FederationConfig:
        check_together(self)
        return self

    @property
    def outputs(self) -> int:
        """d_c, how many classes there are; of a regression, how many numbers are predicted of a row."""
        if self.task == "regression":
            return self.targets or 1
        return self.classes if isinstance(self.classes, int) else len(self.classes)

    @property
    def names(self) -> tuple[str, ...]:
        """The parties in the roster's order."""
        return tuple(self.parties)

    @property
    def answers(self) -> Quorum:
        """How long a round waits for answers, and for whom."""
        need = None if self.quorum.need == "all" else self.quorum.need
        return Quorum(need, self.quorum.grace, self.timeouts.answer)

    def seat(self, member: str) -> Seat:
        """A member's place among those who hold columns: the active party has the first, where there is one."""
        holders = (SERVER, *self.names) if CONTRACTS[self.protocol.name].active else self.names
        return Seat(holders.index(member), len(holders))

    def lasting_hashes(self) -> dict[str, str]:
        """`hashes` of what cannot change while a run lasts: what its numbers depend on, and not how long it is."""
        # "parties" is the roster's order; "parties.NAME" are fingerprints, which may be renewed.
        hashes = self.hashes().items()
        return {key: h for key, h in hashes if key == "parties" or key.split(".")[0] not in _MAY_CHANGE}

    def hashes(self) -> dict[str, str]:
        """SHA-256 of every value by its dotted key, in hex, so that two ends can say where they differ."""
        # The roster's order is a value too: it says which columns are whose. A key that is newer than a run has none in
        # what the run has kept: at what it meant before it came, it has none here either.
        leaves = [leaf for leaf in _leaves(self) if leaf not in _NEWER] + [("parties", list(self.parties))]
        return {key: hashlib.sha256(json.dumps(value).encode()).hexdigest() for key, value in leaves}


class _Member(Section):
    identity: Path | None = Field(default=None, description="folder with key.pem, cert.pem and ca.pem")
    device: Device = "auto"
    threads: int = Field(default=0, ge=0, description="of this process; 0 leaves it to torch, or to `up`")
    metrics: Endpoint = Field(default="", description="PORT on loopback, or HOST:PORT, that Prometheus reads")
    health: Endpoint = Field(default="", description="PORT on loopback, or HOST:PORT, of the gRPC health service")


class ServerPrivacyConfig(Section):
    """What the server protects of its own."""

    labels: LabelPrivacyConfig | None = Field(default=None, description="noise on the training labels, drawn once")
    answers: AnswerPrivacyConfig | None = Field(
        default=None, description="noise on all that goes back to the parties, in protocols that can"
    )

    @model_validator(mode="after")
    def _one_of_two(self) -> ServerPrivacyConfig:
        if self.labels is not None and self.answers is not None:
            raise ConfigError(
                "server.privacy: both labels and answers are given; what comes of noisy labels is protected already",
                hint="take one of the two: a second noise on the same labels costs accuracy and protects no other",
            )
        return self


class ActiveConfig(Section):
    """The server's own columns and bottom model, in protocols where it is the active party."""

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
    active: ActiveConfig | None = Field(
        default=None, description="columns of its own, in protocols that have use for it"
    )

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
        default=None, description="keeps what crosses the party's link on its disk, for research; left out, nothing"
    )

    @field_validator("head_optimiser", mode="before")
    @classmethod
    def _plain_sgd(cls, value: Any) -> Any:
        return _without_momentum(value)


Tower = TypeVar("Tower", ActiveConfig, PartyConfig)


def _with_width(tower: Tower, agreed: int | None) -> Tower:
    """The same, with a built-in model that names no width of its own given the agreed one."""
    model = tower.model
    if agreed is None or isinstance(model, OwnConfig) or "embedding" in model.model_fields_set:
        return tower
    return tower.model_copy(update={"model": model.model_copy(update={"embedding": agreed})})


class LaunchConfig(Section):
    """What `up` does with a process that was killed: it starts it again, after a pause that doubles."""

    restarts: int = Field(default=5, ge=0, description="of one member, in a run")
    backoff: float = Field(default=0.2, ge=0, description="seconds before the first restart")


class Config(Section):
    """A whole file."""

    federation: FederationConfig
    server: ServerConfig | None = None
    parties: dict[str, PartyConfig] = Field(default_factory=dict)
    launch: LaunchConfig = LaunchConfig()

    @model_validator(mode="after")
    def _known(self) -> Config:
        for name in self.parties:
            if name not in self.federation.parties:
                near = nearest(name, self.federation.parties)
                hint = f"there are {', '.join(self.federation.names)}"
                raise ConfigError(f"parties.{name}: not in the roster federation.parties{near}", hint=hint)
            self._known_kinds(name)
        self._known_active()
        check_answers(self.federation, self.server)
        check_task(self.federation, self.server)
        check_labels(self.federation, self.server)
        agreed = getattr(self.federation.protocol, "embedding", None)
        parties = {name: _with_width(party, agreed) for name, party in self.parties.items()}
        server = self.server
        if server is not None and server.active is not None:
            server = server.model_copy(update={"active": _with_width(server.active, agreed)})
        return self.model_copy(update={"parties": parties, "server": server})

    def _known_active(self) -> None:
        name, able = self.federation.protocol.name, [n for n, contract in CONTRACTS.items() if contract.active]
        if self.server is None or (name in able) == (self.server.active is not None):
            return
        if name in able:
            raise ConfigError(
                f"server.active: missing, and in {name} the server has columns of its own",
                hint="name them: server.active.data, with a model and an optimiser, as a party has them",
            )
        raise ConfigError(
            f"server.active: in {name} the server has no columns of its own",
            hint=f"let a party hold them, or take one of {', '.join(able)}",
        )

    def _known_kinds(self, party: str) -> None:
        kinds = CONTRACTS[self.federation.protocol.name].kinds
        for kind in self.parties[party].chaos.kinds() - set(kinds):
            raise ConfigError(
                f"parties.{party}.chaos: {self.federation.protocol.name} has no message {kind!r}{nearest(kind, kinds)}",
                hint=f"there are {', '.join(kinds)}",
            )


def _without_momentum(value: Any) -> Any:
    """Heads take plain SGD steps unless a momentum is asked for; local models have one by default."""
    if value == "sgd" or (isinstance(value, dict) and value.get("name", "sgd") == "sgd"):
        return {"momentum": 0.0, **(value if isinstance(value, dict) else {})}
    return value


def load(path: Path, overrides: tuple[str, ...] = ()) -> Config:
    """Reads and checks a file. Paths in it are relative to its folder.

    Args:
        path: a YAML file.
        overrides: KEY=VALUE with dotted keys, as on the command line.

    Raises:
        ConfigError: the file or a value is wrong: it names key, value, what is allowed and the nearest key.
    """
    return parse(read_tree(path), overrides)


def parse(tree: dict[str, Any], overrides: tuple[str, ...] = ()) -> Config:
    """Checks what a YAML file holds. See `load`."""
    tree = copy.deepcopy(tree)
    for setting in overrides:
        override(tree, setting)
    merged = share_template(tree)
    try:
        return Config.model_validate(merged)
    except ValidationError as invalid:
        raise in_words(invalid, Config, merged, tree) from None


def differences(ours: Mapping[str, str], theirs: Mapping[str, str]) -> list[str]:
    """Dotted keys whose hashes differ, or that only one side has."""
    return sorted(key for key in {*ours, *theirs} if ours.get(key) != theirs.get(key))


def _leaves(model: BaseModel) -> list[tuple[str, Any]]:
    def walk(prefix: str, value: Any) -> list[tuple[str, Any]]:
        if isinstance(value, dict):
            return [leaf for key, below in value.items() for leaf in walk(f"{prefix}.{key}", below)]
        return [(prefix, value)]

    return [leaf for key, value in model.model_dump(mode="json").items() for leaf in walk(key, value)]
