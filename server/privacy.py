"""Protection of labels: noise on responses to the parties, the count of its releases, and the labels on disk.

One call clips a response, adds noise and counts its cost. Releases of every training row's label are counted across
crashes. Noisy labels are drawn once for all starts of the server; a digest detects labels that differ from those that
the run began with.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import get_args

import torch
from torch import Tensor

from colonnade.common.config.privacy import Accounting, LabelPrivacyConfig, ResponseNoiseConfig
from colonnade.common.contracts.schedule import Schedule
from colonnade.common.data.labels import LabelColumn
from colonnade.common.data.rows import generator
from colonnade.common.errors import CheckpointError, ConfigError, DataError, EnvironmentFault, disk_faults
from colonnade.common.models.backprop import Parameters, RowLoss, row_gradients
from colonnade.common.privacy.accounting.accountant import epsilon
from colonnade.common.privacy.labels import NoisyLabels, label_noise, noise_settings
from colonnade.common.privacy.noise import Normals, secure_normals, seeded_normals
from colonnade.common.privacy.response_noise import RowNoise
from colonnade.common.run.json_text import Witness, parse_json, whole
from colonnade.common.run.run_cache import RunCache, read_recorded, write_tensor
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
        path: file of the ceiling; None keeps counts in memory only.
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
        return self.epsilon_of(self.most)

    def epsilon_of(self, releases: float) -> float:
        """The same of a number of releases."""
        config = self._config
        return epsilon(releases, config.noise_multiplier, config.delta, "replace", config.accounting)

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
            with disk_faults(
                f"{self._path} cannot be written", "make room on the disk, then resume", "; nothing leaves without it"
            ):
                RunFolder(self._path.parent).witness.write(self._path, json.dumps(record).encode())
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
    arrivals: bool = False,
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

    Made once a session, by `ServerContext.protection`. *Everything* that depends on training labels and reaches a party
    now or later must pass through it: messages through `rows` or `mean`, the server's own step through `gradients`.
    Every call is one release of every row of the batch. Values are contributions to the *sum* over the batch's rows,
    not divided by their number, and each depends only on its own row's label (for gradients `row_gradients` ensures
    it):

        loss, at_h = noise.descend(loss_of_row, parameters, h, y, batch)  # the optimiser may step now
        dh = noise.rows(at_h[:, index], batch) / len(batch)

    Args:
        paid: the releases so far, which a new session does not reset.
        state: the server side's; seeded noise is drawn from it, and restored with it.
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
        """The server's own step: the mean of rows, each clipped to C_0 over all parameters together.

        Maps per-row gradients, (rows, *shape) by parameter, to (*shape) with noise of standard deviation sigma C_0 /
        rows in every entry.
        """
        self._paid.spend(batch)
        totals = self._step.sums(list(gradients.values()))
        return {name: total / len(batch) for name, total in zip(gradients, totals, strict=True)}


_DRAW_ANEW = "begin a new run, which draws noise and spends epsilon anew"


class NoisyLabelFile:
    """File of a run's noisy labels; without a folder they are kept in memory only.

    It stores fingerprints of the labels and settings; the fingerprint of the true labels never leaves the server.

    Args:
        begun: True if the run has begun, so labels have been used already.
    """

    def __init__(self, folder: Path | None, *, begun: bool) -> None:
        self._path, self._begun = None if folder is None else RunFolder(folder).noisy_labels, begun

    def get(
        self, config: LabelPrivacyConfig | None, labels: Tensor, rows: Tensor, classes: int, seed: int
    ) -> NoisyLabels | None:
        """The noisy labels, read or, at first, drawn; None if labels are not noised.

        Args:
            labels: class numbers of all rows, int64 (n,).
            rows: the training rows, whole numbers (m,).

        Raises CheckpointError if the run was begun with other labels or other settings.
        """
        path = self._path
        there = path is not None and path.exists()
        if config is None and not there:
            return None
        if config is None or (self._begun and not there):
            before, now = ("with", "without") if there else ("without", "with")
            raise CheckpointError(
                f"the run was begun {before} label privacy and cannot go on {now} it", hint=_DRAW_ANEW
            )
        about = _about(config, labels, rows, classes)
        if path is not None and there:
            drawn = _read_noisy(path, about, config, (len(rows), classes))
        else:
            drawn = NoisyLabels.draw(labels[rows], classes, config, seed)
            self._write(drawn.values, about)
        return drawn.waiting(labels[rows], rows, config, seed, lambda values: self._write(values, about))

    def _write(self, values: Tensor, about: dict[str, str]) -> None:
        if self._path is not None:
            write_tensor(self._path, values, about)


def _read_noisy(path: Path, about: dict[str, str], config: LabelPrivacyConfig, shape: tuple[int, int]) -> NoisyLabels:
    values, found = read_recorded(path, _DRAW_ANEW)
    if not about.keys() <= found.keys() or values.dtype != torch.float64 or not bool(values.isfinite().all()):
        raise CheckpointError(f"{path} is torn or was altered", hint=_DRAW_ANEW)
    for what, wanted in about.items():
        if found[what] != wanted:
            raise CheckpointError(f"{path} was drawn for other {what}", hint=f"restore them, or {_DRAW_ANEW}")
    if values.shape != shape:  # the checksum covers bytes, not the shape
        raise CheckpointError(f"{path} was altered: it is of shape {tuple(values.shape)}", hint=_DRAW_ANEW)
    return NoisyLabels(values, label_noise(config, shape[1]), config.seeded)


def _about(config: LabelPrivacyConfig, labels: Tensor, rows: Tensor, classes: int) -> dict[str, str]:
    """Fingerprints of the training labels and of the noise settings; the same whichever type row numbers have."""
    named = labels[rows].cpu().numpy().tobytes() + rows.cpu().to(torch.int64).numpy().tobytes()
    settings = json.dumps(noise_settings(config, classes))
    return {"labels": hashlib.sha256(named).hexdigest(), "settings": settings}


_NAME = "labels"


def hold_labels(run_cache: RunCache, digest: str) -> None:
    """Stores the digest of a run's labels on the server's disk. Labels can be guessed from it, so it is never sent."""
    run_cache.keep(_NAME, digest, {"format": torch.tensor(1)})


def refuse_other_labels(run_cache: RunCache, labels: LabelColumn) -> None:
    """Raises DataError if the labels differ from the stored digest's."""
    if (held := run_cache.number(_NAME)) and held != digest_of(labels):
        raise DataError(
            "server.labels has changed since the run was begun: its ids, its values or their order are others",
            hint="restore the table, by which ids find the parties' rows, and server.labels.positive; or train "
            "on the one that is there now",
        )


def digest_of(labels: LabelColumn) -> str:
    digest = hashlib.sha256(labels.values.contiguous().view(-1).numpy().data)
    if labels.weights is not None:
        digest.update(labels.weights.contiguous().numpy().data)
    for id in labels.ids or ():
        digest.update(len(id).to_bytes(8) + id.encode(errors="surrogatepass"))
    return digest.hexdigest()
