"""A section of the configuration."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """Refuses keys that it does not know and numbers that are none, and does not change."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
