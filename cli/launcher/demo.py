"""Where the demo is, installed or not."""

from __future__ import annotations

from pathlib import Path


def demo_file() -> Path:
    """The configuration that is taken where none is named."""
    return Path(__file__).parents[2] / "experiments" / "demo.yaml"
