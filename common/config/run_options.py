"""Options of a run, which its members agree on: rows, evaluation, checkpoints, quorum, timeouts, early stop, rates."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, Field, model_validator

from colonnade.common.errors import ConfigError
from colonnade.common.section import Section

Task = Literal["classification", "regression"]
Precision = Annotated[
    Literal["float32", "bfloat16"] | None,
    Field(
        description="arithmetic of the layers, else float32; weights, optimiser and embeddings are float32 with both"
    ),
]


def _number(value: Any) -> Any:
    """YAML 1.1 reads a number with an exponent and no point, such as 1e-1, as text."""
    return float(value) if isinstance(value, str) and _EXPONENT.fullmatch(value) else value


_EXPONENT = re.compile(r"[-+]?\d+[eE][-+]?\d+")
Count = Annotated[int, Field(strict=True, ge=0)]
Fraction = Annotated[float, Field(strict=True, ge=0, lt=1), BeforeValidator(_number)]

_MOST_MIXED = 1 << 24  # rows


class RowsConfig(Section):
    """Number of training, validation and test rows: a count, or for the latter two a fraction below 1."""

    train: Annotated[int, Field(strict=True, ge=1)] | None = Field(
        default=None, description="at most this many training rows; left out, all that remain after the other two"
    )
    validation: Count | Fraction = Field(
        default=0.1, description="validation rows: a count, or a fraction of the rows outside the test part"
    )
    test: Count | Fraction | Literal["official"] | None = Field(
        default=None,
        description="test rows: a count, a fraction of all rows, or official (the source's own test part); left out, "
        "official if the source has such a part, else a fifth",
    )


class BlockShuffle(Section):
    """A shuffle in every epoch that reads a table on disk in long stretches.

    Blocks come in a new order, and so do the rows within every group of that many blocks.
    """

    blocks: int = Field(default=4096, ge=1, description="rows of a block")
    group: int = Field(default=16, ge=1, description="blocks whose rows are mixed")

    @model_validator(mode="after")
    def _drawn_at_a_time(self) -> BlockShuffle:
        if (rows := self.blocks * self.group) > _MOST_MIXED:
            raise ConfigError(
                f"federation.shuffle: {self.group} blocks of {self.blocks} are {rows} rows, and at most {_MOST_MIXED} "
                "can be mixed",
                hint="lower `blocks` or `group`; or take full",
            )
        return self


def _full(value: Any) -> Any:
    return True if value == "full" else value  # as runs of before have it


Shuffle = Annotated[bool | Literal["full"] | BlockShuffle, BeforeValidator(_full)]


class EvaluateConfig(Section):
    """Rounds after which the joint model is evaluated."""

    every: int | None = Field(default=None, ge=1, description="rounds between evaluations; left out, an epoch")
    test: Literal["end", "always"] = Field(
        default="end",
        description="evaluation of the test rows: once, or as often as of the validation rows (as with `stop`)",
    )


class CaptureConfig(Section):
    """Recording of a party's traffic on its own disk, for research."""

    every: int = Field(default=1, ge=1, description="epochs between two kept ones; the last is always kept")
    evaluations: Literal["last", "all", "none"] = Field(
        default="last", description="evaluations kept: the newest alone, all of them, or none"
    )


StopMetric = Literal[
    "measure", "accuracy", "balanced_accuracy", "auc", "average_precision", "f1", "ks", "lift", "loss", "log_loss",
    "brier", "rmse", "mae", "r2",
]  # fmt: skip

POISSON = "poisson"  # the loss of `federation.loss` that is built in

OF_NUMBERS = ("rmse", "mae", "r2", "loss")  # metrics by which a regression may be stopped

OF_TWO = ("ks", "lift")  # metrics defined only for two classes


class StopConfig(Section):
    """Early stop of a run by a metric of the validation rows; the run ends with the best round's model.

    Test rows are then evaluated together with validation rows, so that the best round's test accuracy is known at the
    end; no choice depends on it.
    """

    metric: StopMetric | None = Field(
        default="measure",
        description="metric of the validation rows to stop by; measure is the accuracy, of unequal classes the AUC or "
        "the balanced accuracy, in regression rmse, and the loss where rounds learn from all rows; null, as in runs of "
        "before, is accuracy, in regression rmse",
    )
    patience: Annotated[int, Field(ge=1)] | Literal["auto"] | None = Field(
        default="auto",
        description="evaluations in a row without a new best; auto: those of ten epochs, and at least a quarter of the "
        "run's; left out beside `drop`, no end to it",
    )
    drop: float | None = Field(
        default=None,
        gt=0,
        lt=1,
        description="distance from the best: 0.02 is two points of accuracy, .02 of an AUC, or 2 % of an error or loss",
    )

    @model_validator(mode="before")
    @classmethod
    def _drop_alone(cls, value: Any) -> Any:
        """Without a patience, `drop` alone decides."""
        alone = isinstance(value, dict) and value.get("drop") is not None and "patience" not in value
        return {**value, "patience": None} if alone else value

    @model_validator(mode="after")
    def _says_when(self) -> StopConfig:
        if self.patience is None and self.drop is None:
            raise ConfigError(
                "federation.stop: neither patience nor drop is given",
                hint="for example {patience: 5, drop: 0.02}; `none` to go to the last round",
            )
        return self


