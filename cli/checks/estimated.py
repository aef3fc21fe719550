"""What a curious server could estimate of columns, by the table of docs/attacks.md."""

from __future__ import annotations

import math
from collections.abc import Mapping

from torch import nn

from colonnade.cli.checks.measured import hidden_layers, quoted
from colonnade.common.config.federation import FederationConfig
from colonnade.common.contracts.registry import CONTRACTS
from colonnade.common.contracts.schedule import Schedule

Made = tuple[nn.Module | None, tuple[int, ...]]
"""A party's bottom model, if the protocol has one and it was built, and the shape of its rows."""


def estimated(federation: FederationConfig, made: Mapping[str, Made], schedule: Schedule) -> str:
    """The measured case that is nearest to a configuration, or "" where embeddings have noise or do not leave.

    Args:
        made: every party's bottom model and the shape of its rows.
        schedule: of the run.
    """
    contract = CONTRACTS[federation.protocol.name]
    width = contract.limits_of(federation).get("width")
    models = [model for model, _ in made.values() if model is not None]
    if (
        not models
        or len(models) < len(made)
        or width is None
        or not contract.embeddings
        or federation.privacy is not None
    ):
        return ""
    blinded = getattr(federation.protocol, "aggregate", "clear") == "blinded"
    columns = [math.prod(shape) for _, shape in made.values()]
    behind = sum(columns) if blinded else min(columns)
    layers = min(map(hidden_layers, models))
    return quoted(layers, width * schedule.epoch(schedule.rounds) / max(behind, 1), blinded=blinded)
