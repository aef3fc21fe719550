"""A whole configuration file, and its local sections, which are never hashed or sent.

`every_party` holds settings that all parties on one machine share; a party's own section overrides it key by key.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, TypeAdapter, model_validator

from colonnade.common.config.alignment import AlignmentsConfig
from colonnade.common.config.chaos import ChaosConfig, ComputingConfig
from colonnade.common.config.data.sources import DataConfig, LabelConfig
from colonnade.common.config.data.tables import TableColumnsConfig
from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.models import HeadConfig, LinearHeadConfig, MlpConfig, ModelConfig, PretrainedConfig
from colonnade.common.config.optimisers import OptimiserConfig
from colonnade.common.config.policy import PolicyConfig
from colonnade.common.config.privacy import ServerPrivacyConfig
from colonnade.common.config.protocol import PLAIN, for_task
from colonnade.common.config.run_options import CaptureConfig
from colonnade.common.errors import ConfigError
from colonnade.common.section import Section
from colonnade.common.tracking.sections import Trackers


class SearchedKey(Section):
    """Values to try for one key of the configuration: a range of numbers, or choices."""

    low: float | None = Field(default=None, description="smallest value of the range")
    high: float | None = Field(default=None, description="largest value of the range")
    log: bool = Field(default=False, description="true to draw the logarithm evenly: for rates and penalties")
    integer: bool = Field(default=False, description="true for whole numbers only")
    choices: tuple[Any, ...] = Field(default=(), description="the values themselves, instead of low and high")

    @model_validator(mode="after")
    def _one_kind(self) -> SearchedKey:
        if self.choices:
            self._check_choices()
        elif self.low is None or self.high is None:
            raise ValueError("expected low and high, or choices")
        else:
            self._check_range(self.low, self.high)
        return self

    def _check_choices(self) -> None:
        if self.low is not None or self.high is not None or self.log or self.integer:
            raise ValueError("choices stand alone: leave low, high, log and integer out")
        if len(self.choices) < 2:
            raise ValueError("expected at least 2 choices")
        if any(value in self.choices[:place] for place, value in enumerate(self.choices)):
            raise ValueError("a choice is given twice")

    def _check_range(self, low: float, high: float) -> None:
        if low > high:
            raise ValueError(f"low = {low:g} is above high = {high:g}")
        if low == high:
            raise ValueError(f"low and high are both {low:g}: the range is empty")
        if self.log and low <= 0:
            raise ValueError(f"low = {low:g} with log: expected more than 0")
        if self.integer and not (low.is_integer() and high.is_integer()):
            raise ValueError(f"low = {low:g}, high = {high:g} with integer: expected whole numbers")


Criterion = Literal["f1", "youden", "cost"]
Calibrate = Literal["none", "platt", "isotonic"]

Cost = Annotated[float, Field(ge=1e-9, le=1e12)]

_EXAMPLES = "for example `f1`, {by: cost, false_positive: 1, false_negative: 8}, or {at: 0.3}"


class DecideConfig(Section):
    """The probability threshold of the positive class, chosen on the validation rows, or given.

    Expands `f1`, `youden` and a number.
    """

    by: Criterion | None = Field(
        default=None,
        description="what the threshold optimises on the validation rows: f1 (of the positive class), youden (true "
        "positive rate less false positive rate), or cost; either this or `at`",
    )
    at: float | None = Field(default=None, gt=0, lt=1, description="the threshold itself; either this or `by`")
    false_positive: Cost | None = Field(
        default=None, description="with by: cost: cost of a row that is wrongly taken for the positive class, any unit"
    )
    false_negative: Cost | None = Field(
        default=None, description="with by: cost: cost of a row of the positive class that is missed, the same unit"
    )

    @model_validator(mode="before")
    @classmethod
    def _in_short(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {"by": value}
        if isinstance(value, int | float) and not isinstance(value, bool):
            return {"at": value}
        return value

    @model_validator(mode="after")
    def _whole(self) -> DecideConfig:
        if (self.by is None) == (self.at is None):
            given = "neither by nor at is" if self.by is None else "both by and at are"
            raise ConfigError(f"server.decide: {given} given", hint=_EXAMPLES)
        costs = {"false_positive": self.false_positive, "false_negative": self.false_negative}
        if self.by == "cost" and (lost := [name for name, cost in costs.items() if cost is None]):
            raise ConfigError(f"server.decide.by = cost: {' and '.join(lost)} not given", hint=_EXAMPLES)
        if self.by != "cost" and (there := [name for name, cost in costs.items() if cost is not None]):
            said = f"server.decide.{there[0]} without by: cost: the threshold would not depend on it"
            raise ConfigError(said, hint="set by: cost, or leave it out")
        return self


Cache = TypeVar("Cache")

Device = Annotated[str, Field(pattern=r"^(auto|cpu|cuda(:\d+)?)$", examples=["auto", "cpu", "cuda", "cuda:N"])]


def _check_address(value: str) -> str:
    host, _, port = value.rpartition(":")
    if value and not (host and port.isdecimal() and int(port) <= _LARGEST_PORT):
        raise ValueError(f"expected HOST:PORT, a port of 0 to {_LARGEST_PORT}")
    return value


def _on_loopback(value: Any) -> Any:
    """Binds a bare port to loopback: an address reachable from other machines must be explicit."""
    bare = isinstance(value, int) and not isinstance(value, bool)
    return f"127.0.0.1:{value}" if bare or (isinstance(value, str) and value.isdecimal()) else value


def _without_momentum(value: Any) -> Any:
    """Heads have no momentum by default, unlike bottom models."""
    if value == "sgd" or (isinstance(value, dict) and value.get("name", "sgd") == "sgd"):
        return {"momentum": 0.0, **(value if isinstance(value, dict) else {})}
    return value


def _distinct(values: tuple[float, ...]) -> tuple[float, ...]:
    if len(set(values)) < len(values):
        raise ValueError("expected every value once")
    return values


def _ascending(values: tuple[float, ...]) -> tuple[float, ...]:
    if any(one >= other for one, other in pairwise(values)):
        raise ValueError("expected ascending numbers")
    return values


HeadOptimiser = Annotated[OptimiserConfig, BeforeValidator(_without_momentum)]
Address = Annotated[str, AfterValidator(_check_address)]
Endpoint = Annotated[str, AfterValidator(_check_address), BeforeValidator(_on_loopback)]

Special = Annotated[tuple[float, ...], Field(min_length=1, max_length=16), AfterValidator(_distinct)]
Cuts = Annotated[tuple[float, ...], Field(min_length=1, max_length=63), AfterValidator(_ascending)]
Weight = Annotated[float, Field(gt=0, le=1e6)]
Direction = Literal["rising", "falling"]
ClassWeights = Literal["none", "balanced"] | tuple[Weight, ...]

_LARGEST_PORT = 65_535
_LEFT_OUT = "left out, the protocol's (docs/defaults.md)"


class _Member(Section):
    identity: Path | None = Field(
        default=None, description="folder with key.pem, cert.pem and ca.pem; relative to the file"
    )
    device: Device = Field(default="auto", description="processor of the models: auto, cpu, cuda or cuda:N")
    repeatable: bool = Field(
        default=True,
        description="on a GPU, kernels that give the same bits each time; false: the fastest, with factors rounded to "
        "ten bits (TF32)",
    )
    threads: int = Field(
        default=0,
        ge=0,
        description="processor threads of the member, of all its workers; 0 leaves it to torch, or to `up`",
    )
    metrics: Endpoint = Field(
        default="", description="PORT on loopback, or HOST:PORT, that Prometheus reads; empty: none"
    )
    health: Endpoint = Field(
        default="", description="PORT on loopback, or HOST:PORT, of the gRPC health service; empty: none"
    )
    alignments: AlignmentsConfig = Field(
        default=AlignmentsConfig(), description="alignments that are kept for the next runs: docs/kept_alignments.md"
    )
    trackers: Trackers = Field(default=(), description="experiment trackers of this member's record: docs/trackers.md")


class _WithColumns(Section):
    data: DataConfig
    model: ModelConfig = MlpConfig()

    @model_validator(mode="after")
    def _tower_reads_columns(self) -> Self:
        """Tells the columns which tower reads their texts or images: they are read before a model exists."""
        if isinstance(self.model, PretrainedConfig) and isinstance(self.data, TableColumnsConfig):
            object.__setattr__(self, "data", self.data.read_by(self.model))
        return self


class ActiveConfig(_WithColumns):
    """The server's own columns and bottom model, in protocols with an active party."""

    data: DataConfig = Field(description="columns of the server")
    model: ModelConfig = Field(default=MlpConfig(), description="bottom model of the server")
    optimiser: OptimiserConfig = Field(
        default=PLAIN, description=f"optimiser of the server's bottom model; {_LEFT_OUT}"
    )


