"""Opens the tower that a configuration names. Its library is loaded here, which takes seconds."""

from __future__ import annotations

from pathlib import Path

from colonnade.common.config.pretrained import PretrainedConfig, TimmConfig, TransformersConfig
from colonnade.common.data.pretrained.tower import PretrainedTower


def open_tower(config: PretrainedConfig, base: Path) -> PretrainedTower:
    """Reads the weights. Raises ConfigError, or EnvironmentFault where the library is missing."""
    match config:
        case TimmConfig():
            from colonnade.common.data.pretrained.timm_tower import open_timm  # noqa: PLC0415  # takes seconds

            return open_timm(config, base)
        case TransformersConfig():
            from colonnade.common.data.pretrained.text_tower import open_text  # noqa: PLC0415  # takes seconds

            return open_text(config, base)
        case _:
            raise TypeError(f"{type(config).__name__} names no library")
