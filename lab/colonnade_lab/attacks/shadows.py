"""Shadow federations: like the attacked one, but on other rows, whose members the attacker knows."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from colonnade.common.config.chaos import ChaosConfig
from colonnade.common.config.members import Config
from colonnade.common.config.run_options import CaptureConfig, RowsConfig
from colonnade.common.data.rows import generator
from colonnade.common.errors import InputError
from colonnade_lab.attacks.run import AttackedRun, open_run

Simulate = Callable[[Config, Path, Path, Tensor], object]
"""(config, the folder that its paths are relative to, the run's own folder, rows of the sources) -> a captured run."""

_LAST = 10**9  # epochs between two kept ones: only the last is kept
_FEWEST = 20


@dataclass(frozen=True)
class Pool:
    """Source of the shadows' rows, int64 (n,), on which the target did not train.

    A shadow trains on `train` rows and holds out as many.
    """

    rows: Tensor
    source: str
    train: int

    def draw(self, seed: int) -> Tensor:
        """Draws rows for one shadow, int64 (2 * train,)."""
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


def shadows(run: AttackedRun, own: Pool, count: int, seed: int, simulate: Simulate) -> Iterator[AttackedRun]:
    """Simulates federations like the target in sequence; a shadow's folder is deleted when the next is requested.

    Parameters and batches have other seeds than the target's.
    """
    for number in range(1, count + 1):
        rows = own.draw(seed * 1009 + number)
        with tempfile.TemporaryDirectory(prefix="colonnade-shadow-") as name:
            simulate(like(run.config, own.train, run.config.federation.seed + number), run.base, Path(name), rows)
            yield open_run(Path(name), rows)


def like(config: Config, train: int, seed: int) -> Config:
    """The same federation on `train` training rows and as many held out, with another seed, to its last round."""
    rows = RowsConfig(train=train, validation=0, test=train)
    batch = min(config.federation.batch, train)
    changed = {"rows": rows, "seed": seed, "batch": batch, "stop": None}
    own = {"capture": CaptureConfig(every=_LAST), "chaos": ChaosConfig()}
    return config.model_copy(
        update={
            "federation": config.federation.model_copy(update=changed),
            "parties": {name: party.model_copy(update=own) for name, party in config.parties.items()},
        }
    )