class ServerConfig(_Member):
    """The server's own section."""

    listen: Address = Field(default="127.0.0.1:0", min_length=1, description="HOST:PORT; port 0 takes a free one")
    revoked: Path | None = Field(default=None, description="list of revoked certificates, read again when it changes")
    labels: LabelConfig = Field(description="source of the labels")
    privacy: ServerPrivacyConfig = Field(default=ServerPrivacyConfig(), description="protection of the labels")
    class_weights: ClassWeights = Field(
        default="none", description="weights of the classes in the server's loss: none, balanced, or one number a class"
    )
    extra_metrics: tuple[str, ...] = Field(
        default=(), description="packages' metrics of the server's evaluations, by name: docs/plug_ins.md"
    )
    decide: DecideConfig | None = Field(
        default=None,
        description="two classes: the probability from which a row is of the positive one: f1, youden, {by: cost, ...} "
        "or a number (docs/decisions.md); left out, the likelier class",
    )
    calibrate: Calibrate = Field(
        default="none",
        description="two classes: recalibration of probabilities on the validation rows: none, platt or isotonic",
    )
    head: HeadConfig = Field(
        default=LinearHeadConfig(), description=f"the server's model, on the parties' embeddings; {_LEFT_OUT}"
    )
    optimiser: HeadOptimiser = Field(default=PLAIN, description=f"optimiser of the head; {_LEFT_OUT}")
    chaos: ComputingConfig = Field(
        default=ComputingConfig(), description="the time of the server's computing on the virtual clock"
    )
    active: ActiveConfig | None = Field(
        default=None, description="columns and bottom model of the server, in protocols that support them"
    )

    def copies(self, cache: Cache | None) -> Cache | None:
        """Where copies of the labels are cached; None for private labels, whose true values stay in their table."""
        return None if self.privacy.labels is not None else cache


