"""`federation.blinding`: sums of which the server sees no part."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from colonnade.common.section import Section


class BlindingConfig(Section):
    """`federation.blinding`: sums of which the server sees no part, where they are `blinded`; `least` in FedVS too."""

    bound: float = Field(default=64.0, gt=0, description="B, the size that every number is clipped to")
    bits: Literal[32, 64] = Field(default=32, description="b, of the words that are added up")
    least: int = Field(default=3, ge=2, description="parties that a sum must be of; of 2, each knows the other's part")
