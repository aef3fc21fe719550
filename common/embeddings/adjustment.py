"""Terms that parties add to their own loss to adjust their embeddings (VFL-AFE, Sections 3.2 and 3.3)."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class AdjustConfig(BaseModel):
    """`federation.adjust`. None of its results leave a party, and it costs no privacy beyond that of training."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    contrastive: float = Field(
        default=0.0, ge=0, description="beta, the weight of Eq. 8, which separates embeddings of different clusters"
    )
    confidence: float = Field(
        default=0.8, gt=0, lt=1, description="c: rows with a lower membership of their cluster are left out"
    )
    normality: float = Field(
        default=0.0, ge=0, description="alpha, the weight of Eq. 6: distances between embeddings become normal"
    )

    @property
    def asked(self) -> bool:
        """True if any term is added."""
        return self.contrastive > 0 or self.normality > 0
