"""A section of the configuration."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Section(BaseModel):
    """Base class: immutable; refuses unknown keys, infinities and NaN."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def kind(word: str, what: str) -> Any:
    """The field whose word selects a section among others in its place."""
    return Field(default=word, description=f"{what}, which decides the other keys of this section")
