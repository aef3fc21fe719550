"""`alignments` of a member: alignments that it keeps for its next runs. Local: neither agreed on nor sent."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from colonnade.common.section import Section


class AlignmentsConfig(Section):
    """`alignments`: kept alignments and exponents of a member, and what others may test in a day."""

    folder: Path | None = Field(
        default=None,
        description="folder of kept alignments, relative to the file, with a folder for each member in it; left out, "
        "COLONNADE_ALIGNMENTS or `.alignments` beside the runs",
    )
    days: float = Field(
        default=30,
        ge=0,
        le=3650,
        description="days after which a kept alignment, or a secret exponent, is removed; 0 keeps none",
    )
    per_day: int | None = Field(
        default=100,
        ge=1,
        description="most alignments in 24 hours with any other member, over all runs and predictions; null "
        "for no limit",
    )
    rows_per_day: int | None = Field(
        default=50_000_000,
        ge=1,
        description="most keys of any other member in all alignments of 24 hours, over all runs and predictions; null "
        "for no limit",
    )
