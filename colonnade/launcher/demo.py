"""Paths of the shipped configurations, installed or not."""

from __future__ import annotations

from pathlib import Path

EXPERIMENTS = Path(__file__).parents[1] / "experiments"


def demo_file() -> Path:
    return EXPERIMENTS / "demo.yaml"
