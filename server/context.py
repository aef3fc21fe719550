"""What the server's half of a protocol is given."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from common.config import FederationConfig, ServerConfig
from common.conversation import Harvest, Quorum
from common.data.labels import Labels
from common.errors import DataError
from common.message import Message
from common.schedule import Schedule
from common.state import State
from common.telemetry import Telemetry


@dataclass
class ServerContext:
    """Labels, timetable, state and the run's record.

    Attributes:
        labels: classes of all rows, int64 (rows,), on the device.
        base: the folder that paths in the config are relative to.
        traffic: bytes on the wire so far, up and down.
        missing: rounds that each party missed.
        round: the last one that is done.
        metrics: the newest value of every metric, for the summary.
    """

    federation: FederationConfig
    config: ServerConfig
    labels: Tensor
    schedule: Schedule
    telemetry: Telemetry
    base: Path = Path()
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    state: State = field(default_factory=State)
    metrics: dict[str, float] = field(default_factory=dict)
    traffic: Callable[[], tuple[int, int]] = lambda: (0, 0)
    missing: dict[str, int] = field(default_factory=dict)
    round: int = 0
    _begun: float = field(default_factory=time.monotonic)

    @property
    def quorum(self) -> Quorum:
        """How long a round waits, and for whom."""
        return self.federation.quorum.quorum

    def begin(self) -> None:
        """The first round's clock starts now."""
        self._begun = time.monotonic()

    def record(self, round: int, loss: float, harvest: Harvest[Message]) -> None:
        """Enters a training round: its loss, how long it took, who was slow and who was missing."""
        self.metrics["train_loss"] = loss
        for party in harvest.missing:
            self.missing[party] = self.missing.get(party, 0) + 1
            self.telemetry.event("missing", round=round, party=party)
        self.telemetry.event("round", round=round, loss=loss, **self._progress(round, harvest))
        self.round = round

    def _progress(self, round: int, harvest: Harvest[Message]) -> dict[str, Any]:
        now = time.monotonic()
        seconds, self._begun = now - self._begun, now
        up, down = self.traffic()
        slow = {"party": harvest.slowest, "seconds": round_off(harvest.lag)}
        return {"rounds": self.schedule.rounds, "epoch": round_off(self.schedule.epoch(round)),
                "seconds": round_off(seconds), "bytes_up": up, "bytes_down": down, "slowest": slow}  # fmt: skip

    def evaluated(self, round: int, part: str, **metrics: float) -> None:
        """Enters what an evaluation found: accuracy and loss of a part."""
        named = {f"{'val' if part == 'validation' else part}_{name}": value for name, value in metrics.items()}
        self.metrics.update(named)
        self.telemetry.event("evaluation", round=round, part=part, **named)


def round_off(seconds: float) -> float:
    """To microseconds, as events have it."""
    return round(seconds, 6)


def check_labels(labels: Labels, federation: FederationConfig) -> None:
    """Refuses labels that do not fit the agreed classes.

    Raises:
        DataError: other classes, or another number of them.
    """
    found = len(labels.classes)
    if found != federation.outputs:
        raise DataError(
            f"federation.classes says {federation.outputs} classes, the labels have {found} "
            f"({', '.join(labels.classes[:20])})",
            hint="mend federation.classes, in every party's file too, or server.labels",
        )
    if not isinstance(federation.classes, int) and tuple(federation.classes) != tuple(labels.classes):
        raise DataError(
            f"federation.classes are {', '.join(federation.classes)}; the labels have {', '.join(labels.classes)}",
            hint="the names must be equal and in the labels' order",
        )
