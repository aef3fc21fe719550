"""The configuration of a federation: one YAML file.

`federation` is the same everywhere and compared when parties join. `server` and `parties.NAME`
are local: never hashed, never sent. `every_party` holds what all parties on one machine share;
a party's own section goes before it.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SerializeAsAny,
    ValidationError,
    field_validator,
    model_validator,
)

from common.blinded import BlindingConfig
from common.chaos import ChaosConfig
from common.conversation import Quorum
from common.crypto.certificates import check_fingerprint
from common.crypto.names import SERVER, check_party_name
from common.data.rows import RowsConfig
from common.data.sources import DataConfig, LabelConfig
from common.data.split import Seat
from common.errors import ConfigError, IdentityError, nearest
from common.models.build import HeadConfig, ModelConfig
from common.models.heads import LinearHeadConfig
from common.models.mlp import MlpConfig
from common.models.optimiser import OptimiserConfig, SgdConfig
from common.models.own import OwnConfig
from common.numerics.quantise import WHOLE, WIDTHS
from common.privacy.labels import LabelPrivacyConfig
from common.privacy.settings import PolicyConfig, PrivacyConfig
from common.protocols import CONTRACTS
from common.protocols.contract import ProtocolConfig
from common.wording import TEMPLATE, in_words, shown

Device = Annotated[str, Field(pattern=r"^(auto|cpu|cuda:\d+)$", description="auto, cpu or cuda:N")]


def _check_address(value: str) -> str:
    host, _, port = value.rpartition(":")
    if value and not (host and port.isdecimal() and int(port) <= _LARGEST_PORT):
        raise ValueError(f"expected HOST:PORT, a port of 0 to {_LARGEST_PORT}")
    return value


def _check_bits(value: int) -> int:
    if value not in WIDTHS:
        raise ValueError(f"expected one of {', '.join(map(str, WIDTHS))}")
    return value


Address = Annotated[str, AfterValidator(_check_address)]

_LARGEST_PORT = 65_535
_LARGEST_ROSTER = 10_000
_ROSTER_HINT = "a number, a list of names, or names with their certificates' fingerprints"


# Of the federation section: what a resumed run may have otherwise.
_MAY_CHANGE = ("parties", "server", "rounds", "epochs", "quorum", "timeouts", "checkpoint", "absence", "stop")


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class EvaluateConfig(_Section):
    """When the joint model is evaluated."""

    every: int | None = Field(default=None, ge=1, description="rounds; left out, at the end of every epoch")
    test: Literal["end", "always"] = Field(
        default="end", description="when on the test rows: once, or as often as on the validation rows (as with `stop`)"
    )


class StopConfig(_Section):
    """When a run ends before its last round, by the accuracy on the validation rows.

    The test rows are then evaluated with them, so that the best round's test accuracy is known at
    the end; nothing is chosen by it.
    """

    patience: int | None = Field(default=None, ge=1, description="evaluations in a row without a new best")
    drop: float | None = Field(default=None, gt=0, lt=1, description="how far below the best; 0.02 is two points")

    @model_validator(mode="after")
    def _says_when(self) -> StopConfig:
        if self.patience is None and self.drop is None:
            raise ConfigError(
                "federation.stop: neither patience nor drop is given",
                hint="for example {patience: 5, drop: 0.02}, or leave it out",
            )
        return self


class QuorumConfig(_Section):
    """For whom a round waits: common.conversation.Quorum. In short: `wait`, `deadline`, `fastest` or `threshold`."""

    need: int | Literal["all"] = Field(default="all", description="answers without which a round cannot go on")
    grace: float = Field(default=0.0, ge=0, description="seconds for the others once `need` answers are there")

    @model_validator(mode="before")
    @classmethod
    def _in_short(cls, value: Any) -> Any:
        """`wait`, {deadline: 1.0} (seconds), {fastest: k}, {threshold: R}."""
        match value:
            case "wait":
                return {}
            case str():
                hint = "wait, {deadline: SECONDS}, {fastest: K}, {threshold: R}, or {need: K, grace: SECONDS}"
                raise ConfigError(f"federation.quorum = {value!r}: expected one of", hint=hint)
            case {"deadline": seconds, **others} if not others:
                return {"need": 0, "grace": seconds}
            case {"fastest": need, **others} | {"threshold": need, **others} if not others:
                return {"need": need}
            case _:
                return value


class TimeoutsConfig(_Section):
    """The two that a user must know, in seconds."""

    answer: float = Field(default=60.0, gt=0, description="that a party which is there may take for an answer")
    away: float = Field(default=60.0, gt=0, description="that a member may be away before the run gives up")


class CheckpointConfig(_Section):
    """When all members save what they have learned. After the last round they always do."""

    rounds: int = Field(default=50, ge=0, description="between two checkpoints; 0: not by rounds")
    seconds: float = Field(default=0.0, ge=0, description="between two checkpoints; 0: not by time")


Bits = Annotated[int, AfterValidator(_check_bits)]


class CompressConfig(_Section):
    """Bits of an entry in tensors of float32: 1 to 8 on a scale of their own, 16 as halves, 32 as they are."""

    up: Bits = Field(default=WHOLE, description="from a party")
    down: Bits = Field(default=WHOLE, description="to a party")


class FederationConfig(_Section):
    """What all members agree on."""

    id: str = Field(min_length=1, description="names the federation; a party joins no other")
    protocol: SerializeAsAny[ProtocolConfig]
    parties: dict[str, str] = Field(description="the roster: name -> certificate fingerprint")
    server: str = Field(default="", description="fingerprint of the server's certificate")
    classes: int | tuple[str, ...] = Field(description="how many classes, or their names in order")
    epochs: int = Field(default=0, ge=0)
    rounds: int = Field(default=0, ge=0)
    batch: int = Field(ge=1, description="rows of a batch")
    shuffle: bool = Field(default=False, description="a new order of the training rows in every epoch")
    seed: int = Field(default=0, ge=0)
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
    privacy: PrivacyConfig | None = Field(default=None, description="left out, nothing is protected")
    participation: float = Field(default=1.0, gt=0, le=1, description="share of the parties in a training round")
    benchmark: bool = Field(default=False, description="nobody's secrets are in it: allows evaluations in the clear")

    @field_validator("parties", mode="before")
    @classmethod
    def _short_roster(cls, value: Any) -> Any:
        """The short forms."""
        return _roster(value)

    @field_validator("parties")
    @classmethod
    def _names_and_fingerprints(cls, value: dict[str, str]) -> dict[str, str]:
        if not value:
            raise ConfigError("federation.parties: there are none", hint=_ROSTER_HINT)
        try:
            return {check_party_name(name): _fingerprint(name, value[name]) for name in value}
        except IdentityError as wrong:
            raise ConfigError(f"federation.parties: {wrong}", hint=wrong.hint) from None

    @field_validator("server")
    @classmethod
    def _server_fingerprint(cls, value: str) -> str:
        return _fingerprint(SERVER, value)

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
        if bool(self.epochs) == bool(self.rounds):
            both = f"epochs = {self.epochs} and federation.rounds = {self.rounds}"
            raise ConfigError(f"federation.{both}: give one of the two, at least 1, and leave the other out")
        if self.privacy is not None and self.privacy.evaluate == "clean" and not self.benchmark:
            raise ConfigError(
                "federation.privacy.evaluate = clean: validation and test rows would leave unprotected",
                hint="leave it out; or, where nobody's secrets are in the data, set federation.benchmark to true",
            )
        if self.privacy is not None and self.privacy.epsilon and getattr(self.protocol, "arrivals", False):
            raise ConfigError(
                "federation.privacy.epsilon: parties that come when they like make as many releases as they like",
                hint="give noise_multiplier alone, and every party its policy.max_epsilon; or arrivals: false",
            )
        if self.participation < 1 and not CONTRACTS[self.protocol.name].subsampling:
            able = ", ".join(name for name, contract in CONTRACTS.items() if contract.subsampling)
            raise ConfigError(
                f"federation.participation = {self.participation:g}: {self.protocol.name} needs every party in a round",
                hint=f"leave it out, or take one of {able}",
            )
        if self.outputs < 2:
            shown = f"federation.classes = {self.classes if isinstance(self.classes, int) else list(self.classes)}"
            raise ConfigError(f"{shown}: expected at least 2")
        if self.stop is not None and not self.rows.validation:
            raise ConfigError(
                "federation.stop: there are no validation rows to go by",
                hint="set federation.rows.validation, say to 0.1",
            )
        if isinstance(self.quorum.need, int) and not 0 <= self.quorum.need <= len(self.parties):
            allowed = f"0 to {len(self.parties)}, as many as there are parties, or all"
            raise ConfigError(f"federation.quorum.need = {self.quorum.need}: expected {allowed}")
        if self.absence == "continue" and self.quorum.need in ("all", len(self.parties)):
            raise ConfigError(
                f"federation.absence = continue: a round that needs all {len(self.parties)} answers cannot go on",
                hint="set federation.quorum to {deadline: SECONDS} or {fastest: K}, or absence to wait or rollback",
            )
        CONTRACTS[self.protocol.name].check(self)
        return self

    @property
    def outputs(self) -> int:
        """d_c, how many classes there are."""
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
        """A short hash of every value by its dotted key, so that two ends can say where they differ."""
        # The roster's order is a value too: it says which columns are whose.
        leaves = [*_leaves(self), ("parties", list(self.parties))]
        return {key: hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16] for key, value in leaves}


class _Member(_Section):
    identity: Path | None = Field(default=None, description="folder with key.pem, cert.pem and ca.pem")
    device: Device = "auto"
    threads: int = Field(default=0, ge=0, description="of this process; 0 leaves it to torch, or to `up`")


class ServerPrivacyConfig(_Section):
    """What the server protects of its own."""

    labels: LabelPrivacyConfig | None = Field(default=None, description="noise on the training labels, drawn once")


class ActiveConfig(_Section):
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


class LaunchConfig(_Section):
    """What `up` does with a process that was killed: it starts it again, after a pause that doubles."""

    restarts: int = Field(default=5, ge=0, description="of one member, in a run")
    backoff: float = Field(default=0.2, ge=0, description="seconds before the first restart")


class Config(_Section):
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
    return parse(_read(path), overrides)


def parse(tree: dict[str, Any], overrides: tuple[str, ...] = ()) -> Config:
    """Checks what a YAML file holds. See `load`."""
    tree = copy.deepcopy(tree)
    for override in overrides:
        _override(tree, override)
    merged = _share_template(tree)
    try:
        return Config.model_validate(merged)
    except ValidationError as invalid:
        raise in_words(invalid, Config, merged, tree) from None


def differences(ours: Mapping[str, str], theirs: Mapping[str, str]) -> list[str]:
    """Dotted keys whose hashes differ, or that only one side has."""
    return sorted(key for key in {*ours, *theirs} if ours.get(key) != theirs.get(key))


def _read(path: Path) -> dict[str, Any]:
    try:
        tree = yaml.load(path.read_text(encoding="utf-8"), _Loader)  # noqa: S506  # a SafeLoader
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file", hint="try experiments/demo.yaml") from None
    except (OSError, UnicodeDecodeError) as unreadable:
        raise ConfigError(f"{path} cannot be read: {unreadable}") from None
    except yaml.YAMLError as malformed:
        raise ConfigError(f"{path} is not YAML: {' '.join(str(malformed).split())}") from None
    if not isinstance(tree, dict):
        found = "is empty" if tree is None else f"holds {'a list' if isinstance(tree, list) else 'text'}"
        raise ConfigError(
            f"{path}: expected keys and values, the file {found}", hint="start from experiments/demo.yaml"
        )
    return tree


class _Loader(yaml.SafeLoader):
    """Refuses a key that is given twice, of which YAML would take the last."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode) and key.value != "<<"]
        if twice := next((key for key in keys if keys.count(key) > 1), None):
            raise yaml.constructor.ConstructorError(None, None, f"the key {twice!r} is given twice", node.start_mark)
        return super().construct_mapping(node, deep)


