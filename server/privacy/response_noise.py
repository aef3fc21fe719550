"""Protection of labels in responses to the parties, under `server.privacy.answers`.

Clipping, noise and accounting are one call. Releases of every training row's label are counted across crashes.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import get_args

import torch
from torch import Tensor

from colonnade.common.config.privacy import Accounting, ResponseNoiseConfig
from colonnade.common.contracts.schedule import Schedule
from colonnade.common.data.rows import generator
from colonnade.common.errors import CheckpointError, ConfigError, EnvironmentFault
from colonnade.common.models.backprop import Parameters, RowLoss, row_gradients
from colonnade.common.privacy.accounting.accountant import epsilon
from colonnade.common.privacy.noise import Normals, secure_normals, seeded_normals
from colonnade.common.privacy.response_noise import RowNoise
from colonnade.common.run.json_text import Witness, parse_json, whole
from colonnade.common.run.run_folder import RunFolder
from colonnade.common.run.state import State

_ANEW = "begin a new run, which spends epsilon anew"
_CEILING = 1 << 53  # more releases than any run makes
_BLOCKS = 32  # blocks that a run's releases are reserved in: a crash forfeits at most one


class RowReleases:
    """Number of releases by row, in memory, and a ceiling over all of them on disk.

    No rollback lowers the counts. Before a count would pass the ceiling, the ceiling is raised by a block and flushed
    to disk; after a restart every row's count is the ceiling. A crash can therefore only increase a count.

    Args:
        config: settings that a release's cost depends on.
        block: number of releases by which the ceiling is raised.
        path: of the ceiling's file; None keeps counts in memory only.
        spent: releases of every row before this start.
    """

    def __init__(
        self, config: ResponseNoiseConfig, rows: int, block: int = 1, path: Path | None = None, spent: int = 0
    ) -> None:
        self._config, self._block, self._path, self.paid = config, block, path, spent
        self.counted = torch.full((rows,), spent, dtype=torch.int64)

    @property
    def most(self) -> int:
        """Largest number of releases of any row: the guarantee covers every row."""
        return int(self.counted.max())

    @property
    def accounting(self) -> Accounting:
        return self._config.accounting

    @property
    def epsilon(self) -> float:
        """Total epsilon at the configured delta, for a changed label of one row (sensitivity 2C)."""
        config = self._config
        return epsilon(self.most, config.noise_multiplier, config.delta, "replace", config.accounting)

    def spend(self, batch: Tensor) -> None:
        """Counts one release of these rows, int64 (rows,), before it is made. Raises EnvironmentFault."""
        wanted = int(self.counted[batch].max()) + 1
        if wanted > self.paid:
            self.write(wanted + self._block - 1)
        self.counted[batch] += 1

    def write(self, ceiling: int) -> None:
        """Sets the ceiling; it is on disk when this returns. Raises EnvironmentFault."""
        if self._path is not None:
            record = {"ceiling": ceiling, "accounting": self._config.accounting, **_settings(self._config)}
            try:
                RunFolder(self._path.parent).witness.write(self._path, json.dumps(record).encode())
            except OSError as failed:
                raise EnvironmentFault(
                    f"{self._path} cannot be written: {failed.strerror}; nothing leaves without it",
                    hint="make room on the disk, then resume",
                ) from failed
        self.paid = ceiling

    def close(self) -> None:
        """Lowers the ceiling to the releases made. If that cannot be written, the rest of a block is forfeited."""
        if self.most < self.paid:
            with contextlib.suppress(EnvironmentFault):
                self.write(self.most)


def open_releases(
    config: ResponseNoiseConfig | None,
    schedule: Schedule,
    parties: int,
    rows: int,
    folder: Path | None,
    *,
    begun: bool,
    arrivals: bool,
) -> RowReleases | None:
    """The counts of a run, as an earlier start left them; None if responses are not protected.

    Args:
        parties: number of parties that get responses; with the run's length and `arrivals` it sizes the blocks.
        folder: the run's; None keeps the counts in memory only.
        begun: True if the run has begun, so responses may have been sent.

    Raises CheckpointError if the run was begun with other settings, or the file cannot be read.
    """
    path = None if folder is None else RunFolder(folder).answers
    kept = None if folder is None or path is None else _content(RunFolder(folder).witness, path)
    there = kept is not None
    if config is None and not there:
        return None
    if config is None or (begun and not there):
        before, now = ("with", "without") if there else ("without", "with")
        raise CheckpointError(f"the run was begun {before} private answers and cannot go on {now} them", hint=_ANEW)
    refuse_large_delta(config, len(schedule.partition.train))
    spent = 0
    if path is not None and kept is not None:
        spent, accounting = _read(path, kept, config)
        if "accounting" not in config.model_fields_set:  # a run keeps the accounting that it began with
            config = config.model_copy(update={"accounting": accounting})
    block = max(1, expected_releases(schedule, parties, arrivals=arrivals) // _BLOCKS)
    releases = RowReleases(config, rows, block, path, spent)
    if not there:
        releases.write(spent)
    return releases


def expected_releases(schedule: Schedule, parties: int, *, arrivals: bool) -> int:
    """Releases of a row in a whole run.

    With `arrivals` (asynchronous turns) each turn is one release to the party and one in the server's own step. Else an
    epoch is one release to every party, and one in the server's step.
    """
    return math.ceil(schedule.epoch(schedule.rounds)) * (2 * parties if arrivals else parties + 1)


def refuse_large_delta(config: ResponseNoiseConfig, rows: int) -> None:
    """Raises ConfigError if delta is too large for the number of training rows."""
    if config.delta >= 1 / rows:
        raise ConfigError(
            f"server.privacy.answers.delta = {config.delta:g}: with {rows} training rows it must be below "
            f"1/{rows} = {1 / rows:.2g}, or publishing a label at random would count as private",
            hint="give a smaller delta; a tenth of 1 / rows is usual",
        )


def _content(witness: Witness, path: Path) -> bytes | None:
    try:
        return witness.read(path, f"restore it, or {_ANEW}")
    except OSError:
        raise CheckpointError(f"{path} cannot be read", hint=f"restore it, or {_ANEW}") from None


def _read(path: Path, kept: bytes, config: ResponseNoiseConfig) -> tuple[int, str]:
    try:
        record = parse_json(kept)
        ceiling, accounting = whole(record.pop("ceiling"), _CEILING), record.pop("accounting")
        if accounting not in get_args(Accounting):
            raise ValueError("no such accounting")
    except (ValueError, KeyError, TypeError, AttributeError):
        raise CheckpointError(f"{path} is torn or was altered", hint=_ANEW) from None
    for key, ours in _settings(config).items():
        if record.get(key) != ours:
            raise CheckpointError(
                f"{path} counts releases with {key} = {record.get(key)}, server.privacy.answers.{key} is {ours}",
                hint=f"restore it, or {_ANEW}",
            )
    return ceiling, accounting


def _settings(config: ResponseNoiseConfig) -> dict[str, float | bool]:
    """Settings that a release's cost depends on; clips and delta may change."""
    return {"noise_multiplier": config.noise_multiplier, "seeded": config.seeded}


