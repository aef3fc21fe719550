"""`server.decide` and `server.calibrate`: from probabilities to one of two classes."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from colonnade.common.errors import ConfigError
from colonnade.common.section import Section

Criterion = Literal["f1", "youden", "cost"]
Calibrate = Literal["none", "platt", "isotonic"]

Cost = Annotated[float, Field(ge=1e-9, le=1e12)]

_EXAMPLES = "for example `f1`, {by: cost, false_positive: 1, false_negative: 8}, or {at: 0.3}"


class DecideConfig(Section):
    """The probability of the positive class from which a row is of it, chosen on the validation rows, or given.

    Expands `f1`, `youden` and a number.
    """

    by: Criterion | None = Field(
        default=None,
        description="what the threshold makes best on the validation rows: f1 (of the positive class), youden (true "
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
