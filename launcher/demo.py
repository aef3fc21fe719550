"""Path of the demo, installed or not."""

from __future__ import annotations

from pathlib import Path


def demo_file() -> Path:
    """The default configuration."""
    return Path(__file__).parents[1] / "experiments" / "demo.yaml"
