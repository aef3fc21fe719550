"""Captured runs on the digits, and captures that were made up to leak what they should."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from attacks.run import Run, open_run
from cli.simulate import leave_for_attacks
from cli.simulation import Simulation
from common.capture import Capture
from common.config import Config
from common.course import CaptureConfig
from common.message import Message
from tests.federation import config

SPLIT = {"name": "split", "embedding": 10}


def home(folder: Path, party: str) -> Path:
    (made := folder / "parties" / party).mkdir(parents=True, exist_ok=True)
    return made


def leave(folder: Path, cfg: Config) -> Run:
    """Runs a federation whose parties capture, and opens its folder as `simulate` leaves it."""
    outcome = Simulation(cfg, folder, home=lambda name: home(folder, name)).run()
    leave_for_attacks(folder, cfg, folder, outcome)
    (folder / "summary.json").write_text(json.dumps({"protocol": cfg.federation.protocol.name}))
    return open_run(folder)


def captured(folder: Path, protocol: dict[str, Any], *sets: str) -> Run:
    """The same of the digits."""
    return leave(folder, config(protocol, "every_party.capture={}", *sets))


def made_up(run: Run, party: str, way: str, *messages: Message) -> None:
    """Adds messages to a party's capture that never crossed anything."""
    made = Capture(run.folder / "parties" / party, CaptureConfig(), run.config.federation, run.schedule, session=9)

    carry = (made.outward if way == "out" else made.inward)(lambda _item: None)
    for message in messages:
        carry(message)
    made.close()


def one_hot(labels: Tensor) -> Tensor:
    return torch.eye(10)[labels]