@dataclass(frozen=True)
class Quorum:
    """The responses that a round waits for, and for how long.

    All parties: `Quorum()`. The fastest k: `Quorum(need=k)`. A deadline: `Quorum(need=0, grace=s)`.

    Args:
        need: number of responses that the round requires; None means all.
        grace: seconds to wait for the others, from the arrival of the `need`-th response.
        limit: seconds after which, without `need` responses, the silent parties are given up.
    """

    need: int | None = None
    grace: float = 0.0
    limit: float = 60.0


class QuorumConfig(Section):
    """Quorum of a round: `need` and `grace`, or in short `wait`, `deadline`, `fastest` or `threshold`."""

    need: int | Literal["all"] = Field(default="all", description="responses that a round requires: a number, or all")
    grace: float = Field(
        default=0.0,
        ge=0,
        description="seconds for the others, unless they are lost, from the arrival of response number `need`",
    )

    @model_validator(mode="before")
    @classmethod
    def _in_short(cls, value: Any) -> Any:
        """Expands `wait`, {deadline: 1.0} (seconds), {fastest: k}, {threshold: R}."""
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
            case {"deadline": _} | {"fastest": _} | {"threshold": _}:
                hint = "for a number of responses, and then a while for the others, write {need: K, grace: SECONDS}"
                raise ConfigError("federation.quorum: deadline, fastest and threshold stand alone", hint=hint)
            case _:
                return value


class TimeoutsConfig(Section):
    """The two user-visible timeouts, in seconds."""

    answer: float = Field(default=60.0, gt=0, description="seconds for the response of a connected party")
    away: float = Field(
        default=60.0, gt=0, description="seconds for an absent member, before the run ends with an error"
    )


class TranscriptConfig(Section):
    """Comparison of what the server tells the parties (docs/transcript.md)."""

    every: int = Field(
        default=50,
        ge=0,
        description="rounds after which every party states to all others what it was told; 0: never, also not at the "
        "beginning and end of a session",
    )


class CheckpointConfig(Section):
    """Intervals of checkpoints, which all members save; the last round always saves one."""

    rounds: int = Field(default=50, ge=0, description="rounds between two checkpoints; 0: not by rounds")
    seconds: float = Field(default=0.0, ge=0, description="seconds between two checkpoints; 0: not by time")


class AdjustConfig(Section):
    """`federation.adjust`. None of its results leave a party, and it costs no privacy beyond that of training."""

    contrastive: float = Field(
        default=0.0, ge=0, description="beta, the weight of Eq. 8, which separates embeddings of different clusters"
    )
    confidence: float = Field(
        default=0.8, gt=0, lt=1, description="c: rows with a lower membership of their cluster are left out"
    )
    normality: float = Field(
        default=0.0, ge=0, description="alpha, the weight of Eq. 6: distances between embeddings become normal"
    )

    @property
    def asked(self) -> bool:
        return self.contrastive > 0 or self.normality > 0


MOST_BACK_OFFS = 10
_FACTOR = 0.3
_RATES = ("optimiser", "head_optimiser")

_S = TypeVar("_S", bound=BaseModel)


def back_off_factor(times: int) -> float:
    """Factor of all learning rates after this many back-offs."""
    return float(_FACTOR**times)


def with_lower_rates(section: _S, times: int) -> _S:
    """A member's section, including the server's active part, with learning rates lowered this many times."""
    if not times:
        return section
    changed: dict[str, Any] = {}
    for name in _RATES:
        if (optimiser := getattr(section, name, None)) is not None:
            changed[name] = optimiser.model_copy(update={"lr": optimiser.lr * back_off_factor(times)})
    if (active := getattr(section, "active", None)) is not None:
        changed["active"] = with_lower_rates(active, times)
    return section.model_copy(update=changed)
