"""Construction of a bottom model, checked against the agreed width."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from colonnade.common.config.models import ModelConfig
from colonnade.common.errors import ConfigError
from colonnade.common.models.build import build_model, output_width


def bottom_model(
    owner: str, config: ModelConfig, input_shape: tuple[int, ...], width: int, start: torch.Generator, base: Path
) -> nn.Module:
    """A member's model, (rows, *input_shape) -> (rows, width).

    Args:
        owner: its section, `parties.NAME` or `server.active`, for the error.
        start: draws the weights.

    Raises:
        ConfigError: the model does not fit the rows, its file is not usable, or its outputs have
            another width.
    """
    try:
        model = build_model(config, input_shape, start, base)
    except ConfigError as error:
        raise ConfigError(f"{owner}.model: {error}", hint=error.hint) from error
    if (made := output_width(model, input_shape)) != width:
        raise ConfigError(
            f"{owner}.model makes embeddings of width {made}, federation.protocol.embedding is {width}",
            hint="make the two equal",
        )
    return model