class PartyConfig(_Member, _WithColumns):
    """One party's own section."""

    connect: Address = Field(default="", description="HOST:PORT of the server; `up` fills it in")
    workers: int = Field(
        default=1,
        ge=1,
        le=512,
        description="processes that compute the bottom model, each a share of a batch: docs/scale.md; torchrun decides "
        "where it starts the party",
    )
    interface: str = Field(
        default="",
        description="network interface that workers on several machines talk over, with a private address; empty: "
        "loopback",
    )
    data: DataConfig = Field(description="source of the party's columns")
    model: ModelConfig = Field(default=MlpConfig(), description=f"the party's bottom model; {_LEFT_OUT}")
    optimiser: OptimiserConfig = Field(default=PLAIN, description=f"optimiser of the bottom model; {_LEFT_OUT}")
    head: HeadConfig = Field(
        default=LinearHeadConfig(), description="the party's prediction network, in agg_vfl and vfedmh"
    )
    head_optimiser: HeadOptimiser = Field(
        default=PLAIN,
        description=f"optimiser of the party's head, in protocols where it has one; {_LEFT_OUT}",
    )
    monotone: dict[str, Direction] = Field(
        default={},
        description="columns of numbers along which the score (in a scorecard the share of the positive class) only "
        "rises or only falls, {NAME: rising or falling}, in boosted protocols and scorecards; names are never sent",
    )
    special: dict[str, Special] = Field(
        default={},
        description="numbers that mean something else, {NAME: [-999, ..]}, in a scorecard: each has a bin of its own",
    )
    cuts: dict[str, Cuts] = Field(
        default={},
        description="cuts between the bins of a column of numbers, {NAME: [25, 40]}, ascending, in a scorecard: a bin "
        "holds what is above a cut, up to the next; left out, they are found",
    )
    chaos: ChaosConfig = Field(default=ChaosConfig(), description="injected faults, for tests and experiments")
    policy: PolicyConfig = Field(default=PolicyConfig(), description="requirements on the federation section")
    capture: CaptureConfig | None = Field(
        default=None, description="records the party's traffic on its disk, for research; left out, nothing"
    )


def unused(federation: FederationConfig, member: ServerConfig | PartyConfig) -> Iterator[str]:
    """A sentence for each model and optimiser of a member that the protocol does not use, unless it is the default."""
    protocol, defaults = federation.protocol, for_task(federation.protocol.defaults, federation.task)
    party, head, server = (name in protocol.optimisers for name in ("party", "head", "server"))
    agreed = "head" in type(protocol).model_fields
    keys: dict[str, tuple[bool, object]]
    if isinstance(member, ServerConfig):
        keys = {"head": (server and not agreed, _HEAD(defaults.joint)), "optimiser": (server, defaults.head)}
    else:
        width = getattr(member.model, "embedding", None)  # filled in
        keys = {
            "model": (party, _MODEL(defaults.model).model_copy(update={"embedding": width})),
            "optimiser": (party, defaults.optimiser),
            "head": (head and not protocol.matrix, LinearHeadConfig()),
            "head_optimiser": (head, defaults.own_head),
        }
    for key, (used, default) in keys.items():
        if not used and getattr(member, key) != default:
            instead = ", but federation.protocol.head" if key == "head" and agreed else ""
            yield f"the protocol {protocol.name} does not use `{key}` of this section{instead}"


_MODEL, _HEAD = TypeAdapter(ModelConfig).validate_python, TypeAdapter(HeadConfig).validate_python


class LaunchConfig(Section):
    """Restarts by `up` of a process that was killed, after a pause that doubles."""

    restarts: int = Field(default=5, ge=0, description="most restarts of one member in a run")
    backoff: float = Field(default=0.2, ge=0, description="seconds before the first restart")


class Config(Section):
    """A whole configuration file."""

    federation: FederationConfig = Field(description="the agreed section, equal at all members")
    server: ServerConfig | None = Field(default=None, description="the server's own section")
    parties: dict[str, PartyConfig] = Field(default_factory=dict, description="the parties' own sections, by name")
    launch: LaunchConfig = Field(default=LaunchConfig(), description="restarts of processes by `colonnade up`")
    search: dict[str, SearchedKey] | None = Field(
        default=None, description="values that `tune` tries, by the key as for --set; every other command ignores them"
    )
