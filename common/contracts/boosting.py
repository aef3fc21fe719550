"""What boosted models have in common: keys, scores, and settings that exclude exact sums."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from colonnade.common.config.compression import form_of
from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.protocol import ProtocolConfig
from colonnade.common.encryption.parameters import SumSize
from colonnade.common.errors import ConfigError
from colonnade.common.messaging.forms import AS_IS

ROWS = 2**22  # scores of all rows of a run, at most, where they are one message
CLASSES = 16  # classes, or numbers to predict, at most: each has vectors of its own in every round


class BoostedConfig(ProtocolConfig):
    """Keys under `federation.protocol` of every boosted model."""

    few_rounds: ClassVar[bool] = True
    full_batch: ClassVar[bool] = True
    monotone: ClassVar[bool] = True
    weighted: ClassVar[bool] = True
    typed: ClassVar[bool] = True
    optimisers: ClassVar[frozenset[str]] = frozenset()

    gradients: Literal["encrypted", "clear"] = Field(
        default="encrypted", description="what parties see of the gradients of all training rows: nothing, or ALL"
    )
    precision: Literal["auto"] | Annotated[int, Field(ge=4, le=40)] = Field(
        default="auto", description="bits of a gradient besides its sign; auto: as many as encrypted sums have room for"
    )
    rate: float = Field(default=0.1, gt=0, le=1, description="factor of the steps")
    l2: float = Field(default=1.0, ge=0, description="added to the sum of Hessians of every step")
    bins: int = Field(default=64, ge=2, le=255, description="most bins of a column, besides that of missing values")
    least: int = Field(default=20, ge=1, description="training rows of a bin, at least")

    def bits_of(self, size: SumSize) -> int:
        """Bits of a gradient besides its sign. Raises InputError if encrypted sums of them could leave their range."""
        if self.precision == "auto":
            return size.precision
        if self.gradients == "encrypted":
            size.refuse_large(self.precision)
        return self.precision


def scores_of(federation: FederationConfig) -> int:
    """Scores of a row: one for two classes."""
    return 1 if federation.task == "classification" and federation.outputs == 2 else federation.outputs


def check_boosted(federation: FederationConfig, exact: str) -> None:
    """Refuses noise and compression where sums are exact. Raises ConfigError.

    Args:
        exact: what needs exact sums, for the error.
    """
    name = federation.protocol.name
    if federation.outputs > CLASSES:
        raise ConfigError(
            f"{name} with {federation.outputs} outputs: at most {CLASSES}, since each is boosted by itself",
            hint="join classes",
        )
    if federation.privacy is not None:
        raise ConfigError(
            f"federation.privacy with the protocol {name}: noise on sums would leave {exact} exact",
            hint="leave it out, or take a protocol whose parties send embeddings, such as split",
        )
    if not all(form_of(way) == AS_IS for way in (federation.compress.up, federation.compress.down)):
        raise ConfigError(
            f"federation.compress with the protocol {name}: sums and {exact} are exact", hint="leave it out"
        )
