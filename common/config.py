"""The configuration of a federation: one YAML file.

`federation` is the same everywhere and compared when parties join. `server` and `parties.NAME`
are local: never hashed, never sent. `every_party` holds what all parties on one machine share;
a party's own section goes before it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import reduce
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, SerializeAsAny, ValidationError, field_validator, model_validator

from common.conversation import Quorum
from common.crypto.names import check_party_name
from common.data.rows import RowsConfig
from common.data.sources import DataConfig, LabelConfig
from common.errors import ConfigError, IdentityError, nearest
from common.models.build import HeadConfig, ModelConfig
from common.models.heads import LinearHeadConfig
from common.models.mlp import MlpConfig
from common.models.optimiser import OptimiserConfig, SgdConfig
from common.protocols import CONTRACTS
from common.protocols.contract import ProtocolConfig

Device = Annotated[str, Field(pattern=r"^(auto|cpu|cuda:\d+)$")]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class EvaluateConfig(_Section):
    """When the joint model is evaluated. The test rows are used once, after the last round."""

    every: int | None = Field(default=None, ge=1, description="rounds; left out, at the end of every epoch")


class QuorumConfig(_Section):
    """How long a round waits for answers, and for whom: common.conversation.Quorum."""

    need: int | Literal["all"] = Field(default="all", description="answers without which a round cannot go on")
    grace: float = Field(default=0.0, ge=0, description="seconds for the others once `need` answers are there")
    limit: float = Field(default=60.0, gt=0, description="seconds after which a silent party is given up")

    @property
    def quorum(self) -> Quorum:
        """As the conversation takes it."""
        return Quorum(None if self.need == "all" else self.need, self.grace, self.limit)


class FederationConfig(_Section):
    """What all members agree on."""

    id: str = Field(min_length=1, description="names the federation; a party joins no other")
    protocol: SerializeAsAny[ProtocolConfig]
    parties: dict[str, str] = Field(min_length=1, description="the roster: name -> certificate fingerprint")
    server: str = Field(default="", description="fingerprint of the server's certificate")
    classes: int | tuple[str, ...] = Field(description="how many classes, or their names in order")
    epochs: int = Field(default=0, ge=0)
    rounds: int = Field(default=0, ge=0)
    batch: int = Field(ge=1, description="rows of a batch")
    shuffle: bool = Field(default=False, description="a new order of the training rows in every epoch")
    seed: int = Field(default=0, ge=0)
    rows: RowsConfig = RowsConfig()
    evaluate: EvaluateConfig = EvaluateConfig()
    quorum: QuorumConfig = QuorumConfig()

    @field_validator("parties", mode="before")
    @classmethod
    def _roster(cls, value: Any) -> Any:
        """A number stands for party1, party2, ...; a list for names whose fingerprints come later."""
        if isinstance(value, int) and not isinstance(value, bool):
            width = len(str(value))
            return {f"party{number:0{width}}": "" for number in range(1, value + 1)}
        return dict.fromkeys(value, "") if isinstance(value, list) else value

    @field_validator("parties")
    @classmethod
    def _names(cls, value: dict[str, str]) -> dict[str, str]:
        for name in value:
            try:
                check_party_name(name)
            except IdentityError as wrong:
                raise ValueError(f"{wrong}; {wrong.hint}") from None
        return value

    @field_validator("protocol", mode="before")
    @classmethod
    def _protocol(cls, value: Any) -> Any:
        if isinstance(value, str):
            value = {"name": value}
        if not isinstance(value, dict) or "name" not in value:
            raise ValueError(f"needs a name, one of {', '.join(CONTRACTS)}")
        if value["name"] not in CONTRACTS:
            near = nearest(str(value["name"]), CONTRACTS)
            raise ValueError(f"unknown protocol {value['name']!r}{near}; there are {', '.join(CONTRACTS)}")
        return CONTRACTS[value["name"]].config.model_validate(value)

    @model_validator(mode="after")
    def _consistent(self) -> FederationConfig:
        if bool(self.epochs) == bool(self.rounds):
            raise ValueError("give either `epochs` or `rounds`, at least 1")
        if self.outputs < 2:
            raise ValueError(f"classes = {self.classes}: at least 2 are needed")
        if isinstance(self.quorum.need, int) and not 0 <= self.quorum.need <= len(self.parties):
            raise ValueError(f"quorum.need = {self.quorum.need}: there are {len(self.parties)} parties")
        return self

    @property
    def outputs(self) -> int:
        """d_c, how many classes there are."""
        return self.classes if isinstance(self.classes, int) else len(self.classes)

    @property
    def names(self) -> tuple[str, ...]:
        """The parties in the roster's order."""
        return tuple(self.parties)

    def hashes(self) -> dict[str, str]:
        """A short hash of every value by its dotted key, so that two ends can say where they differ."""
        return {key: hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16] for key, value in _leaves(self)}


class _Member(_Section):
    identity: Path | None = Field(default=None, description="folder with key.pem, cert.pem and ca.pem")
    device: Device = "auto"
    threads: int = Field(default=0, ge=0, description="of this process; 0 leaves it to torch, or to `up`")


