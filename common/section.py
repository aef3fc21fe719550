"""A section of the configuration."""

from __future__ import annotations

from functools import cache
from typing import Any, Literal, Self, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError


class Section(BaseModel):
    """Base class: immutable; refuses unknown keys, infinities, NaN, numbers that float32 makes 0 or infinite, and truth
    values in the place of numbers.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _no_truth_values(cls, values: Any) -> Any:
        """YAML reads `yes` and `on` as true, which pydantic takes for 1."""
        for field, value in values.items() if isinstance(values, dict) else ():
            if _has_truth_value(value) and (kind := _number(cls, field, isinstance(value, bool))):
                wrong = InitErrorDetails(type=f"{kind}_type", loc=(field,), input=value)
                raise ValidationError.from_exception_data(cls.__name__, [wrong])
        return values

    @model_validator(mode="after")
    def _in_float32(self) -> Self:
        for field in self.model_fields_set:
            if not _fits(value := self.__dict__.get(field)):
                wrong = InitErrorDetails(type=_UNFIT, loc=(field,), input=value)
                raise ValidationError.from_exception_data(type(self).__name__, [wrong])
        return self


_LEAST, _MOST = 2.0**-126, 3.4e38
_UNFIT = PydanticCustomError(
    "float32", "Input should be 0, or a number that float32 holds: between 1.2e-38 and 3.4e38, or the negative of one"
)


def _fits(value: Any) -> bool:
    if isinstance(value, float):
        return value == 0 or _LEAST <= abs(value) <= _MOST
    if isinstance(value, dict):
        return all(map(_fits, value.values()))
    return not isinstance(value, list | tuple) or all(map(_fits, value))


def _has_truth_value(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_has_truth_value, value.values()))
    return any(map(_has_truth_value, value)) if isinstance(value, list | tuple) else isinstance(value, bool)


@cache
def _number(section: type[BaseModel], field: str, alone: bool) -> str:
    """The kind of numbers in a field of numbers and words; "" for other fields, and for lists that may be of words,
    whose refusal tells how to write these.
    """
    leaves = _leaves(section.model_fields[field].annotation) if field in section.model_fields else set()
    numbers = [kind.__name__ for kind in (float, int) if kind in leaves]
    return numbers[0] if numbers and leaves <= {float, int, type(None), *([str] if alone else [])} else ""


def _leaves(annotation: Any) -> set[type]:
    if get_origin(annotation) is Literal:
        return {type(word) for word in get_args(annotation)}
    if get_origin(annotation) is dict:
        return _leaves(get_args(annotation)[1])
    inner = [part for part in get_args(annotation) if isinstance(part, type) or get_args(part)]
    return set().union(*map(_leaves, inner)) if inner else {annotation}


def kind(word: str, what: str) -> Any:
    """The field whose word selects a section among others in its place."""
    return Field(default=word, description=f"{what}, which decides the other keys of this section")
