"""`alignments` of a member: alignments that it keeps for its next runs. Local: neither agreed on nor sent."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from colonnade.common.section import Section


class AlignmentsConfig(Section):
    """`alignments`: where and how long a member keeps the rows of an alignment, and its secret exponent."""

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
