"""Captured runs on the digits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from colonnade.common.config.members import Config
from colonnade.simulation.folder import simulate_captured
from colonnade_lab.attacks.run import AttackedRun, open_run
from tests.support.federation import config

SPLIT = {"name": "split", "embedding": 10}


def leave(folder: Path, cfg: Config) -> AttackedRun:
    """Runs a federation whose parties capture, and opens its folder as `simulate` leaves it."""
    simulate_captured(cfg, folder, folder)
    return open_run(folder)


def captured(folder: Path, protocol: dict[str, Any], *sets: str) -> AttackedRun:
    """The same of the digits."""
    return leave(folder, config(protocol, "every_party.capture={}", *sets))
