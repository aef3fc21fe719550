"""What a curious server could estimate of columns, by the table of docs/attacks.md."""

from __future__ import annotations

import math
from collections.abc import Mapping

from torch import nn

from colonnade.attacks.columns.measured import hidden_layers, quoted
from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.schedule import Schedule
from colonnade.common.contracts.registry import CONTRACTS


def estimated(
    federation: FederationConfig, made: Mapping[str, tuple[nn.Module, tuple[int, ...]]], schedule: Schedule
) -> str:
    """The measured case that is nearest to a configuration, or "" where embeddings have noise or do not leave.

    Args:
        made: every party's bottom model and the shape of its rows.
        schedule: of the run.
    """
    contract = CONTRACTS[federation.protocol.name]
    width = contract.limits_of(federation).get("width")
    if not made or width is None or not contract.embeddings or federation.privacy is not None:
        return ""
    blinded = getattr(federation.protocol, "aggregate", "clear") == "blinded"
    columns = [math.prod(shape) for _, shape in made.values()]
    behind = sum(columns) if blinded else min(columns)
    layers = min(hidden_layers(model) for model, _ in made.values())
    return quoted(layers, width * schedule.epoch(schedule.rounds) / max(behind, 1), blinded=blinded)
