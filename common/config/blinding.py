"""`federation.blinding`: sums whose terms the server does not see."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from colonnade.common.section import Section

Recovery = Literal["none", "alone", "colluding"]
"""How the sum of a training round survives a party that vanishes: not at all, or by shares, against these liars."""


class BlindingConfig(Section):
    """`federation.blinding`: sums whose terms the server does not see if they are `blinded`; `least` in FedVS too."""

    bound: float = Field(default=64.0, gt=0, description="B, the magnitude to which every number is clipped")
    bits: Literal[32, 64] = Field(default=32, description="b, bits of the words that are summed")
    least: int = Field(
        default=3, ge=2, description="minimum number of parties of a sum; of 2, each knows the other's term"
    )
    recovery: Recovery = Field(
        default="none",
        description="sum of a training round without a party that vanishes in the middle of it: none (the round is "
        "left out); alone, by shares of keys that floor(n/2) + 1 parties open, against a server that lies alone; "
        "colluding, that floor(2n/3) + 1 open, against one that lies together with fewer than n/3 parties",
    )

    def threshold(self, parties: int) -> int:
        """t, the number of parties that open a key together; 0 without recovery."""
        return {"none": 0, "alone": parties // 2 + 1, "colluding": 2 * parties // 3 + 1}[self.recovery]
