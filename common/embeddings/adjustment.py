"""What parties add to their own loss to bring their embeddings into a better shape (VFL-AFE, Sections 3.2 and 3.3)."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class AdjustConfig(BaseModel):
    """`federation.adjust`. Nothing of it leaves a party, and it costs no privacy that training has not cost already."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    contrastive: float = Field(
        default=0.0, ge=0, description="beta, the weight of Eq. 8: embeddings of different clusters are pushed apart"
    )
    confidence: float = Field(
        default=0.8, gt=0, lt=1, description="c: rows that belong to their cluster with less are left out"
    )
    normality: float = Field(
        default=0.0, ge=0, description="alpha, the weight of Eq. 6: distances between embeddings become normal"
    )

    @property
    def asked(self) -> bool:
        """Whether anything is added."""
        return self.contrastive > 0 or self.normality > 0
