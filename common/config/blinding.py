"""`federation.blinding`: sums whose terms the server does not see."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from colonnade.common.section import Section


class BlindingConfig(Section):
    """`federation.blinding`: sums whose terms the server does not see if they are `blinded`; `least` in FedVS too."""

    bound: float = Field(default=64.0, gt=0, description="B, the magnitude to which every number is clipped")
    bits: Literal[32, 64] = Field(default=32, description="b, bits of the words that are summed")
    least: int = Field(
        default=3, ge=2, description="minimum number of parties of a sum; of 2, each knows the other's term"
    )
