"""`search` of a configuration file: the values that `colonnade tune` tries. Local, never sent."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from colonnade.common.section import Section


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
