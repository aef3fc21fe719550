"""Opens the tower that a configuration names. Its library is loaded here, which takes seconds."""

from __future__ import annotations

from pathlib import Path

from colonnade.common.config.models import PretrainedConfig, TimmConfig, TransformersConfig
from colonnade.common.data.pretrained.tower import PretrainedTower
from colonnade.common.errors import EnvironmentFault


def open_tower(config: PretrainedConfig, base: Path) -> PretrainedTower:
    """Reads the weights. Raises ConfigError, or EnvironmentFault if the library is missing."""
    written = f"model.name = {config.name}/{config.architecture}"
    try:
        match config:
            case TimmConfig():
                from colonnade.common.data.pretrained.timm_tower import open_timm  # noqa: PLC0415  # takes seconds

                return open_timm(config, base)
            case TransformersConfig():
                from colonnade.common.data.pretrained.text_tower import open_text  # noqa: PLC0415  # takes seconds

                return open_text(config, base)
    except ImportError as missing:
        raise EnvironmentFault(
            f"{written}: {missing.name or config.name} is not installed",
            hint=f"pip install 'colonnade[{config.name}]'",
        ) from None
    except RuntimeError as unfit:
        if "torchvision" not in str(unfit):
            raise
        raise EnvironmentFault(
            f"{written}: torchvision and torch are not of one build: {unfit}",
            hint="install both from one index: pip install --force-reinstall torch torchvision",
        ) from None
    raise TypeError(f"{type(config).__name__} names no library")
