"""Simulates federations like the attacked one: on other rows (shadows), or with a member that deviates.

A deviating member's side is a coroutine that replaces the protocol's, in one process and on the virtual clock. A
process of a real federation cannot be given one.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from colonnade.common.config.chaos import ChaosConfig
from colonnade.common.config.members import Config
from colonnade.common.config.run_options import CaptureConfig, RowsConfig
from colonnade.common.data.rows import generator
from colonnade.common.errors import InputError
from colonnade.simulation.folder import simulate_captured
from colonnade_lab.attacks.run import AttackedRun, open_run

Deviation = Callable[[Any, Any, Any], Coroutine[Any, Any, None]]
"""(context, link or cohort, config of the protocol) -> one member's side."""

_LAST = 10**9  # epochs between two kept ones: only the last is kept
_FEWEST = 20


@contextmanager
def deviating(run: AttackedRun, instead: Mapping[str, Deviation]) -> Iterator[AttackedRun]:
    """Simulates the run with other sides for some members, by name, and deletes its folder afterwards."""
    with tempfile.TemporaryDirectory(prefix="colonnade-deviating-") as name:
        simulate_captured(_still(run.config), run.base, Path(name), run.sample, instead=instead)
        yield open_run(Path(name), run.sample, captured=False)


@dataclass(frozen=True)
class Pool:
    """Source of the shadows' rows, int64 (n,), on which the target did not train.

    A shadow trains on `train` rows and holds out as many.
    """

    rows: Tensor
    source: str
    train: int

    def draw(self, seed: int) -> Tensor:
        return self.rows[torch.randperm(len(self.rows), generator=generator("shadow", seed))[: 2 * self.train]]


def pool(run: AttackedRun) -> Pool:
    """Returns rows that the target did not use, if there are enough, else all that it did not train on."""
    used, part = torch.zeros(len(run.labels), dtype=torch.bool), run.schedule.partition
    used[part.train] = True
    spare = (~used).nonzero().flatten()
    used[part.validation] = used[part.test] = True
    unused = (~used).nonzero().flatten()
    if len(unused) >= 2 * len(part.train):
        return Pool(unused, "rows that the run did not use", len(part.train))
    if len(spare) < 2 * _FEWEST:
        raise InputError(
            f"{len(spare)} rows are left that the run did not train on, shadows need {2 * _FEWEST} at least",
            hint="run it with federation.rows.train lower than there are rows",
        )
    return Pool(spare, "its validation and test rows", min(len(part.train), len(spare) // 2))


def shadows(run: AttackedRun, own: Pool, count: int, seed: int) -> Iterator[AttackedRun]:
    """Simulates federations like the target in sequence; a shadow's folder is deleted when the next is requested.

    Parameters and batches have other seeds than the target's.
    """
    for number in range(1, count + 1):
        rows, config = own.draw(seed * 1009 + number), like(run.config, own.train, run.config.federation.seed + number)
        with tempfile.TemporaryDirectory(prefix="colonnade-shadow-") as name:
            simulate_captured(config, run.base, Path(name), rows)
            yield open_run(Path(name), rows)


def like(config: Config, train: int, seed: int) -> Config:
    """The same federation on `train` training rows and as many held out, with another seed, to its last round."""
    rows, batch = RowsConfig(train=train, validation=0, test=train), min(config.federation.batch, train)
    changed = {"rows": rows, "seed": seed, "batch": batch, "stop": None}
    return _still(config.model_copy(update={"federation": config.federation.model_copy(update=changed)}))


def _still(config: Config) -> Config:
    """Returns the configuration without captures of training but the last epoch, and without injected faults."""
    own = {"capture": CaptureConfig(every=_LAST), "chaos": ChaosConfig()}
    parties = {name: party.model_copy(update=own) for name, party in config.parties.items()}
    return config.model_copy(update={"parties": parties})