def _override(tree: dict[str, Any], override: str) -> None:
    key, equals, value = override.partition("=")
    if not equals or not key:
        raise ConfigError(f"--set {override}: expected KEY=VALUE", hint="for example --set federation.protocol.rho=1")
    *folders, leaf = key.split(".")
    try:
        parsed = yaml.safe_load(value)
    except yaml.YAMLError:
        parsed = value
    node = tree
    for depth, folder in enumerate(folders, 1):
        if node.get(folder) is None:
            node[folder] = {}
        node = node[folder]
        if not isinstance(node, dict):
            hint = "write it as keys and values in the file, or set it as a whole"
            raise ConfigError(f"--set {override}: {'.'.join(folders[:depth])} has no keys, it is {node!r}", hint=hint)
    node[leaf] = parsed


def _share_template(tree: dict[str, Any]) -> dict[str, Any]:
    """Lays `every_party` under the section of every party of the roster."""
    if TEMPLATE not in tree:
        return tree
    rest = {key: value for key, value in tree.items() if key != TEMPLATE}
    template = {} if tree[TEMPLATE] is None else tree[TEMPLATE]
    if not isinstance(template, dict):
        raise ConfigError(f"{TEMPLATE}{shown(template)}: expected keys and values")
    federation = tree.get("federation")
    own = tree.get("parties") or {}
    if not isinstance(federation, dict) or "parties" not in federation or not isinstance(own, dict):
        return rest  # which is refused
    names = {**_roster(federation["parties"]), **own}
    return {**rest, "parties": {name: _merge(template, own.get(name) or {}) for name in names}}


