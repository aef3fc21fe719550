"""Settings of one released code a row, and of the encoder that makes it."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from colonnade.common.errors import ConfigError

_WHERE = "federation.privacy"
_SPREAD = 16.0  # how much likelier the code than all others together is to be released: groups are the larger


class DiscretePrivacyConfig(BaseModel):
    """A row of a party is released once, as one of k codes, by subset selection (common/privacy/subsets.py).

    Neighbours differ in one row: other features, or another label. What a training row leaves is its part in the
    encoder, trained by DP-SGD over secretly drawn rows (common/privacy/accounting/sampled.py), and one code. Every
    other row leaves one code only. So `epsilon` bounds everything that a party sends of a row, at `delta`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    mechanism: Literal["discrete"] = Field(description="the mechanism, which decides the other keys of this section")
    epsilon: float = Field(gt=0, description="of a row at a party: of its code, and of its part in the encoder")
    encoder: float | None = Field(
        default=None, gt=0, description="part of epsilon that the encoder takes of training rows; left out, half of it"
    )
    counts: float | None = Field(
        default=None,
        gt=0,
        description="part of epsilon that noisy counts of what the encoder names take of training rows, where there "
        "are fewer codes than classes: the server groups classes by them; left out, none, and groups by a fixed rule",
    )
    held_out: float | None = Field(
        default=None,
        gt=0,
        description="epsilon of the code of a row that the encoder did not learn from: validation, test, predictions; "
        "left out, all of epsilon",
    )
    delta: float = Field(default=1e-6, ge=1e-9, lt=1, description="probability beside epsilon, of the encoder alone")
    codes: int | None = Field(
        default=None,
        description="k, number of codes: a multiple of the classes (a class, and how sure it is), or fewer, of which "
        "each stands for a group of classes; left out, by the classes, the parties and held_out",
    )
    size: int | None = Field(
        default=None, ge=1, description="number of codes in a released set; left out, the most informative"
    )
    seeded: bool = Field(default=False, description="draws from the federation's seed: for tests, protects nothing")

    adjacency: ClassVar[Literal["row"]] = "row"
    accounting: ClassVar[Literal["exact"]] = "exact"
    evaluate: ClassVar[Literal["released"]] = "released"
    clip: ClassVar[float] = 1.0
    """C of the encoder's gradients. Its inputs have a norm of 1 at most, so that few are clipped."""
    once: ClassVar[None] = None
    noise_multiplier: ClassVar[None] = None
    rounds: ClassVar[None] = None
    predictions: ClassVar[int] = 0
    heuristic: ClassVar[str] = ""
    unbounded: ClassVar[str] = ""

    @property
    def of_encoder(self) -> float:
        """Epsilon of the encoder."""
        return self.epsilon / 2 if self.encoder is None else self.encoder

    @property
    def of_training(self) -> float:
        """Epsilon of a training row's code."""
        return self.epsilon - self.of_encoder - (self.counts or 0.0)

    @property
    def of_held_out(self) -> float:
        """Epsilon of any other row's code."""
        return self.epsilon if self.held_out is None else self.held_out

    @model_validator(mode="after")
    def _adds_up(self) -> DiscretePrivacyConfig:
        if self.of_training <= 0:
            counts = "" if self.counts is None else f" and counts = {self.counts:g}"
            raise ConfigError(
                f"{_WHERE}.encoder = {self.of_encoder:g}{counts} of epsilon = {self.epsilon:g}: nothing is left for a "
                "training row's code",
                hint="give the encoder less than epsilon, or leave it out, for half of it",
            )
        if self.of_held_out > self.epsilon:
            raise ConfigError(
                f"{_WHERE}.held_out = {self.of_held_out:g}: above epsilon = {self.epsilon:g}, which is of every row",
                hint="raise epsilon to it, or leave held_out out, for all of epsilon",
            )
        if self.codes is not None and self.codes < 2:
            raise ConfigError(
                f"{_WHERE}.codes = {self.codes}: one code says nothing of a row",
                hint="give 2 at least, or leave it out",
            )
        if self.codes is not None and self.size is not None and self.size >= self.codes:
            raise ConfigError(
                f"{_WHERE}.size = {self.size}: a set of all {self.codes} codes says nothing",
                hint=f"give 1 to {self.codes - 1}, or leave it out",
            )
        return self

    def count(self, classes: int, parties: int) -> int:
        """k, as configured or by the rule: of as many codes as the released one is told from.

        A class with two degrees of certainty if released sets are right often enough for as many codes, then a class,
        then groups of classes, of which there are enough for the parties to name a class together.

        Raises:
            ConfigError: the configured number is neither a multiple of the classes nor fewer.
        """
        if self.codes is None:
            most = 1 + math.exp(min(self.of_held_out, 30.0)) / _SPREAD
            found = [count for count in (2 * classes, classes) if count <= most]
            least = math.ceil(round(classes ** (1 / parties), 6))
            return found[0] if found else min(classes, max(2, least, int(most)))
        if self.codes > classes and self.codes % classes:
            raise ConfigError(
                f"{_WHERE}.codes = {self.codes} with {classes} classes: expected a multiple of the classes, or fewer",
                hint=f"give {self.codes // classes * classes}, or leave codes out",
            )
        return self.codes


def number_of_codes(config: object, classes: int, parties: int) -> int:
    """k of a federation; two for every class where its privacy section is none of this mechanism."""
    return config.count(classes, parties) if isinstance(config, DiscretePrivacyConfig) else 2 * classes