class ServerConfig(_Member):
    """The server's own section."""

    listen: str = Field(default="127.0.0.1:0", pattern=r"^.+:\d+$", description="HOST:PORT; port 0 takes a free one")
    revoked: Path | None = Field(default=None, description="list of revoked certificates, read again when it changes")
    labels: LabelConfig
    head: HeadConfig = LinearHeadConfig()
    optimiser: OptimiserConfig = SgdConfig(momentum=0)
    patience: float = Field(default=60.0, gt=0, description="seconds to wait for the whole roster")

    @field_validator("optimiser", mode="before")
    @classmethod
    def _plain_sgd(cls, value: Any) -> Any:
        """Heads take plain SGD steps unless a momentum is asked for; local models have one by default."""
        if value == "sgd" or (isinstance(value, dict) and value.get("name", "sgd") == "sgd"):
            return {"momentum": 0.0, **(value if isinstance(value, dict) else {})}
        return value


class PartyConfig(_Member):
    """One party's own section."""

    connect: str = Field(default="", pattern=r"^(.+:\d+)?$", description="HOST:PORT of the server")
    data: DataConfig
    model: ModelConfig = MlpConfig()
    optimiser: OptimiserConfig = SgdConfig()
    patience: float = Field(default=60.0, gt=0, description="seconds to wait for the server")


class Config(_Section):
    """A whole file."""

    federation: FederationConfig
    server: ServerConfig | None = None
    parties: dict[str, PartyConfig] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _known(self) -> Config:
        for name in self.parties:
            if name not in self.federation.parties:
                near = nearest(name, self.federation.parties)
                raise ValueError(f"parties.{name}: not in the roster federation.parties{near}")
        return self


def load(path: Path, overrides: tuple[str, ...] = ()) -> Config:
    """Reads and checks a file. Paths in it are relative to its folder.

    Args:
        path: a YAML file.
        overrides: KEY=VALUE with dotted keys, as on the command line.

    Raises:
        ConfigError: the file or a value is wrong: it names key, value, what is allowed and the nearest key.
    """
    return parse(_read(path), overrides)


def parse(tree: Any, overrides: tuple[str, ...] = ()) -> Config:
    """Checks what a YAML file holds. See `load`."""
    if not isinstance(tree, dict):
        raise ConfigError("the configuration is empty", hint="start from experiments/demo.yaml")
    for override in overrides:
        _override(tree, override)
    try:
        return Config.model_validate(_share_template(tree))
    except ValidationError as invalid:
        raise _in_words(invalid) from None


def differences(ours: Mapping[str, str], theirs: Mapping[str, str]) -> list[str]:
    """Dotted keys whose hashes differ, or that only one side has."""
    return sorted(key for key in {*ours, *theirs} if ours.get(key) != theirs.get(key))


def _read(path: Path) -> Any:
    try:
        return yaml.safe_load(path.read_text())
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file", hint="try experiments/demo.yaml") from None
    except (OSError, UnicodeDecodeError) as unreadable:
        raise ConfigError(f"{path} cannot be read: {unreadable}") from None
    except yaml.YAMLError as malformed:
        raise ConfigError(f"{path} is not YAML: {' '.join(str(malformed).split())}") from None


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
    for folder in folders:
        node = node.setdefault(folder, {})
        if not isinstance(node, dict):
            raise ConfigError(f"--set {override}: {folder} is a value and has no keys")
    node[leaf] = parsed


def _share_template(tree: dict[str, Any]) -> dict[str, Any]:
    """Lays `every_party` under the section of every party of the roster."""
    template = tree.get("every_party")
    if not isinstance(template, dict):
        return tree
    federation = tree.get("federation")
    roster = federation.get("parties") if isinstance(federation, dict) else None
    names = FederationConfig._roster(roster) or {}
    own = tree.get("parties") or {}
    merged = {name: _merge(template, own.get(name) or {}) for name in {**dict.fromkeys(names), **own}}
    return {**{key: value for key, value in tree.items() if key != "every_party"}, "parties": merged}


def _merge(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    both = dict(under)
    for key, value in over.items():
        below = both.get(key)
        both[key] = _merge(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return both


def _leaves(model: BaseModel) -> list[tuple[str, Any]]:
    def walk(prefix: str, value: Any) -> list[tuple[str, Any]]:
        if isinstance(value, dict):
            return [leaf for key, below in value.items() for leaf in walk(f"{prefix}.{key}", below)]
        return [(prefix, value)]

    return [leaf for key, value in model.model_dump(mode="json").items() for leaf in walk(key, value)]


def _in_words(invalid: ValidationError) -> ConfigError:
    first = invalid.errors()[0]
    key = ".".join(str(step) for step in first["loc"] if not _is_union_tag(step))
    if first["type"] == "extra_forbidden":
        known = _keys_at(first["loc"][:-1])
        return ConfigError(
            f"{key}: unknown key{nearest(str(first['loc'][-1]), known)}",
            hint=f"allowed here: {', '.join(known)}" if known else "",
        )
    if first["type"] == "missing":
        return ConfigError(f"{key}: missing", hint="add it to the file")
    said = first["msg"].removeprefix("Value error, ").removeprefix("Input ")
    value = first["input"]
    shown = "" if isinstance(value, dict | list | BaseModel) else f" = {value!r}"
    return ConfigError(f"{key}{shown}: {said}".removeprefix(": "))


def _is_union_tag(step: int | str) -> bool:
    return isinstance(step, str) and (step.endswith("Config") or step.startswith("function-"))


def _keys_at(location: tuple[int | str, ...]) -> list[str]:
    """The keys that the model at a location of the tree allows."""

    def below(model: Any, step: int | str) -> Any:
        fields = getattr(model, "model_fields", {})
        return _model_of(fields[step].annotation) if step in fields else model

    found = reduce(below, location, Config)
    return sorted(getattr(found, "model_fields", {}))


def _model_of(annotation: Any) -> Any:
    for candidate in (annotation, *getattr(annotation, "__args__", ())):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None