class ResponseNoise:
    """Protects the training labels in one session's messages. The mechanism is in common/privacy/response_noise.py.

    Made once a session, by `ServerContext.protection`. *Everything* that depends on training labels and reaches a
    party now or later must pass through it: messages through `rows` or `mean`, the server's own step through
    `gradients`. Every call is one release of every row of the batch. Values are contributions to the *sum* over the
    batch's rows, not divided by their number, and each depends only on its own row's label (for gradients
    `row_gradients` ensures it):

        loss, at_h = noise.descend(loss_of_row, parameters, h, y, batch)  # the optimiser may step now
        dh = noise.rows(at_h[:, index], batch) / len(batch)

    Args:
        paid: the releases so far, which a new session does not reset.
        state: of the server side; seeded noise is drawn from it, and restored with it.
        seed: the federation's, for seeded noise.
    """

    def __init__(self, config: ResponseNoiseConfig, paid: RowReleases, state: State, seed: int) -> None:
        normals: Normals = secure_normals
        if config.seeded:
            normals = seeded_normals(state.keep("answer noise", lambda: generator("answers", seed)))
        self._paid = paid
        self._answer = RowNoise(config.clip, config.noise_multiplier, normals)
        self._step = RowNoise(config.head_clip, config.noise_multiplier, normals)

    def descend(
        self, loss: RowLoss, named: Parameters, h: Tensor, targets: Tensor, batch: Tensor
    ) -> tuple[float, Tensor]:
        """Puts the protected gradient of the batch's mean loss into every parameter's `grad`.

        `h` are its inputs for the batch, (rows, ...), `targets` labels, (rows,) or (rows, classes), `batch` row
        numbers. Returns the mean loss, and every row's gradient of its own loss at h, of h's shape: neither is
        protected yet. Raises InputError if the loss cannot be differentiated row by row.
        """
        losses, at_parameters, at_h = row_gradients(loss, named, h, targets)
        for name, gradient in self.gradients(at_parameters, batch).items():
            named[name].grad = gradient
        return losses.mean().item(), at_h

    def rows(self, values: Tensor, batch: Tensor) -> Tensor:
        """One response with a value per row, each clipped to C; every entry gets noise of standard deviation sigma C.

        Values are (rows, k): gradients at a party's outputs, or differences of losses. Raises EnvironmentFault, and
        releases nothing, if the privacy cost cannot be written.
        """
        self._paid.spend(batch)
        return self._answer.rows(values)

    def mean(self, values: Tensor, batch: Tensor) -> Tensor:
        """One response for the whole batch: the mean of rows clipped to C, (rows, k) -> (k,).

        The noise's standard deviation is sigma C / rows. Raises as `rows`.
        """
        self._paid.spend(batch)
        (total,) = self._answer.sums([values])
        return total / len(batch)

    def gradients(self, gradients: Mapping[str, Tensor], batch: Tensor) -> dict[str, Tensor]:
        """The server's own step: the mean of rows that are clipped to C_0 over all parameters together.

        Maps gradients of every row, (rows, *shape) by parameter, to (*shape) with noise of standard deviation
        sigma C_0 / rows in every entry.
        """
        self._paid.spend(batch)
        totals = self._step.sums(list(gradients.values()))
        return {name: total / len(batch) for name, total in zip(gradients, totals, strict=True)}
