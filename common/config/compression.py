"""`federation.compress`: the form in which tensors are sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, model_validator

from colonnade.common.messaging.forms import HALF, WHOLE, WIDTHS, Coded, Form, Largest, Signs
from colonnade.common.section import Section

_BITS = f"expected one of {', '.join(map(str, WIDTHS[:-1]))} or {WIDTHS[-1]}"


def _check_bits(value: object) -> object:
    if type(value) is not int or value not in WIDTHS:  # true counts as 1 elsewhere
        raise ValueError(f"{_BITS}, the bits of an entry")
    return value


def _check_short(value: object) -> object:
    if type(value) is not int or value not in WIDTHS:
        raise ValueError(f"{_BITS}, or a section {{bits: ...}}, {{top: ...}} or {{sign: true}}")
    return value


def _check_sign(value: object) -> object:
    if value is not True:
        raise ValueError("expected true; where signs are not wanted, leave the section out")
    return value


class _FormConfig(Section):
    @property
    def form(self) -> Form:
        raise NotImplementedError

    def __str__(self) -> str:
        return str(self.form)


class BitsConfig(_FormConfig):
    """A fixed number of bits an entry, on a scale for 8 or fewer."""

    bits: Annotated[int, BeforeValidator(_check_bits)] = Field(description="bits of an entry")
    rounding: Literal["stochastic", "nearest"] = Field(default="stochastic", description="rounding to the scale")
    scale: Literal["tensor", "column", "symmetric"] = Field(
        default="tensor", description="one for the tensor, one for each column, or symmetric about zero (one number)"
    )

    @model_validator(mode="after")
    def _scaled(self) -> BitsConfig:
        said = [key for key in ("rounding", "scale") if key in self.model_fields_set]
        if self.bits >= HALF and said:
            raise ValueError(f"{self.bits} bits have no scale to round to: leave out {' and '.join(said)}")
        return self

    @property
    def form(self) -> Form:
        return Coded(
            self.bits,
            nearest=self.rounding == "nearest",
            by_column=self.scale == "column",
            symmetric=self.scale == "symmetric",
        )


class TopConfig(_FormConfig):
    """The largest entries alone."""

    top: float = Field(gt=0, lt=1, description="share of the entries that are sent, the largest by magnitude")

    @property
    def form(self) -> Form:
        return Largest(self.top)


class SignConfig(_FormConfig):
    """Signs, and the mean magnitude."""

    sign: Annotated[Literal[True], BeforeValidator(_check_sign)] = Field(
        description="true: signs and one mean magnitude are sent"
    )

    @property
    def form(self) -> Form:
        return Signs()


# Tags must not be keys: errors are located by their path of keys.
_NO_SECTION, _SECTION = "no section", " section"


def _kind(value: object) -> str:
    keys = value if isinstance(value, Mapping) else type(value).model_fields if isinstance(value, Section) else None
    return _NO_SECTION if keys is None else next((key for key in ("top", "sign") if key in keys), "bits") + _SECTION


def _shortest(value: Any) -> Any:
    """Reduces a section with only bits to their number, so that both forms compare equal between members."""
    return value.bits if isinstance(value, BitsConfig) and value.form == Coded(value.bits) else value


Travel = Annotated[
    Annotated[
        Annotated[int, BeforeValidator(_check_short), Tag(_NO_SECTION)]
        | Annotated[BitsConfig, Tag("bits" + _SECTION)]
        | Annotated[TopConfig, Tag("top" + _SECTION)]
        | Annotated[SignConfig, Tag("sign" + _SECTION)],
        Discriminator(_kind),
    ],
    AfterValidator(_shortest),
]
"""Form of float32 tensors: bits an entry, or a section."""


class CompressConfig(Section):
    """Form in which float32 tensors are sent; unchanged if left out."""

    up: Travel = Field(
        default=WHOLE, description="tensors from a party: bits of an entry (32: unchanged), or a section"
    )
    down: Travel = Field(
        default=WHOLE, description="tensors to a party: bits of an entry (32: unchanged), or a section"
    )
    evaluate: Travel | None = Field(
        default=None, description="tensors from a party, of validation and test rows; left out, as `up`"
    )

    @property
    def of_parties(self) -> str:
        """Setting for the parties' tensors, as `key = value`; "" if they are sent unchanged."""
        asked = (("up", self.up), ("evaluate", self.up if self.evaluate is None else self.evaluate))
        return next((f"{key} = {value}" for key, value in asked if value != WHOLE), "")

    @property
    def evaluations(self) -> Form:
        """Form of a party's tensors of validation and test rows."""
        return form_of(self.up if self.evaluate is None else self.evaluate)


def form_of(travel: int | BitsConfig | TopConfig | SignConfig) -> Form:
    """Form that `up` or `down` selects."""
    return Coded(travel) if isinstance(travel, int) else travel.form