_CHOICES = ("name", "file", "source", "kind")  # what says of which kind a section is


def _merge(under: Any, over: Any) -> Any:
    """Lays keys over keys. What is of another kind than the template's takes nothing from that."""
    if not isinstance(under, dict) or not isinstance(over, dict):
        return over
    if any(over[key] != under.get(key) for key in _CHOICES if key in over):
        return over
    return {**under, **{key: _merge(under.get(key), value) for key, value in over.items()}}


def _roster(value: Any) -> Any:
    """A number stands for party1, party2, ...; a list for names whose fingerprints come later."""
    if isinstance(value, int) and not isinstance(value, bool):
        if not 1 <= value <= _LARGEST_ROSTER:
            raise ConfigError(f"federation.parties = {value}: expected 1 to {_LARGEST_ROSTER}", hint=_ROSTER_HINT)
        width = len(str(value))
        return {f"party{number:0{width}}": "" for number in range(1, value + 1)}
    if isinstance(value, list):
        for place, name in enumerate(value):
            if not isinstance(name, str):
                raise ConfigError(f"federation.parties.{place} = {name!r}: expected a name", hint=_ROSTER_HINT)
            if name in value[:place]:
                raise ConfigError(f"federation.parties: {name!r} is listed twice", hint="give each party its own name")
        return dict.fromkeys(value, "")
    if not isinstance(value, dict):
        raise ConfigError(f"federation.parties{shown(value)}: expected a roster", hint=_ROSTER_HINT)
    # A name without a value is one whose fingerprint comes later.
    return {name: "" if pin is None else pin for name, pin in value.items()}


def _fingerprint(name: str, value: str) -> str:
    try:
        return value and check_fingerprint(value)
    except IdentityError as wrong:
        key = "federation.server" if name == SERVER else f"federation.parties.{name}"
        raise ConfigError(f"{key}: {wrong}", hint=wrong.hint) from None


def _leaves(model: BaseModel) -> list[tuple[str, Any]]:
    def walk(prefix: str, value: Any) -> list[tuple[str, Any]]:
        if isinstance(value, dict):
            return [leaf for key, below in value.items() for leaf in walk(f"{prefix}.{key}", below)]
        return [(prefix, value)]

    return [leaf for key, value in model.model_dump(mode="json").items() for leaf in walk(key, value)]
