"""A run that is attacked: its configuration, its truth, and what its parties have captured."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from common.capture import EVALUATIONS, TRAINING, Captured, has_capture, read_capture
from common.config import Config, load
from common.data.scale import Columns
from common.data.sources import load_features, load_labels, prepare
from common.errors import ConfigError, InputError, nearest
from common.schedule import Schedule

_HOW = "run it again with --set 'every_party.capture={}', or `capture` in a party's section"


@dataclass(frozen=True)
class Run:
    """A run's folder, opened, with the data that its members had.

    Args:
        folder: the run's.
        base: the folder that paths in the config are relative to.
        summary: what summary.json says.
        labels: the true classes of all rows, int64 (rows,).
        schedule: as all members derived it.
        only: the rows of the sources that the run knew, in its own order; None for all.
    """

    folder: Path
    config: Config
    base: Path
    summary: dict[str, Any]
    labels: Tensor
    schedule: Schedule
    only: Tensor | None = None

    @property
    def protocol(self) -> str:
        """Its name."""
        return self.config.federation.protocol.name

    @property
    def captured(self) -> tuple[str, ...]:
        """The parties that captured, in the roster's order."""
        return tuple(name for name in self.config.federation.names if has_capture(self._home(name)))

    def training(self, party: str) -> Iterator[Captured]:
        """What crossed a party's link about training rows, in order. Raises InputError."""
        return read_capture(self._home(party) / TRAINING, self.config.federation)

    def evaluations(self, party: str) -> Iterator[Captured]:
        """The same about validation and test rows."""
        return read_capture(self._home(party) / EVALUATIONS, self.config.federation)

    def columns(self, party: str) -> Columns:
        """What a party's model saw of every row: the truth that an inversion is held against. Raises DataError."""
        data, federation = self.config.parties[party].data, self.config.federation
        values = load_features(data, federation.seat(party), self.base).values
        values = values if self.only is None else values[self.only]
        return prepare(data, values, self.schedule.partition.train, federation.seed, party)

    def victims(self, wanted: str) -> tuple[str, ...]:
        """The parties to attack: the one that is named, or all that captured if none is.

        Raises:
            InputError: there is no such party, or it captured nothing.
        """
        if wanted and wanted not in self.config.federation.names:
            hint = f"there are {', '.join(self.config.federation.names)}"
            raise InputError(
                f"--party {wanted}: no such party{nearest(wanted, self.config.federation.names)}", hint=hint
            )
        if wanted and wanted not in self.captured:
            raise InputError(f"--party {wanted}: it captured nothing in {self.folder}", hint=_HOW)
        return (wanted,) if wanted else self.captured

    def _home(self, party: str) -> Path:
        return self.folder / "parties" / party


def open_run(folder: Path, only: Tensor | None = None) -> Run:
    """Opens the folder of a run of `up` or `simulate`.

    Args:
        folder: the run's.
        only: the rows of the sources that the run knew; None for all.

    Raises:
        InputError: it holds no such run, or nobody in it captured.
        DataError: the labels are not where the configuration says.
    """
    summary = _json(folder / "summary.json")
    if "protocol" not in summary:
        raise InputError(
            f"{folder} holds no run that has ended: there is no summary.json",
            hint="give the folder that `up` or `simulate` printed",
        )
    base = _json(folder / "launch.json").get("base") or _json(folder / "simulated.json").get("base")
    if base is None or not (folder / "config.yaml").is_file():
        raise InputError(f"{folder} does not say how it was run: there is no config.yaml", hint=_HOW)
    config = load(folder / "config.yaml")
    if config.server is None:
        raise ConfigError(f"{folder / 'config.yaml'}: no `server` section", hint="the labels are needed")
    labels = load_labels(config.server.labels, Path(base))
    values, official = (labels.values, labels.official_test) if only is None else (labels.values[only], 0)
    schedule = Schedule(config.federation, len(values), official)
    run = Run(folder, config, Path(base), summary, values, schedule, only)
    if not run.captured:
        raise InputError(f"no party of the run in {folder} kept what crossed its link", hint=_HOW)
    return run


def accuracy(found: Tensor, truth: Tensor) -> float:
    """The share of equal entries, of int64 (rows,) each."""
    return (found == truth).to(torch.float64).mean().item()


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
